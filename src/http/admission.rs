//! Lets requests begin: permits of the layer, and the readiness of the inner service.

use std::{future::poll_fn, pin::pin, slice, sync::Arc, task::Poll, time::Duration};

use http::request::Parts;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    exchange::{Entry, Inner},
    settings::LayerSettings,
};
use crate::{
    idempotency::engine::{Candidate, Polled},
    store::{Refusal, ResultData},
};

/// The longest read of a record before a request is refused for want of a permit.
const MAX_READ_TIME: Duration = Duration::from_secs(1);

/// The pause between two reads of a record while its request waits for a permit.
const READ_EVERY: Duration = Duration::from_millis(500);

/// Of a handler, until it has ended; `None` if any number may run.
pub(super) type Permit = Option<OwnedSemaphorePermit>;

/// Why a request does not claim its operation now.
pub(super) enum NotAdmitted<E> {
    /// Its handler would have to wait, and the record shows that it would not run.
    Refused(Refusal),
    /// As many handlers are running as may.
    Overloaded,
    /// The inner service will not be ready.
    Failed(E),
}

impl LayerSettings {
    /// Waits until the handler of a request may begin, and reserves its place: a permit of the layer, and the readiness of
    /// `inner`. Nothing is held for a request whose body is still arriving, nor for a replay: where there is no place at once,
    /// the record is read first.
    ///
    /// A request without a permit is refused, unless it has waited for its key before and still may wait.
    pub(super) async fn admit<S: Inner<B>, B>(
        &self,
        inner: &mut S,
        parts: &Parts,
        entry: &Entry,
        has_waited: bool,
    ) -> Result<Permit, NotAdmitted<S::Error>> {
        let permit = match &self.permits {
            None => None,
            Some(permits) => Some(match Arc::clone(permits).try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => self.wait_for_permit(Arc::clone(permits), entry, has_waited).await?,
            }),
        };
        let ready = match poll_fn(|context| Poll::Ready(inner.poll_ready(context))).await {
            Poll::Ready(ready) => ready,
            Poll::Pending => {
                if let Some(refusal) = self.refusal_on_record(&entry.candidate).await {
                    return Err(NotAdmitted::Refused(refusal));
                }
                let readiness = poll_fn(|context| inner.poll_ready(context));
                if entry.is_in_lambda {
                    let left = self.window(parts).stop.since(self.engine.clock.now());
                    timeout(left, readiness).await.map_err(|_| self.overloaded("the service was not ready in time"))?
                } else {
                    readiness.await
                }
            }
        };
        ready.map(|()| permit).map_err(NotAdmitted::Failed)
    }

    async fn wait_for_permit<E>(
        &self,
        permits: Arc<Semaphore>,
        entry: &Entry,
        has_waited: bool,
    ) -> Result<OwnedSemaphorePermit, NotAdmitted<E>> {
        let mut permit = pin!(permits.acquire_owned());
        loop {
            if let Some(refusal) = self.refusal_on_record(&entry.candidate).await {
                return Err(NotAdmitted::Refused(refusal));
            }
            let left = entry.wait_until.since(self.engine.clock.now());
            if !has_waited || left.is_zero() {
                return Err(self.overloaded("as many handlers are running as may"));
            }
            match timeout(left.min(READ_EVERY), &mut permit).await {
                Ok(Ok(permit)) => return Ok(permit),
                Ok(Err(_)) => unreachable!("the semaphore is never closed"),
                Err(_) => {}
            }
        }
    }

    /// Returns why a claim would be refused, by what the record shows; `None` if it may be granted, or if the store does not say.
    async fn refusal_on_record(&self, candidate: &Candidate) -> Option<Refusal> {
        let ends = self.engine.clock.now().after(MAX_READ_TIME);
        match self.engine.poll(slice::from_ref(candidate), ends, ResultData::Include).await.pop() {
            Some(Ok(Polled::Refused(refusal))) => Some(refusal),
            _ => None,
        }
    }

    fn overloaded<E>(&self, why: &'static str) -> NotAdmitted<E> {
        self.warn_overloaded(why);
        NotAdmitted::Overloaded
    }

    pub(super) fn warn_overloaded(&self, why: &'static str) {
        tracing::warn!(target: "lambda_once", operation = &*self.operation, why, "a request is refused");
    }
}
