//! Errors with their kind, their operation, and the use of a redelivery.

use std::{borrow::Cow, error::Error as StdError, fmt, iter};

/// Any error that can cross threads.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration is contradictory or incomplete. Found before anything is claimed.
    Config,
    /// The key, or a part of it, is missing.
    KeyMissing,
    /// The [caller](crate::http::Caller) to whom an HTTP request's key belongs is not known.
    #[cfg(feature = "http")]
    Caller,
    /// The key or the payload cannot be read: not JSON where JSON is required, nested too deeply, or a duplicate
    /// member.
    Payload,
    /// The entity or the sequence of an [ordered](crate::Operation::ordered_by) operation is missing, or the sequence is not a
    /// whole number of 1 to 64 digits.
    Order,
    /// The decoder of a record, or the function of its key, failed temporarily or panicked. The record did not run.
    Decode,
    /// The event does not have the form of its source. Nothing of it was claimed.
    Event,
    /// Every record of a batch failed, and [`FullBatchFailure`](crate::batch::FullBatchFailure) makes that an error of
    /// the invocation. Or any record failed, and Lambda does not support partial responses for its source.
    Batch,
    /// The store rejected the request because of its rate limits.
    Throttled,
    /// The store did not respond in time.
    Timeout,
    /// The store could not be reached, or had an internal error.
    Unavailable,
    /// The store denied access because of the credentials or permissions.
    AccessDenied,
    /// The table is missing, or does not have the expected layout.
    Table,
    /// The store did not accept the request.
    Request,
    /// A transaction was not committed because a condition or a constraint rejected the handler's writes. If it is also
    /// [`Ambiguous`](ErrorStatus::Ambiguous), the handler has ended the transaction itself, or may have, and its writes
    /// may be committed.
    Transaction,
    /// A record was written by a newer version, or contains an unknown status.
    Format,
    /// `before_replay` of the HTTP layer refused a replay, panicked or took too long.
    #[cfg(feature = "http")]
    Replay,
    /// A stored result no longer decodes into the requested type.
    StoredResult,
}

impl ErrorKind {
    /// Returns whether the store rejected the request, failed or did not respond.
    pub(crate) const fn is_of_store(self) -> bool {
        matches!(
            self,
            Self::Throttled
                | Self::Timeout
                | Self::Unavailable
                | Self::AccessDenied
                | Self::Table
                | Self::Request
                | Self::Format
        )
    }

    /// Returns a stable name in snake case, for logs and for the `errorType` that Lambda reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::KeyMissing => "key_missing",
            #[cfg(feature = "http")]
            Self::Caller => "caller_unknown",
            Self::Payload => "invalid_payload",
            Self::Order => "invalid_order",
            Self::Decode => "decode",
            Self::Event => "event",
            Self::Batch => "batch",
            Self::Throttled => "throttled",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::AccessDenied => "access_denied",
            Self::Table => "table",
            Self::Request => "request",
            Self::Transaction => "transaction",
            Self::Format => "format",
            #[cfg(feature = "http")]
            Self::Replay => "replay_refused",
            Self::StoredResult => "stored_result",
        }
    }
}

/// The effect of another delivery of the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorStatus {
    /// Every delivery fails alike, until code or data change.
    Permanent,
    /// The call failed, and may succeed later. Most likely it was not applied. Only [`Ambiguous`](Self::Ambiguous)
    /// leaves that open for the call itself, but a client's own retries may hide an earlier try that was.
    Temporary,
    /// The call may or may not have been applied. A later delivery finds out.
    Ambiguous,
}

/// The maximum number of causes that are printed, because the chain comes from user code and need not end.
const MAX_CAUSES: usize = 16;

/// An error of this library or of its store.
///
/// A handler's own errors have the type [`Failure`](crate::Failure).
///
/// `Display` gives the operation, the kind and the message. `Debug` gives the same text and its causes, on one line, so
/// that a `main` that returns the error prints all details:
///
/// ```text
/// Error: connect (unavailable): no connection to PostgreSQL at db.example.com:5432: Connection refused (os error 111)
/// ```
pub struct Error {
    kind: ErrorKind,
    status: ErrorStatus,
    operation: &'static str,
    message: Cow<'static, str>,
    source: Option<BoxError>,
}

impl Error {
    /// Creates an error of `kind` and `status` in `operation`, such as `"claim"`.
    ///
    /// The message must contain neither payloads nor plain keys.
    pub fn new(
        kind: ErrorKind,
        status: ErrorStatus,
        operation: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { kind, status, operation, message: message.into(), source: None }
    }

    /// Adds the error that caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the kind of the error.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether the operation is decided, can be tried again, or may have been applied.
    pub const fn status(&self) -> ErrorStatus {
        self.status
    }

    /// Returns the message, without the operation and the kind.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether another delivery can help.
    pub const fn is_retryable(&self) -> bool {
        !matches!(self.status, ErrorStatus::Permanent)
    }

    /// Returns the failed operation, such as `"claim"` or `"complete"`.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns whether the same call may succeed if it is repeated in this invocation.
    pub(crate) const fn retry_helps(&self) -> bool {
        matches!(self.kind, ErrorKind::Throttled | ErrorKind::Timeout | ErrorKind::Unavailable)
    }

    /// Returns whether a settle is retried after it while there is time. A login that is rejected for a while, as
    /// during a rotation of credentials, must not cost a recorded outcome. Errors that only a deployment or an operator
    /// can fix do not pass.
    pub(crate) const fn may_pass(&self) -> bool {
        self.retry_helps()
            || self.is_retryable() && !matches!(self.kind, ErrorKind::Format | ErrorKind::Table | ErrorKind::Config)
    }

