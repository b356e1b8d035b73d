//! The context of a record: its handler's view of the record, the claim and the time left.

use std::{
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
    /// Returns the id, attributes and headers of the record.
    pub fn record(&self) -> &RecordInfo {
        &self.record
    }

    /// The claim under which the handler runs; `None` where it runs unprotected. Its key is the same in every run of the
    /// operation, and can serve as the idempotency key of the calls that the handler makes.
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// Whether an earlier run ended without an outcome, so that the operation may already have taken effect.
    pub fn took_over(&self) -> bool {
        self.claim.as_ref().is_some_and(Claim::took_over)
    }

    /// The time at which the handler is cancelled if it is still running.
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
        // An execution environment that was frozen wakes late or early.
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
