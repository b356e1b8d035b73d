//! Dead-letters records that no retry can help.

use std::{fmt::Debug, sync::Arc};

use super::RecordInfo;
use crate::{
    error::{BoxError, ErrorKind},
    future::BoxFuture,
    idempotency::outcome::OutcomeKind,
    record::KeyHash,
};

/// The destination of records that no retry can help, such as a dead-letter queue, before they are acknowledged.
///
/// Set by [`BatchService::dead_letters`](super::BatchService::dead_letters). Several calls may run concurrently.
///
/// ```
/// use lambda_once::{BoxError, BoxFuture, batch::{DeadLetter, DeadLetters}};
///
/// /// Writes dead letters to the log.
/// #[derive(Debug)]
/// struct Log;
///
/// impl DeadLetters for Log {
///     fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
///         Box::pin(async move {
///             println!("{} {}: {:?}", letter.record.id(), letter.reason, letter.error);
///             Ok(())
///         })
///     }
/// }
/// ```
#[doc(alias("DLQ", "dead-letter queue"))]
pub trait DeadLetters: Debug + Send + Sync + 'static {
    /// Dead-letters a record, which is acknowledged if this succeeds. If it fails, or takes until half of the reserve
    /// is used up, the record is reported as failed. It is not lost, but may be dead-lettered twice. This is not called
    /// if there is no time left.
    ///
    /// It is called again for a record that is acknowledged and still delivered again. That happens each time that
    ///
    /// * another record of the event fails, if the response is success or an error (Amazon MQ, and any source with
    ///   [`all_or_error`](super::BatchService::all_or_error)),
    /// * another message of its [envelope](super::envelope) fails, or
    /// * an earlier record of its Kinesis or DynamoDB stream fails, if keys run concurrently (`StreamOrder::Key`,
    ///   `StreamOrder::None`).
    ///
    /// # Errors
    ///
    /// If the record could not be dead-lettered. The text is logged.
    fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>>;
}

impl<L: DeadLetters + ?Sized> DeadLetters for Arc<L> {
    fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
        (**self).send(letter)
    }
}

/// A record to dead-letter, because no retry can help it or none will be made.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct DeadLetter<'a> {
    /// The record's metadata from its source.
    pub record: &'a RecordInfo,
    /// The record's body.
    pub body: &'a [u8],
    /// The record's key as stored, if one was found.
    pub key: Option<KeyHash>,
    /// The outcome of its operation, or the error that prevented one.
    pub outcome: Result<OutcomeKind, ErrorKind>,
    /// The name of the outcome or error, such as `failed` or `invalid_payload`.
    pub reason: &'static str,
    /// The error's text. A handler's error is given in the handler's own words.
    pub error: Option<&'a str>,
}

/// Shows no body.
impl Debug for DeadLetter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetter")
            .field("record", &self.record)
            .field("key", &self.key)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}
