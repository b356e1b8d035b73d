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

/// A handler's error, from which the layer reads the [`Verdict`] before it returns the error.
///
/// It is implemented for [`Failure`], `lambda_runtime::Error` and, with the feature `anyhow`, `anyhow::Error`. For the
/// latter two, the chain of sources is searched for a [mark](crate::Classify), and the engine's
/// [classifiers](crate::Builder::classify) decide if there is none. For a custom error type, use
/// [`handler_error!`](crate::handler_error):
///
/// ```
/// use lambda_once::{Idempotency, MemoryStore, Verdict};
///
/// #[derive(Debug, thiserror::Error)]
/// enum ChargeError {
///     #[error("the card was declined")]
///     Declined,
///     #[error("the bank is busy")]
///     Busy,
///     #[error("the bank did not answer")]
///     TimedOut,
/// }
///
/// lambda_once::handler_error!(ChargeError);
///
/// let once = Idempotency::builder(MemoryStore::new()).classify(|error: &ChargeError| match error {
///     ChargeError::Declined => Verdict::Permanent,
///     ChargeError::Busy => Verdict::Transient,
///     ChargeError::TimedOut => Verdict::Unknown,
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error from which an invocation layer reads a verdict",
    label = "not a `HandlerError`",
    note = "for a type that implements `std::error::Error`, write `lambda_once::handler_error!({Self});`",
    note = "or return `lambda_once::Failure`, `lambda_runtime::Error` or, with the feature `anyhow`, `anyhow::Error`"
)]
pub trait HandlerError: fmt::Display {
    /// Returns the error whose chain of sources is searched for a mark.
    fn as_error(&self) -> &(dyn StdError + 'static);

    /// Returns the verdict of the error on the operation, by default its mark. With `None` the engine's classifiers
    /// decide.
    fn verdict(&self) -> Option<Verdict> {
        Verdict::marked(self.as_error())
    }
}

/// Implements [`HandlerError`](crate::invocation::HandlerError) for error types, and their conversion into the
/// `lambda_runtime::Diagnostic` that `lambda_runtime::run` requires. The `errorType` is the type's name, as in the
/// runtime's own conversions.
///
/// For a different `errorType`, implement both traits manually.
///
/// # Examples
///
/// ```
/// # #[derive(Debug, thiserror::Error)] #[error("declined")] struct Declined;
/// # #[derive(Debug, thiserror::Error)] #[error("busy")] struct Busy;
/// lambda_once::handler_error!(Declined, Busy);
///
/// let diagnostic = lambda_runtime::Diagnostic::from(Busy);
/// assert!(diagnostic.error_type.ends_with("::Busy"));
/// assert_eq!(diagnostic.error_message, "busy");
/// ```
#[macro_export]
macro_rules! handler_error {
    ($($error:ty),+ $(,)?) => {$(
        impl $crate::invocation::HandlerError for $error {
            fn as_error(&self) -> &(dyn ::std::error::Error + 'static) {
                self
            }
        }

        impl ::std::convert::From<$error> for $crate::invocation::Diagnostic {
            fn from(error: $error) -> Self {
                Self {
                    error_type: ::std::any::type_name::<$error>().to_owned(),
                    error_message: ::std::string::ToString::to_string(&error),
                }
            }
        }
    )+};
}

// There is no blanket implementation for `AsRef<dyn Error + Send + Sync>`, because the compiler would name that trait
// in errors about other types.
impl HandlerError for BoxError {
    fn as_error(&self) -> &(dyn StdError + 'static) {
        &**self
    }
}

#[cfg(feature = "anyhow")]
impl HandlerError for anyhow::Error {
    fn as_error(&self) -> &(dyn StdError + 'static) {
        &**self
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

/// The reason why an invocation has no result.
///
/// It is displayed as the error that it contains, or as the outcome and its text.
#[non_exhaustive]
pub enum InvocationError<E> {
    /// The handler's error, unchanged.
    Handler(E),
    /// The outcome of the operation has no result for this caller.
    #[non_exhaustive]
    NoResult {
        /// The outcome.
        outcome: OutcomeKind,
        /// Whether a retry may help.
        status: ErrorStatus,
        /// A description of the failure, which includes the text of a [replayed failure](OutcomeKind::ReplayedFailure).
        message: Cow<'static, str>,
    },
    /// An error of the library or of its store. Nothing ran, unless its kind is
    /// [`StoredResult`](crate::ErrorKind::StoredResult): the operation is done, and this invocation may also have run
    /// it.
    Library(Error),
}

impl<E> InvocationError<E> {
    /// Returns whether a retry of the invocation may help, or `None` for a handler's error.
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
    /// Returns the error that it contains, or the text of an outcome without a result.
    pub fn into_inner(self) -> BoxError {
        match self {
            Self::Handler(error) => error.into(),
            Self::NoResult { outcome, message, .. } => format!("{}: {message}", outcome.as_str()).into(),
            Self::Library(error) => error.into(),
        }
    }
}

impl<E: Into<Diagnostic>> From<InvocationError<E>> for Diagnostic {
    /// Reports a handler's error as without the layer. For others, `errorType` is `lambda_once.` followed by the name
    /// of the outcome, or of the [kind](Error::kind) of the library's error.
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
    /// Sets `errorType` to `lambda_once.` followed by the verdict, so that callers can select the errors to retry.
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
