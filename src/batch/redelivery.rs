//! When what failed is delivered again.

use std::{fmt::Debug, sync::Arc, time::Duration};

use super::RecordReport;
use crate::{
    clock::{Clock, Timestamp},
    future::BoxFuture,
    idempotency::guard::{Unfinished, bounded},
};

/// The time limit of a call. The response, and with it the records that are done, waits for it.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Says when the records that failed are delivered again, before Lambda gets its answer. Set by
/// [`BatchService::redelivery`](super::BatchService::redelivery); of SQS `VisibilityBackoff` is one.
pub trait Redelivery: Debug + Send + Sync + 'static {
    /// Is called once for a batch in which records failed, with these, in the order of the event, and the time.
    ///
    /// It changes no outcome, whatever it does. It is dropped after 10 s, or when the invocation's time is up, and not called after
    /// that: Lambda's response waits for it.
    fn delay<'a>(&'a self, failed: &'a [RecordReport], now: Timestamp) -> BoxFuture<'a, ()>;
}

impl<R: Redelivery + ?Sized> Redelivery for Arc<R> {
    fn delay<'a>(&'a self, failed: &'a [RecordReport], now: Timestamp) -> BoxFuture<'a, ()> {
        (**self).delay(failed, now)
    }
}

/// Calls it, within the time there is.
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
    // The call is made inside, so that a panic in making it is caught too.
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
