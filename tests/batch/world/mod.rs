//! The world of most batch tests: a store, an engine on it, and handlers whose payloads specify their behavior.

mod events;
mod job;
mod journal;
mod queue;
mod recorder;

use std::time::Duration;

use lambda_once::{
    BoxFuture, Builder, Failure, Idempotency, MemoryStore, Store,
    clock::Clock,
    record::{KeyHash, Record, Status, StoredResult},
    store::{
        RecordFormat, ResultData,
        fault::{Call, Fault, FaultStore},
    },
};
use lambda_runtime::Context;
use serde::Serialize;

pub(crate) use self::{
    events::{ALL_DONE, base64, parse, unreadable},
    job::{Job, jobs, order, orders, work},
    journal::{Event, Journal},
    queue::{batch, event, fifo, ids, invoke, message, reported},
    recorder::{Latency, Recorder},
};
/// The time at which every test begins.
pub(crate) use crate::support::clock::FUTURE as START;
use crate::support::clock::{TokioClock, block};

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The properties of the store.
pub(crate) struct Backing {
    /// The maximum number of requests in a call.
    pub(crate) batch: usize,
    /// The format of its records.
    pub(crate) format: RecordFormat,
    /// The network to it. Without one, it responds in the first poll.
    pub(crate) latency: Option<Latency>,
    /// Its faults, with their rates.
    pub(crate) faults: Vec<(Fault, f64)>,
}

impl Default for Backing {
    fn default() -> Self {
        Self { batch: 25, format: RecordFormat::Native, latency: None, faults: Vec::new() }
    }
}

impl From<usize> for Backing {
    fn from(batch: usize) -> Self {
        Self { batch, ..Self::default() }
    }
}

impl From<Latency> for Backing {
    fn from(latency: Latency) -> Self {
        Self { latency: Some(latency), ..Self::default() }
    }
}

pub(crate) struct World {
    pub(crate) clock: TokioClock,
    pub(crate) memory: MemoryStore,
    pub(crate) store: FaultStore<Recorder>,
    pub(crate) once: Idempotency,
    pub(crate) journal: Journal,
    block: fn(Duration),
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(settings: impl FnOnce(Builder) -> Builder) -> Self {
        Self::on(Backing::default(), settings)
    }

    /// Creates a world with a store over a network without latency, whose responses still need a turn of the runtime.
    pub(crate) fn over_a_network() -> Self {
        Self::on(Latency::default(), |builder| builder)
    }

    pub(crate) fn on(backing: impl Into<Backing>, settings: impl FnOnce(Builder) -> Builder) -> Self {
        let Backing { batch, format, latency, faults } = backing.into();
        let clock = TokioClock::new();
        let memory = MemoryStore::with_clock(clock.clone());
        let journal = Journal::new(clock.clone());
        let recorder = Recorder::new(memory.clone(), journal.clone(), batch, latency).with_format(format);
        let sound = FaultStore::new(recorder, 7);
        let store = faults.iter().fold(sound, |store, (fault, rate)| store.with_rate(*fault, *rate));
        let builder =
            Idempotency::builder(store.clone()).clock(clock.clone()).scope("tests").named("tests").disabled(false);
        let once = settings(builder).build().unwrap();
        Self { clock, memory, store, once, journal, block }
    }

    /// Uses real time, so that blocking handlers put their thread to sleep.
    pub(crate) fn in_real_time(self) -> Self {
        Self { block: std::thread::sleep, ..self }
    }

    /// Returns the handler of jobs.
    pub(crate) fn handler(
        &self,
    ) -> impl Fn(Job) -> BoxFuture<'static, Result<String, Failure>> + Clone + Send + Sync + use<> {
        let (journal, block) = (self.journal.clone(), self.block);
        move |job| Box::pin(job::perform(journal.clone(), block, job, None))
    }

    /// Returns the context of an invocation with this much time left.
    pub(crate) fn left(&self, left: Duration) -> Context {
        let mut context = Context::default();
        context.deadline = self.clock.now().after(left).as_millis();
        context
    }

    /// Returns the record of a key of this source.
    pub(crate) async fn record_in<K: Serialize + ?Sized>(&self, source: &str, key: &K) -> Option<Record> {
        self.read(self.once.key_hash(source, key).unwrap()).await
    }

    pub(crate) async fn status_in<K: Serialize + ?Sized>(&self, source: &str, key: &K) -> Option<Status> {
        self.record_in(source, key).await.map(|record| record.status)
    }

    pub(crate) async fn read(&self, hash: KeyHash) -> Option<Record> {
        self.memory.read(&[hash], ResultData::Include).await.pop().unwrap().unwrap()
    }

    /// Returns the existing records of all keys that were ever claimed.
    pub(crate) async fn records(&self) -> Vec<Record> {
        let keys: Vec<KeyHash> = self.journal.claimed().into_iter().collect();
        self.memory.read(&keys, ResultData::Include).await.into_iter().filter_map(Result::unwrap).collect()
    }

    /// Stores a claim that another invocation holds for this long.
    pub(crate) fn hold_in(&self, source: &str, key: &str, lease: Duration) {
        let lease_until = Some(self.clock.now().after(lease));
        let held = Record { lease_until, ..self.left_behind(Status::InProgress, StoredResult::default()) };
        self.memory.insert(self.once.key_hash(source, key).unwrap(), held);
    }

    /// Returns a record that another delivery has left.
    fn left_behind(&self, status: Status, result: StoredResult) -> Record {
        Record {
            attempt: 1,
            expiration: Some(self.clock.now().after(seconds(10_000)).seconds_rounded_up()),
            result,
            ..Record::new(status)
        }
    }

    /// Returns the number of requests in each call of this kind.
    pub(crate) fn calls(&self, kind: Call) -> Vec<usize> {
        self.store.calls().into_iter().filter(|(call, _)| *call == kind).map(|(_, requests)| requests).collect()
    }
}
