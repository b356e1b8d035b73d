//! Admits requests to the handler, by the permits of the layer and the readiness of the inner service.

use std::{
    future::poll_fn,
    mem,
    pin::pin,
    slice,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::{Either, select};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    exchange::{Entry, Inner},
    settings::LayerSettings,
};
use crate::{
    clock::Timestamp,
    idempotency::{engine::Polled, window::MIN_CALL_TIME},
    store::{Refusal, ResultData},
};

/// The longest read of a record while its request waits for a place.
const MAX_READ_TIME: Duration = Duration::from_secs(1);

/// The pause between two reads of a record while its request waits for a place.
const READ_EVERY: Duration = Duration::from_millis(500);

/// The permit of a handler, held until the handler has ended. `None` if there is no limit.
pub(super) type Permit = Option<OwnedSemaphorePermit>;

/// The reason that a request does not claim its operation now.
pub(super) enum NotAdmitted<E> {
    /// Its handler would have to wait, and the record shows that it would not run.
    Refused(Refusal),
    /// There is no place for its handler, for this reason.
    Overloaded(&'static str),
    /// The inner service will not be ready.
    Failed(E),
}

/// The limit of [`max_in_flight`](super::IdempotencyKeyLayer::max_in_flight).
#[derive(Clone)]
pub(super) struct Permits {
    /// Permits to claim an operation and run its handler.
    handlers: Arc<Semaphore>,
    /// Permits to read a record without a permit to run, as many as handlers may run.
    reads: Arc<Semaphore>,
}

impl Permits {
    pub(super) fn of(handlers: usize) -> Self {
        let semaphore = || Arc::new(Semaphore::new(handlers.min(Semaphore::MAX_PERMITS)));
        Self { handlers: semaphore(), reads: semaphore() }
    }
}

/// The limit of a request's wait for a place.
#[derive(Clone, Copy)]
enum Patience {
    /// Waits for one read of the record.
    OneRead,
    /// Waits until this time, and reads the record repeatedly.
    Until(Timestamp),
    /// Waits until the client disconnects, and reads the record repeatedly.
    Client,
}

impl LayerSettings {
    /// Waits until the handler of a request may begin, and reserves its place: a permit of the layer, and the readiness of
    /// `inner`. Nothing is held for a request whose body is still arriving. If no place is free immediately, the record is
    /// read, so that a replay does not wait for one.
    ///
    /// A request without a permit is refused, unless it has waited for its key before and still may wait. In Lambda it waits for
    /// readiness until its handler would have too little time.
    pub(super) async fn admit<S: Inner<B>, B>(
        &self,
        inner: &mut S,
        entry: &Entry,
        has_waited: bool,
    ) -> Result<Permit, NotAdmitted<S::Error>> {
        let mut wait = PlaceWait { settings: self, entry, is_due: true };
        let permit = match &self.permits {
            None => None,
            Some(permits) => Some(match Arc::clone(&permits.handlers).try_acquire_owned() {
                Ok(permit) => permit,
                Err(_) => {
                    let patience = if has_waited { Patience::Until(entry.wait_until) } else { Patience::OneRead };
                    let permit = Arc::clone(&permits.handlers).acquire_owned();
                    let why = "as many requests as may are running or being claimed";
                    let Ok(permit) = wait.wait_for(permit, patience, why).await? else {
                        unreachable!("the semaphore is never closed")
                    };
                    permit
                }
            }),
        };
        let mut is_ready = |context: &mut Context<'_>| inner.poll_ready(context);
        let ready = match poll_fn(|context| Poll::Ready(is_ready(context))).await {
            Poll::Ready(ready) => ready,
            Poll::Pending => {
                let patience = entry.begin_by.map_or(Patience::Client, Patience::Until);
                wait.wait_for(poll_fn(is_ready), patience, "the service was not ready in time").await?
            }
        };
        ready.map(|()| permit).map_err(NotAdmitted::Failed)
    }
}

/// The wait of a request for a permit, then for readiness.
struct PlaceWait<'a> {
    settings: &'a LayerSettings,
    entry: &'a Entry,
    /// Whether to read the record now.
    is_due: bool,
}

impl PlaceWait<'_> {
    /// Waits for a place. Meanwhile it reads the record, and gives up if the record shows that the handler would not run. A
    /// place that becomes free during a read is taken.
    async fn wait_for<T, E>(
        &mut self,
        place: impl Future<Output = T>,
        patience: Patience,
        why: &'static str,
    ) -> Result<T, NotAdmitted<E>> {
        let mut place = pin!(place);
        let limit = if let Patience::Until(limit) = patience { Some(limit) } else { None };
        loop {
            if mem::take(&mut self.is_due) {
                // The place is polled first.
                match select(place.as_mut(), pin!(self.refusal_on_record(limit))).await {
                    Either::Left((place, _)) => return Ok(place),
                    Either::Right((Some(refusal), _)) => return Err(NotAdmitted::Refused(refusal)),
                    Either::Right((None, _)) => {}
                }
            }
            let left = limit.map_or(READ_EVERY, |limit| limit.since(self.settings.engine.clock.now()));
            if left.is_zero() || matches!(patience, Patience::OneRead) {
                return Err(NotAdmitted::Overloaded(why));
            }
            if let Ok(place) = timeout(left.min(READ_EVERY), &mut place).await {
                return Ok(place);
            }
            self.is_due = true;
        }
    }

    /// Returns the refusal that a claim would get by the state of the record. Returns `None` if the claim may be granted,
    /// the store does not respond, or the record is not read. A read ends at `limit`, and while a handler could still
    /// begin.
    async fn refusal_on_record(&self, limit: Option<Timestamp>) -> Option<Refusal> {
        let now = self.settings.engine.clock.now();
        let limits = [limit, self.entry.begin_by].into_iter().flatten();
        let ends = limits.fold(now.after(MAX_READ_TIME), Timestamp::min);
        if ends.since(now) < MIN_CALL_TIME {
            return None;
        }
        // Requests that are refused must not load the store without limit.
        let _permit = match &self.settings.permits {
            Some(permits) => Some(permits.reads.try_acquire().ok()?),
            None => None,
        };
        let candidate = slice::from_ref(&self.entry.candidate);
        match self.settings.engine.poll(candidate, ends, ResultData::Include).await.pop() {
            Some(Ok(Polled::Refused(refusal))) => Some(refusal),
            _ => None,
        }
    }
}
