//! The context of a record: its handler's view of the record, the claim and the time left.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lambda_runtime::Context;

use super::RecordInfo;
use crate::{
    clock::{Clock, Timestamp},
    idempotency::{claim::Claim, engine::Commit},
};

/// What a handler can know about its record besides the payload. Cheap to clone; it may be sent to other tasks.
#[derive(Clone)]
pub struct RecordContext {
    pub(crate) record: Arc<RecordInfo>,
    pub(crate) lambda: Arc<Context>,
    pub(crate) claim: Option<Claim>,
    pub(crate) stop: Timestamp,
    pub(crate) clock: Arc<dyn Clock>,
    /// Takes the transaction of a handler that has one.
    pub(crate) transaction: Option<TransactionSlot>,
}

impl RecordContext {
    /// What the source says of the record.
    pub fn record(&self) -> &RecordInfo {
        &self.record
    }

    /// The id that the queue gave the message, or the record's place in its stream; of a message in an
    /// [envelope](super::envelope) the id that it has there. The same in every delivery of it. Empty for a RabbitMQ message
    /// whose publisher has set none.
    pub fn message_id(&self) -> &str {
        self.record.message_id()
    }

    /// How often the queue has delivered the message, this delivery included (`ApproximateReceiveCount`); 1 if the source
    /// does not say.
    pub fn receive_count(&self) -> u32 {
        self.record.receive_count()
    }

    /// An attribute that the source has set, such as `SentTimestamp` of a message in SQS.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.record.attribute(name)
    }

    /// An attribute or a header that the sender has put on the record. Of an SQS message those of the types String and
    /// Number.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.record.header(name)
    }

    /// The bytes of an attribute or a header that the sender has put on the record, whether they are a text or not: of the type
    /// Binary in SQS and SNS, not UTF-8 in Kafka and RabbitMQ.
    pub fn header_bytes(&self, name: &str) -> Option<&[u8]> {
        self.record.header_bytes(name)
    }

    /// The record as the event has it, if the service [keeps](super::BatchService::with_raw) it.
    pub fn raw<R: Any>(&self) -> Option<&R> {
        self.record.raw()
    }

    /// The ARN of the queue or the stream; of a self-managed Kafka cluster its bootstrap servers; of a broker its ARN and the
    /// queue; of an event its `source`.
    pub fn source(&self) -> Option<&str> {
        self.record.source()
    }

    /// The claim under which the handler runs; `None` where it runs unprotected. Its key is the same in every run of the
    /// operation, and can serve as the idempotency key of the calls that the handler makes.
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// How often the operation has been granted since its record was made, this run included; `None` where it runs
    /// unprotected.
    pub fn attempt(&self) -> Option<u64> {
        self.claim.as_ref().map(Claim::attempt)
    }

    /// Whether an earlier run ended without an outcome, so that the operation may already have taken effect.
    pub fn took_over(&self) -> bool {
        self.claim.as_ref().is_some_and(Claim::took_over)
    }

    /// When the handler is cancelled if it is still running.
    pub fn stop_point(&self) -> Timestamp {
        self.stop
    }

    /// How much time the handler has until then.
    pub fn time_left(&self) -> Duration {
        self.stop.since(self.clock.now())
    }

    /// Comes to its end when the handler is cancelled. The handler itself need not ask: its future is dropped then. What it
    /// has spawned goes on, unprotected, unless it stops by this.
    ///
    /// ```
    /// # async fn work() {}
    /// # fn handler(context: lambda_once::RecordContext) {
    /// tokio::spawn(async move {
    ///     tokio::select! {
    ///         () = work() => {}
    ///         () = context.cancelled() => {}
    ///     }
    /// });
    /// # }
    /// ```
    pub async fn cancelled(&self) {
        // A sandbox that was frozen wakes late or early.
        while !self.time_left().is_zero() {
            tokio::time::sleep(self.time_left()).await;
        }
    }

    /// The invocation's context.
    pub fn lambda(&self) -> &Context {
        &self.lambda
    }
}

impl fmt::Debug for RecordContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordContext")
            .field("record", &self.record)
            .field("claim", &self.claim)
            .finish_non_exhaustive()
    }
}

/// Where a handler leaves its transaction for what ends its run.
#[derive(Clone, Default)]
pub(crate) struct TransactionSlot(Arc<Mutex<Option<Box<dyn Commit>>>>);

impl TransactionSlot {
    pub(super) fn put(&self, transaction: Box<dyn Commit>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(transaction);
    }

    pub(crate) fn take(&self) -> Option<Box<dyn Commit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
