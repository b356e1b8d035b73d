//! Operations from their claim to their end, on a memory store with injected faults. Tokio's time is paused, and
//! advances only when every task waits.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use crate::support;

mod claims;
mod classifiers;
mod codecs;
mod commits;
mod courtesies;
mod deadlines;
mod engines;
mod heartbeat;
mod leases;
mod logs;
mod orders;
mod probes;
mod results;
mod settles;
mod silence;
mod successors;
mod waits;
mod withdrawals;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    BoxFuture, Builder, Error, Failure, Idempotency, MemoryStore, Outcome, Store,
    record::{KeyHash, Record},
    store::{
        Answers, ClaimRequest, Claimed, ResultData, SettleRequest, Settled,
        fault::{Call, FaultStore},
    },
};
use support::{assert_outcome, clock::TokioClock, delegate::delegate};
use tokio::time::sleep;

const CHARGE: &str = "charge";
const KEY: &str = "order 7";
/// The default lease of claims without a deadline, without the skew margin.
const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
/// The time that a handler may run by default.
const UNTIL_STOP: Duration = Duration::from_millis(28_500);

/// A store that applies a request only after this time, so a call that is given up before then has no effect.
#[derive(Clone, Debug)]
struct Distant {
    records: MemoryStore,
    latency: Duration,
}

impl Store for Distant {
    delegate!(records: limits, id, warm_up);

    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            sleep(self.latency).await;
            self.records.claim(requests).await
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move {
            sleep(self.latency).await;
            self.records.settle(requests).await
        })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move {
            sleep(self.latency).await;
            self.records.read(keys, data).await
        })
    }
}

/// An engine with the default settings on a memory store, with one clock.
struct World {
    clock: TokioClock,
    records: MemoryStore,
    store: FaultStore<MemoryStore>,
    once: Idempotency,
    runs: Arc<AtomicU32>,
}

impl World {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    /// Creates a world with other settings.
    fn with(settings: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = TokioClock::new();
        let records = MemoryStore::with_clock(clock.clone());
        let store = FaultStore::new(records.clone(), 1);
        let once = settings(Idempotency::builder(store.clone()).clock(clock.clone())).build().unwrap();
        Self { clock, records, store, once, runs: Arc::default() }
    }

    /// Creates a world whose engine reaches the store after this time, with other settings.
    fn distant(latency: Duration, settings: impl FnOnce(Builder) -> Builder) -> Self {
        let world = Self::new();
        let store = Distant { records: world.records.clone(), latency };
        let once = settings(Idempotency::builder(store).clock(world.clock.clone())).build().unwrap();
        Self { once, ..world }
    }

    /// Returns another engine on the same store and clock, as in another execution environment.
    fn another(&self, settings: impl FnOnce(Builder) -> Builder) -> Idempotency {
        settings(Idempotency::builder(self.store.clone()).clock(self.clock.clone())).build().unwrap()
    }

    /// Returns work that succeeds with the number of its runs.
    fn work(&self) -> impl Future<Output = Result<u32, Failure>> + Send + use<> {
        let runs = Arc::clone(&self.runs);
        async move { Ok(runs.fetch_add(1, Ordering::SeqCst) + 1) }
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Runs the operation, with work that succeeds.
    async fn run(&self) -> Result<Outcome<u32>, Error> {
        self.once.operation(CHARGE, KEY).run(|| self.work()).await
    }

    /// Runs the operation with this payload, with work that succeeds.
    async fn run_on(&self, payload: &str) -> Result<Outcome<u32>, Error> {
        self.once.operation(CHARGE, KEY).payload(payload).run(|| self.work()).await
    }

    /// Runs the operation, with work that ends as given.
    async fn run_to(&self, end: Result<u32, Failure>) -> Result<Outcome<u32>, Error> {
        self.once.operation(CHARGE, KEY).run(|| async { end }).await
    }

    /// Leaves a claim with an unknown outcome.
    async fn abandon(&self) {
        assert_outcome!(self.run_to(Err(Failure::unknown("timed out"))).await, Ok(Outcome::Failed(_)));
    }

    /// Ends every lease, including the skew margin.
    async fn lapse(&self) {
        tokio::time::advance(LEASE + MARGIN + MILLISECOND).await;
    }

    async fn record(&self) -> Option<Record> {
        let key = self.once.key_hash(CHARGE, KEY).unwrap();
        self.records.read(&[key], ResultData::Include).await.remove(0).unwrap()
    }

    /// Changes the record, bypassing the rules.
    async fn alter(&self, change: impl FnOnce(&mut Record)) {
        let mut record = self.record().await.unwrap();
        change(&mut record);
        self.records.insert(self.once.key_hash(CHARGE, KEY).unwrap(), record);
    }

    /// Returns the calls of the store.
    fn calls(&self) -> Vec<Call> {
        self.store.calls().into_iter().map(|(call, _)| call).collect()
    }

    fn count(&self, call: Call) -> usize {
        self.calls().into_iter().filter(|seen| *seen == call).count()
    }
}
