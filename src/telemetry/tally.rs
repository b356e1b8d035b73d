//! Counts and times the store calls of an operation, a request or a batch, for observers.
//!
//! An engine with observers calls its store through [`TalliedStore`], which notes each call in the tally of the future
//! that is being polled. The engine need not pass the tally on, and an engine without observers has no cost.

use std::{
    cell::RefCell,
    collections::HashMap,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::{
    clock::Timestamp,
    error::Error,
    future::BoxFuture,
    record::{KeyHash, Record, Status},
    store::{
        Answers, ClaimRequest, Claimed, Database, Limits, RecordFormat, ResultData, SettleRequest, Settled, Settlement,
        Store, StoreId,
    },
    telemetry::observer::Observers,
};

thread_local! {
    /// The tally of the future that is being polled on this thread.
    static CURRENT: RefCell<Option<Arc<Tally>>> = const { RefCell::new(None) };
}

/// The counts and times of an operation, a request or a batch.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The observers that receive them.
    observers: Observers,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    store_calls: u32,
    operations: usize,
    keys: HashMap<KeyHash, KeyTally>,
}

/// The counts and times of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyTally {
    pub(crate) store_calls: u32,
    pub(crate) attempt: u64,
    pub(crate) took_over: bool,
    pub(crate) claim_time: Option<Duration>,
    pub(crate) handler_time: Option<Duration>,
    pub(crate) settle_time: Option<Duration>,
    pub(crate) lease_remaining: Option<Duration>,
    pub(crate) lease_until: Option<Timestamp>,
}

impl Tally {
    pub(crate) fn new(observers: Observers) -> Self {
        Self { observers, counts: Mutex::default() }
    }

    /// Returns whether all these observers are notified of the end of the current tally.
    pub(crate) fn reports_to(observers: &Observers) -> bool {
        Self::current().is_some_and(|tally| tally.observers.include(observers))
    }

    /// Returns the tally of the future that is being polled, if it has one.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Option::clone)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn of_key(&self, key: &KeyHash) -> KeyTally {
        self.counts().keys.get(key).cloned().unwrap_or_default()
    }

    pub(crate) fn count_operation(&self) {
        self.counts().operations += 1;
    }

    /// Returns the number of operations, and of store calls.
    pub(crate) fn totals(&self) -> (usize, u32) {
        let counts = self.counts();
        (counts.operations, counts.store_calls)
    }
}

/// Notes that the handler of this key has returned after `time`, at `now`.
pub(crate) fn handled(key: KeyHash, time: Duration, now: Timestamp) {
    let Some(tally) = Tally::current() else { return };
    let mut counts = tally.counts();
    let of_key = counts.keys.entry(key).or_default();
    of_key.handler_time = Some(time);
    of_key.lease_remaining = of_key.lease_until.map(|until| until.since(now));
}

pin_project! {
    /// A future, optionally with a separate tally.
    pub(crate) struct Tallied<F> {
        tally: Option<Arc<Tally>>,
        #[pin]
        future: F,
    }
}

impl<F> Tallied<F> {
    pub(crate) fn new(tally: Option<Arc<Tally>>, future: F) -> Self {
        Self { tally, future }
    }
}

/// A guard that replaces the current tally, or removes it, until it is dropped.
struct Entered(Option<Arc<Tally>>);

impl Entered {
    fn by(tally: Option<Arc<Tally>>) -> Self {
        Self(CURRENT.replace(tally))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl<F: Future> Future for Tallied<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.tally.as_ref().map(|tally| Entered::by(Some(Arc::clone(tally))));
        this.future.poll(context)
    }
}

/// Awaits a call to a store that may also count it, such as the store of an engine with observers.
async fn counted_once<T>(mut call: BoxFuture<'_, T>) -> T {
    poll_fn(|context| {
        let _entered = Entered::by(None);
        call.as_mut().poll(context)
    })
    .await
}

/// A pending call. It is counted and timed when it ends, or when it is dropped without a result, so that an outage of
/// the store shows in the times of such calls.
struct Call<'a, Q> {
    /// The tally of the caller. The future may be dropped outside of it.
    tally: Option<Arc<Tally>>,
    begun: Instant,
    requests: &'a [Q],
    key: fn(&Q) -> &KeyHash,
    add_time: fn(&Q, &mut KeyTally, Duration),
}

impl<'a, Q> Call<'a, Q> {
    fn begin(requests: &'a [Q], key: fn(&Q) -> &KeyHash, add_time: fn(&Q, &mut KeyTally, Duration)) -> Self {
        Self { tally: Tally::current(), begun: Instant::now(), requests, key, add_time }
    }

    fn answered(mut self, note: impl FnMut(usize, &mut KeyTally)) {
        self.count(note);
    }

    fn count(&mut self, mut note: impl FnMut(usize, &mut KeyTally)) {
        let Some(tally) = self.tally.take() else { return };
        let time = self.begun.elapsed();
        let mut counts = tally.counts();
        counts.store_calls += 1;
        for (index, request) in self.requests.iter().enumerate() {
            let of_key = counts.keys.entry(*(self.key)(request)).or_default();
            of_key.store_calls += 1;
            (self.add_time)(request, of_key, time);
            note(index, of_key);
        }
    }
}

impl<Q> Drop for Call<'_, Q> {
    fn drop(&mut self) {
        self.count(|_, _| {});
    }
}

/// A store whose calls are counted and timed.
#[derive(Debug)]
pub(crate) struct TalliedStore(Arc<dyn Store>);

impl TalliedStore {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self(store)
    }
}

fn add(sum: &mut Option<Duration>, time: Duration) {
    *sum = Some(sum.unwrap_or_default() + time);
}

#[deny(clippy::missing_trait_methods)]
impl Store for TalliedStore {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            let call = Call::begin(requests, |request| &request.key, |_, tally, time| add(&mut tally.claim_time, time));
            let answers = counted_once(self.0.claim(requests)).await;
            call.answered(|index, tally| {
                if let Some(Ok(Claimed::Granted(grant))) = answers.get(index) {
                    tally.attempt = grant.attempt;
                    tally.took_over = grant.prior_status == Some(Status::InProgress);
                    tally.lease_until = Some(grant.lease_until);
                }
            });
            answers
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move {
            let call = Call::begin(
                requests,
                |request| &request.key,
                |request, tally, time| {
                    if !matches!(request.settlement, Settlement::Renew { .. }) {
                        add(&mut tally.settle_time, time);
                    }
                },
            );
            let answers = counted_once(self.0.settle(requests)).await;
            call.answered(|index, tally| {
                if let Some(Ok(Settled::Renewed { lease_until })) = answers.get(index) {
                    tally.lease_until = Some(*lease_until);
                }
            });
            answers
        })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move {
            let call = Call::begin(keys, |key| key, |_, _, _| {});
            let answers = counted_once(self.0.read(keys, data)).await;
            call.answered(|_, _| {});
            answers
        })
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.0.warm_up()
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn format(&self) -> RecordFormat {
        self.0.format()
    }

    fn database(&self) -> Database<'_> {
        self.0.database()
    }

    fn id(&self) -> StoreId {
        self.0.id()
    }
}
