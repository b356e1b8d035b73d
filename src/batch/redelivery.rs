//! Sets the time of redelivery of failed records.

use std::{fmt::Debug, sync::Arc, time::Duration};

use super::RecordReport;
use crate::{
    clock::{Clock, Timestamp},
    future::BoxFuture,
    idempotency::guard::{Unfinished, bounded},
};

/// The time limit of a call. The response, which acknowledges the finished records, waits for it.
const MAX_TIME: Duration = Duration::from_secs(10);

/// A policy that sets the time of redelivery of failed records, before Lambda gets its response. Set by
/// [`BatchService::redelivery`](super::BatchService::redelivery). `VisibilityBackoff` implements it for SQS.
pub trait Redelivery: Debug + Send + Sync + 'static {
    /// Called once for a batch with failed records, with their reports in the order of the event and the current time.
    ///
    /// It does not change any outcome. The future is dropped after 10 s or when the invocation's time is up, because
    /// Lambda's response waits for it.
    fn delay<'a>(&'a self, failed: &'a [RecordReport], now: Timestamp) -> BoxFuture<'a, ()>;
}

impl<R: Redelivery + ?Sized> Redelivery for Arc<R> {
    fn delay<'a>(&'a self, failed: &'a [RecordReport], now: Timestamp) -> BoxFuture<'a, ()> {
        (**self).delay(failed, now)
    }
}

/// Calls `redelivery` within the time limit.
pub(super) async fn delay(
    redelivery: &Arc<dyn Redelivery>,
    failed: &[RecordReport],
    clock: &dyn Clock,
    until: Timestamp,
) {
    if failed.is_empty() {
        return;
    }
    let now = clock.now();
    // The call is made inside, so that a panic in making it is also caught.
    match bounded(async { redelivery.delay(failed, now).await }, until.since(now).min(MAX_TIME)).await {
        Ok(()) => {}
        Err(Unfinished::Panicked(_)) => {
            tracing::error!(target: "lambda_once", "setting the time of redelivery panicked");
        }
        Err(Unfinished::Cancelled | Unfinished::NotStarted) => {
            tracing::warn!(target: "lambda_once", "the time of redelivery could not be set within 10 s, or within the time left");
        }
    }
}