    /// Returns the same error for another request of the same call.
    pub(crate) fn without_source(&self) -> Self {
        Self { message: self.message.clone(), source: None, ..*self }
    }

    /// Returns the same error for each of `count` requests. The last one has the source.
    pub(crate) fn for_each(self, count: usize) -> impl Iterator<Item = Self> {
        let copies: Vec<Self> = (1..count).map(|_| self.without_source()).collect();
        copies.into_iter().chain([self]).take(count)
    }

    pub(crate) fn config(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Config, ErrorStatus::Permanent, "configure", message)
    }

    pub(crate) fn key_missing(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::KeyMissing, ErrorStatus::Permanent, "key", message)
    }

    pub(crate) fn payload(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Payload, ErrorStatus::Permanent, "key", message)
    }

    #[cfg(any(feature = "batch", feature = "invocation"))]
    pub(crate) fn undecodable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Payload, ErrorStatus::Permanent, "decode", message)
    }

    #[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
    pub(crate) fn not_decoded(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Decode, ErrorStatus::Temporary, "decode", message)
    }
}

/// Returns the innermost source of an error, as text. It distinguishes a refused connection from missing credentials.
#[cfg(any(feature = "dynamodb", feature = "postgres", feature = "redis"))]
pub(crate) fn root_cause(error: &(dyn StdError + 'static)) -> String {
    iter::successors(Some(error), |&error| error.source()).last().unwrap_or(error).to_string()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.operation, self.kind.as_str(), self.message)
    }
}

impl fmt::Debug for Error {
    /// Writes the error's text and each of its causes once, from the outermost to the first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.to_string();
        for cause in iter::successors(self.source(), |&error| error.source()).take(MAX_CAUSES) {
            let cause = cause.to_string().replace('\n', "; ");
            // The message may quote a cause, and a cause its own cause. Some begin with a severity.
            let words = cause.split_once(": ").map_or(&*cause, |(_, words)| words);
            if !text.contains(words) {
                text.push_str(": ");
                text.push_str(&cause);
            }
        }
        f.write_str(&text)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(any(feature = "batch", feature = "http-lambda", feature = "invocation"))]
impl From<Error> for lambda_runtime::Diagnostic {
    /// Sets `errorType` to `lambda_once.` and the kind, for searches and alarms.
    fn from(error: Error) -> Self {
        Self { error_type: format!("lambda_once.{}", error.kind.as_str()), error_message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_operation_kind_and_source() {
        let error = Error::new(ErrorKind::Throttled, ErrorStatus::Temporary, "claim", "the table's rate is exceeded")
            .with_source("slow down");
        assert_eq!(error.to_string(), "claim (throttled): the table's rate is exceeded");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("slow down"));
        assert!(error.is_retryable());
        assert!(error.retry_helps());
        assert!(!Error::config("x").is_retryable());
    }

    #[test]
    fn debug_is_one_line_with_each_cause_once() {
        let refused = || std::io::Error::other("Connection refused");
        let error = Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, "warm", "no connection")
            .with_source(Error::config("the port is closed").with_source(Error::config("x").with_source(refused())));
        let expected = "warm (unavailable): no connection: configure (config): the port is closed: configure (config): x: \
                        Connection refused";
        assert_eq!(format!("{error:?}"), expected);
        assert_eq!(format!("{error:#?}"), expected);
        let answered =
            Error::config("PostgreSQL returned 3D000: no database").with_source("FATAL: no database\nHINT: x");
        assert_eq!(
            format!("{answered:?}"),
            "configure (config): PostgreSQL returned 3D000: no database: FATAL: no database; HINT: x"
        );
        let fatal = Error::config("PostgreSQL returned 3D000: no database").with_source("FATAL: no database");
        assert_eq!(format!("{fatal:?}"), "configure (config): PostgreSQL returned 3D000: no database");
        let quoted = Error::config("no connection: Connection refused").with_source(refused());
        assert_eq!(format!("{quoted:?}"), "configure (config): no connection: Connection refused");
    }

    #[test]
    fn debug_ends_even_if_the_causes_do_not() {
        #[derive(Debug, Default)]
        struct Endless(std::sync::atomic::AtomicUsize);

        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "<{}>", self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
            }
        }

        impl StdError for Endless {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                Some(self)
            }
        }

        let text = format!("{:?}", Error::config("x").with_source(Endless::default()));
        assert_eq!(text.matches('<').count(), MAX_CAUSES, "{text}");
    }

    // Tests S4.
    #[test]
    fn a_settle_is_repeated_unless_only_an_operator_can_help() {
        use ErrorKind::{AccessDenied, Config, Format, Request, Table, Throttled, Timeout, Unavailable};
        use ErrorStatus::{Ambiguous, Permanent, Temporary};
        let may_pass = |kind, status| Error::new(kind, status, "complete", "").may_pass();
        for kind in [Throttled, Timeout, Unavailable, AccessDenied, Request] {
            assert!(may_pass(kind, Temporary) && may_pass(kind, Ambiguous), "{kind:?}");
        }
        for kind in [Format, Table, Config] {
            assert!(!may_pass(kind, Temporary) && !may_pass(kind, Ambiguous), "{kind:?}");
        }
        assert!(!may_pass(AccessDenied, Permanent) && !may_pass(Request, Permanent));
    }
}
