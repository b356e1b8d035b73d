//! Verdicts on handlers' errors, which decide about a redelivery.

use std::{error::Error as StdError, fmt, io, iter};

use crate::error::BoxError;

/// The treatment of an operation whose handler returned an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The operation did not take effect, and may succeed when it runs again. The claim is released.
    #[default]
    Transient,
    /// The operation did not take effect, and never will. The failure is recorded and replayed.
    Permanent,
    /// The operation did not take effect, because a newer operation on the same thing has. The work found that out from
    /// its own data. It is recorded, and replayed as [`Outcome::Superseded`](crate::Outcome::Superseded). For
    /// [ordered](crate::Operation::ordered_by) operations the library detects it.
    Superseded,
    /// The operation may have taken effect. The claim is kept until its lease ends, and then
    /// [`AfterUnknown`](crate::AfterUnknown) decides.
    Unknown,
}

impl Verdict {
    /// Returns a stable name in snake case, for logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Superseded => "superseded",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the verdict of the outermost mark in an error's chain of sources ([`Classify`]), or transient without
    /// one.
    ///
    /// ```
    /// use lambda_once::{BoxError, Classify, Verdict};
    ///
    /// fn parse(text: &str) -> Result<u64, BoxError> {
    ///     Ok(text.parse().permanent()?)
    /// }
    /// assert_eq!(Verdict::of(&*parse("x").unwrap_err()), Verdict::Permanent);
    /// assert_eq!(Verdict::of(&std::io::Error::other("broken")), Verdict::Transient);
    /// ```
    pub fn of(error: &(dyn StdError + 'static)) -> Self {
        Self::marked(error).unwrap_or_default()
    }

    /// Returns the verdict of the outermost mark in an error's chain of sources, if there is one.
    pub(crate) fn marked(error: &(dyn StdError + 'static)) -> Option<Self> {
        chain(error).find_map(|error| error.downcast_ref::<Mark>()).map(|mark| mark.verdict)
    }
}

/// The maximum depth to which a chain of sources is searched. It comes from user code, and need not end.
pub(super) const MAX_DEPTH: usize = 64;

/// Returns an error and its sources, from the outermost to the first cause.
pub(crate) fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    iter::successors(Some(error), |error| wrapped(*error)).take(MAX_DEPTH)
}

fn wrapped<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    // The source of an `io::Error` skips the error that it was made from.
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

/// The maximum number of an error's sources that are printed.
const MAX_SOURCES: usize = 8;

/// A handler's error, with its [`Verdict`].
///
/// Any error is converted by `?`. Its verdict comes from its mark ([`Classify`]), anywhere in its chain of sources. The
/// engine's [classifiers](crate::Builder::classify) judge an error without one, and it is transient if they return no
/// verdict. A mark survives `?`, `anyhow`'s `.context()` and boxing:
///
/// ```
/// use lambda_once::{Classify, Failure, Verdict};
///
/// fn charge(amount: &str) -> Result<u64, Failure> {
///     let cents = amount.parse::<u64>().permanent()?; // it will not parse tomorrow either
///     std::fs::read("/nowhere")?; // plain `?`: transient
///     Ok(cents)
/// }
/// assert_eq!(charge("12 cents").unwrap_err().verdict(), Verdict::Permanent);
/// assert_eq!(charge("12").unwrap_err().verdict(), Verdict::Transient);
/// ```
///
/// Like `anyhow::Error` it is not itself a [`std::error::Error`].
pub struct Failure {
    /// `None` until it is set.
    verdict: Option<Verdict>,
    source: BoxError,
}

impl Failure {
    /// Creates an error with this verdict.
    pub fn new(verdict: Verdict, source: impl Into<BoxError>) -> Self {
        Self { verdict: Some(verdict), source: source.into() }
    }

    /// Creates an error after which the operation may run again.
    pub fn transient(source: impl Into<BoxError>) -> Self {
        Self::new(Verdict::Transient, source)
    }

    /// Creates a permanent failure, after which a retry cannot succeed.
    pub fn permanent(source: impl Into<BoxError>) -> Self {
        Self::new(Verdict::Permanent, source)
    }

    /// Creates an error for a superseded operation. A newer one has taken effect, so this one did not and never will.
    pub fn superseded(source: impl Into<BoxError>) -> Self {
        Self::new(Verdict::Superseded, source)
    }

    /// Creates an error after which the operation may or may not have taken effect.
    pub fn unknown(source: impl Into<BoxError>) -> Self {
        Self::new(Verdict::Unknown, source)
    }

