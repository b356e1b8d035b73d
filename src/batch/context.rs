//! The handler's view of its record, its claim and the time left.

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

/// The metadata, the claim and the time left of a record, for its handler. Cheap to clone, and can be sent to other
/// tasks.
#[derive(Clone)]
pub struct RecordContext {
    pub(crate) record: Arc<RecordInfo>,
    pub(crate) lambda: Arc<Context>,
    pub(crate) claim: Option<Claim>,
    pub(crate) stop: Timestamp,
    pub(crate) clock: Arc<dyn Clock>,
    /// Receives the transaction of a transactional handler.
    pub(crate) transaction: Option<TransactionSlot>,
}

impl RecordContext {
    /// Returns the id, attributes and headers of the record.
    pub fn record(&self) -> &RecordInfo {
        &self.record
    }

    /// Returns the claim under which the handler runs, or `None` if it runs unprotected. Its key is the same in every
    /// run of the operation, and can serve as the idempotency key of the calls that the handler makes.
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// Returns whether an earlier run ended without an outcome, so that the operation may already have taken effect.
    pub fn took_over(&self) -> bool {
        self.claim.as_ref().is_some_and(Claim::took_over)
    }

    /// Returns the time at which the handler is cancelled if it is still running.
    pub fn handler_deadline(&self) -> Timestamp {
        self.stop
    }

    /// Returns the time left until the [handler deadline](Self::handler_deadline).
    pub fn time_left(&self) -> Duration {
        self.stop.since(self.clock.now())
    }

    /// Completes when the handler is cancelled. The handler itself need not wait for this, because its future is
    /// dropped. Tasks that it has spawned continue unprotected unless they stop here.
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
        // After a freeze, an execution environment may wake late or early.
        while !self.time_left().is_zero() {
            tokio::time::sleep(self.time_left()).await;
        }
    }

    /// Returns the Lambda context of the invocation.
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

/// A slot that passes a handler's transaction to the code that ends its run.
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
