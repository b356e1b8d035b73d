//! Dead-letters records that no retry can help, with what went wrong.

use std::{fmt::Debug, sync::Arc};

use super::RecordInfo;
use crate::{
    error::{BoxError, ErrorKind},
    future::BoxFuture,
    idempotency::outcome::OutcomeKind,
    record::KeyHash,
};

/// The destination of records that no retry can help, before they are acknowledged: a dead-letter queue, for instance.
///
/// Set by [`BatchService::dead_letters`](super::BatchService::dead_letters). It may be called for several records at once.
///
/// ```
/// use lambda_once::{BoxError, BoxFuture, batch::{DeadLetter, DeadLetters}};
///
/// /// Writes them to the log.
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
pub trait DeadLetters: Debug + Send + Sync + 'static {
    /// Dead-letters a record, which is acknowledged if this succeeds. If it fails, or takes until half of the reserve is used
    /// up, the record is reported as failed: it is not lost, and may be dead-lettered twice. Without time left it is not called.
    ///
    /// It is called again for a record that is acknowledged and delivered again all the same: one of Amazon MQ each time that
    /// another message of the event fails, and one of a Kinesis or DynamoDB stream behind the checkpoint, where keys run side by
    /// side (`StreamOrder::Key`, `StreamOrder::None`).
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

/// A record to dead-letter: no retry can help it, or none will be made.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct DeadLetter<'a> {
    /// What its source says of it.
    pub record: &'a RecordInfo,
    /// Its body.
    pub body: &'a [u8],
    /// Its key, as the store has it, if one was found.
    pub key: Option<KeyHash>,
    /// The outcome of its operation, or the error that kept it from being decided.
    pub outcome: Result<OutcomeKind, ErrorKind>,
    /// The name of that, such as `failed` or `invalid_payload`.
    pub reason: &'static str,
    /// What went wrong, in words; those of a handler's error are its own.
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