    /// Returns the verdict: transient unless set by a mark or, in an [outcome](crate::Outcome::Failed), by a
    /// classifier.
    pub const fn verdict(&self) -> Verdict {
        match self.verdict {
            Some(verdict) => verdict,
            None => Verdict::Transient,
        }
    }

    /// Returns whether its verdict is set.
    pub(crate) const fn is_judged(&self) -> bool {
        self.verdict.is_some()
    }

    /// Returns the error itself.
    pub fn source(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }

    /// Returns the texts of the error and its sources, from the outermost to the first cause. Printing them runs
    /// user code.
    pub(crate) fn words(&self) -> String {
        let mut text = self.source.to_string();
        let mut next = self.source.source();
        for _ in 0..MAX_SOURCES {
            let Some(source) = next else { break };
            let words = source.to_string();
            // Some errors contain their source's text, and a mark has no text.
            if !text.ends_with(&words) {
                text.push_str(": ");
                text.push_str(&words);
            }
            next = source.source();
        }
        text
    }

    /// Returns the error itself, without its verdict.
    pub fn into_source(self) -> BoxError {
        self.source
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("verdict", &self.verdict()).field("source", &self.source).finish()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl<E: Into<BoxError> + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let source = boxed(error);
        Self { verdict: Verdict::marked(&*source), source }
    }
}

#[cfg(not(feature = "anyhow"))]
fn boxed<E: Into<BoxError>>(error: E) -> BoxError {
    error.into()
}

/// Boxes an error. A boxed `anyhow::Error` hides the type of the error that it was made from. Wrapped, it has that as
/// its source.
#[cfg(feature = "anyhow")]
fn boxed<E: Into<BoxError> + 'static>(error: E) -> BoxError {
    use std::any::Any;

    let mut slot = Some(error);
    let anyhow = (&mut slot as &mut dyn Any).downcast_mut::<Option<anyhow::Error>>().and_then(Option::take);
    match (anyhow, slot) {
        (Some(error), _) => Box::new(FromAnyhow(error)),
        (None, Some(error)) => error.into(),
        (None, None) => unreachable!("only an `anyhow::Error` is taken out"),
    }
}

#[cfg(feature = "anyhow")]
struct FromAnyhow(anyhow::Error);

#[cfg(feature = "anyhow")]
impl fmt::Debug for FromAnyhow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "anyhow")]
impl fmt::Display for FromAnyhow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "anyhow")]
impl StdError for FromAnyhow {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

/// Marks the error of a `Result` with a [`Verdict`].
///
/// The outermost mark counts.
pub trait Classify<T, E>: Sized {
    /// Marks the error as transient, so that a retry may succeed. This is the default for a handler's error. Mark it
    /// if the default is permanent, as in a decoder, or to override an inner mark.
    ///
    /// # Errors
    ///
    /// The same error, marked.
    fn transient(self) -> Result<T, Classified>;

    /// Marks the error as permanent, because no retry can help.
    ///
    /// # Errors
    ///
    /// The same error, marked.
    fn permanent(self) -> Result<T, Classified>;

    /// Marks the error as superseded, because a newer operation has taken effect. For example, a guarded `UPDATE` found
    /// a greater version.
    ///
    /// # Errors
    ///
    /// The same error, marked.
    fn superseded(self) -> Result<T, Classified>;

    /// Marks the error as unknown, because the operation may have taken effect, for example after a timeout of a
    /// payment.
    ///
    /// # Errors
    ///
    /// The same error, marked.
    fn unknown(self) -> Result<T, Classified>;

    /// Marks the error with a verdict computed from it.
    ///
    /// ```
    /// use lambda_once::{Classify, Verdict};
    /// # fn read() -> Result<(), std::io::Error> { Ok(()) }
    /// # fn main() -> Result<(), lambda_once::Failure> {
    /// read().classify(|error| match error.kind() {
    ///     std::io::ErrorKind::InvalidData => Verdict::Permanent,
    ///     std::io::ErrorKind::TimedOut => Verdict::Unknown,
    ///     _ => Verdict::Transient,
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The same error, marked.
    fn classify(self, verdict: impl FnOnce(&E) -> Verdict) -> Result<T, Classified>;
}

impl<T, E: Into<BoxError>> Classify<T, E> for Result<T, E> {
    fn transient(self) -> Result<T, Classified> {
        self.map_err(|error| Classified::new(Verdict::Transient, error))
    }

    fn permanent(self) -> Result<T, Classified> {
        self.map_err(|error| Classified::new(Verdict::Permanent, error))
    }

