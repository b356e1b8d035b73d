//! Errors returned to the invoker.

use std::{borrow::Cow, error::Error as StdError, fmt};

use lambda_runtime::Diagnostic;

use crate::{
    error::{BoxError, Error, ErrorStatus},
    idempotency::{
        outcome::OutcomeKind,
        verdict::{Failure, Verdict},
    },
};

/// An error of a handler, of which the layer reads the [`Verdict`] before it hands it on.
///
/// It is there for [`Failure`], and for the boxed errors of `lambda_runtime`, `anyhow` and others, whose chain of sources
/// is searched for a [mark](crate::Classify), and left to the engine's [classifiers](crate::Builder::classify). For an
/// error type of your own one method does the same:
///
/// ```
/// use lambda_once::{Idempotency, MemoryStore, Verdict, invocation::HandlerError};
///
/// #[derive(Debug)]
/// enum ChargeError { Declined, Busy, TimedOut }
///
/// impl std::fmt::Display for ChargeError {
///     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
///         write!(f, "{self:?}")
///     }
/// }
///
/// impl std::error::Error for ChargeError {}
///
/// impl HandlerError for ChargeError {
///     fn as_error(&self) -> &(dyn std::error::Error + 'static) {
///         self
///     }
/// }
///
/// let once = Idempotency::builder(MemoryStore::new()).classify(|error: &ChargeError| match error {
///     ChargeError::Declined => Verdict::Permanent,
///     ChargeError::Busy => Verdict::Transient,
///     ChargeError::TimedOut => Verdict::Unknown,
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "the verdict of `{Self}` is not known",
    note = "implement `lambda_once::invocation::HandlerError` for it, or let the handler return `lambda_runtime::Error`"
)]
pub trait HandlerError: fmt::Display {
    /// The error, of which the chain of sources is searched for a mark.
    fn as_error(&self) -> &(dyn StdError + 'static);

    /// What the error says about the operation that it ended. By default its mark; `None` leaves it to the engine's classifiers.
    fn verdict(&self) -> Option<Verdict> {
        Verdict::marked(self.as_error())
    }
}

/// `Box<dyn Error + Send + Sync>`, `anyhow::Error` and the like.
impl<E> HandlerError for E
where
    E: AsRef<dyn StdError + Send + Sync + 'static> + fmt::Display,
{
    fn as_error(&self) -> &(dyn StdError + 'static) {
        self.as_ref()
    }
}

impl HandlerError for Failure {
    fn as_error(&self) -> &(dyn StdError + 'static) {
        self.source()
    }

    fn verdict(&self) -> Option<Verdict> {
        self.is_judged().then(|| Self::verdict(self))
    }
}

/// Why an invocation has no result.
///
/// It prints as the error that it holds, or as the outcome and its text.
#[non_exhaustive]
pub enum InvocationError<E> {
    /// The handler's own error, as it returned it.
    Handler(E),
    /// The outcome of the operation has no result for this caller.
    #[non_exhaustive]
    NoResult {
        /// The outcome.
        outcome: OutcomeKind,
        /// Whether a retry can end better.
        status: ErrorStatus,
        /// What happened, in words. Of a [replayed failure](OutcomeKind::ReplayedFailure) it contains the text of that failure.
        message: Cow<'static, str>,
    },
    /// An error of the library or of its store. Nothing ran.
    Library(Error),
}

impl<E> InvocationError<E> {
    /// Returns whether a retry of the invocation can end better; of a handler's own error `None`.
    pub fn is_retryable(&self) -> Option<bool> {
        match self {
            Self::Handler(_) => None,
            Self::NoResult { status, .. } => Some(*status != ErrorStatus::Permanent),
            Self::Library(error) => Some(error.is_retryable()),
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for InvocationError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(error) => error.fmt(f),
            Self::NoResult { outcome, status, message } => {
                let mut f = f.debug_struct("NoResult");
                f.field("outcome", outcome).field("status", status).field("message", message).finish()
            }
            Self::Library(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Display> fmt::Display for InvocationError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(error) => error.fmt(f),
            Self::NoResult { outcome, message, .. } => write!(f, "{}: {message}", outcome.as_str()),
            Self::Library(error) => error.fmt(f),
        }
    }
}

impl<E: StdError> StdError for InvocationError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Handler(error) => error.source(),
            Self::NoResult { .. } => None,
            Self::Library(error) => error.source(),
        }
    }
}

impl<E> From<Error> for InvocationError<E> {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl<E: Into<BoxError>> InvocationError<E> {
    /// Returns the error that it holds; of an operation without a result its text.
    pub fn into_inner(self) -> BoxError {
        match self {
            Self::Handler(error) => error.into(),
            Self::NoResult { outcome, message, .. } => format!("{}: {message}", outcome.as_str()).into(),
            Self::Library(error) => error.into(),
        }
    }
}

impl<E: Into<Diagnostic>> From<InvocationError<E>> for Diagnostic {
    /// A handler's error is reported as without the layer. Of the others, `errorType` is `lambda_once.` and the name of the outcome,
    /// or of the [kind](Error::kind) of the library's error.
    fn from(error: InvocationError<E>) -> Self {
        match error {
            InvocationError::Handler(error) => error.into(),
            InvocationError::NoResult { outcome, message, .. } => {
                let error_type = format!("lambda_once.{}", outcome.as_str());
                Self { error_type, error_message: message.into_owned() }
            }
            InvocationError::Library(error) => error.into(),
        }
    }
}

impl From<Failure> for Diagnostic {
    /// `errorType` is `lambda_once.` and the verdict, so that a caller can tell which errors to retry.
    fn from(failure: Failure) -> Self {
        let verdict = match failure.verdict() {
            Verdict::Transient => "transient_failure",
            Verdict::Permanent => "permanent_failure",
            Verdict::Superseded => "superseded",
            Verdict::Unknown => "unknown_failure",
        };
        Self { error_type: format!("lambda_once.{verdict}"), error_message: failure.to_string() }
    }
}