    fn superseded(self) -> Result<T, Classified> {
        self.map_err(|error| Classified::new(Verdict::Superseded, error))
    }

    fn unknown(self) -> Result<T, Classified> {
        self.map_err(|error| Classified::new(Verdict::Unknown, error))
    }

    fn classify(self, verdict: impl FnOnce(&E) -> Verdict) -> Result<T, Classified> {
        self.map_err(|error| Classified::new(verdict(&error), error))
    }
}

/// An error with a mark. It prints as the error it contains.
pub struct Classified(Mark);

impl Classified {
    fn new(verdict: Verdict, source: impl Into<BoxError>) -> Self {
        Self(Mark { verdict, source: source.into() })
    }
}

impl fmt::Debug for Classified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Classified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Classified {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

/// The mark is a separate link below [`Classified`], because wrappers such as `anyhow::Error` hide the type of their
/// error when they are boxed, and show only its sources.
struct Mark {
    verdict: Verdict,
    source: BoxError,
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classified").field("verdict", &self.verdict).field("source", &self.source).finish()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl StdError for Mark {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    fn fails() -> Result<(), std::io::Error> {
        Err(std::io::Error::other("broken"))
    }

    fn verdict_of<E: Into<Failure>>(result: Result<(), E>) -> Verdict {
        result.map_err(Into::into).unwrap_err().verdict()
    }

    #[test]
    fn a_plain_error_is_transient() {
        assert_eq!(verdict_of(fails()), Verdict::Transient);
        assert_eq!(verdict_of(Err::<(), _>("text")), Verdict::Transient);
        assert_eq!(verdict_of(Err::<(), _>(anyhow::anyhow!("text"))), Verdict::Transient);
    }

    #[cfg(feature = "batch")]
    #[test]
    fn error_text_includes_the_causes_without_repetition() {
        let words = |error: anyhow::Error| Failure::from(error).words();
        assert_eq!(words(anyhow::anyhow!("broken")), "broken");
        assert_eq!(
            words(anyhow::anyhow!("broken").context("the press").context("the shop")),
            "the shop: the press: broken"
        );
        let marked = fails().permanent().context("the shop").unwrap_err();
        assert_eq!(words(marked), "the shop: broken", "a mark has no words");
        let endless = (0..100).fold(anyhow::anyhow!("0"), |error, i| error.context(format!("{}", i % 7 + 1)));
        assert!(words(endless).len() < 50);
    }

    #[test]
    fn a_verdict_survives_question_marks_context_and_boxing() {
        fn anyhow_twice() -> anyhow::Result<()> {
            fn inner() -> anyhow::Result<()> {
                fails().permanent()?;
                Ok(())
            }
            inner().context("while charging")?;
            Ok(())
        }
        fn boxed() -> Result<(), BoxError> {
            fails().unknown()?;
            Ok(())
        }
        fn to_failure() -> Result<(), Failure> {
            anyhow_twice().context("once more")?;
            Ok(())
        }
        assert_eq!(verdict_of(fails().permanent()), Verdict::Permanent);
        assert_eq!(verdict_of(anyhow_twice()), Verdict::Permanent);
        assert_eq!(verdict_of(to_failure()), Verdict::Permanent);
        assert_eq!(verdict_of(boxed()), Verdict::Unknown);
        assert_eq!(verdict_of(boxed().map_err(anyhow::Error::from_boxed).context("wrapped")), Verdict::Unknown);
    }

    #[test]
    fn the_outermost_mark_counts() {
        assert_eq!(verdict_of(fails().permanent().unknown()), Verdict::Unknown);
        assert_eq!(verdict_of(fails().unknown().classify(|_| Verdict::Transient)), Verdict::Transient);
        assert_eq!(verdict_of(fails().permanent().transient()), Verdict::Transient);
    }

    #[test]
    fn a_transient_mark_differs_from_no_mark() {
        let marked = |result: Result<(), BoxError>| Verdict::marked(&*result.unwrap_err());
        assert_eq!(marked(fails().map_err(Into::into)), None);
        assert_eq!(marked(fails().transient().map_err(Into::into)), Some(Verdict::Transient));
        let wrapped = fails().transient().context("while decoding").unwrap_err();
        assert_eq!(marked(Err(wrapped.into())), Some(Verdict::Transient));
    }

    #[test]
    fn a_mark_does_not_change_the_text() {
        assert_eq!(fails().permanent().unwrap_err().to_string(), "broken");
        assert_eq!(Failure::from(fails().unwrap_err()).to_string(), "broken");
    }
}
