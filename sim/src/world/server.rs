//! The store's server: the rules of the memory store, by the clock of the server or of each request's sender.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use lambda_once::{
    Error, MemoryStore, Store,
    clock::{ManualClock, Timestamp},
    record::{KeyHash, Record, Status, StoredData},
    store::{Answers, ClaimRequest, Claimed, ResultData, SettleRequest, Settled},
};

use super::{World, handler};
use crate::{bugs::Bug, history::Outcome, plan::StoreClock};

/// A request for one key.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Claim(ClaimRequest),
    Settle(SettleRequest),
    Read(KeyHash, ResultData),
}

impl Request {
    pub(super) fn key(&self) -> KeyHash {
        match self {
            Self::Claim(claim) => claim.key,
            Self::Settle(settle) => settle.key,
            Self::Read(key, _) => *key,
        }
    }
}

/// The response to a request.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    Claimed(Claimed),
    Settled(Settled),
    Found(Option<Box<Record>>),
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) memory: MemoryStore,
    clock: ManualClock,
    decides_by: StoreClock,
    bug: Option<Bug>,
    /// The keys that may have a record, for the deletion of expired ones.
    keys: Mutex<BTreeSet<KeyHash>>,
}

/// The offset of the server's clock from true time.
const SERVER_OFFSET: Duration = Duration::from_secs(7_777);

impl Server {
    pub(super) fn new(decides_by: StoreClock, bug: Option<Bug>) -> Self {
        let clock = ManualClock::at(Timestamp::EPOCH);
        Self { memory: MemoryStore::with_clock(clock.clone()), clock, decides_by, bug, keys: Mutex::default() }
    }

    /// Applies a request that its sender sent at `sent`, by its own clock, and that arrives at `now`, by true time.
    pub(super) fn apply(&self, request: &Request, sent: Timestamp, now: Timestamp) -> Result<Response, Error> {
        self.set_clock(sent, now);
        let clock_now = lambda_once::clock::Clock::now(&self.clock);
        let response = match self.bug {
            Some(bug) => bug.apply(&self.memory, request, clock_now),
            None => plain(&self.memory, request),
        };
        if matches!(request, Request::Claim(_)) {
            self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(request.key());
        }
        response
    }

    fn set_clock(&self, sent: Timestamp, now: Timestamp) {
        self.clock.set(match self.decides_by {
            StoreClock::Sender => sent,
            StoreClock::Server => now.after(SERVER_OFFSET),
        });
    }

    /// Returns the stored record of a key.
    pub(super) fn record(&self, key: &KeyHash) -> Option<Record> {
        record(&self.memory, key)
    }

    /// Deletes the expired records, as TTL does.
    fn expire(&self, now: Timestamp) -> Vec<KeyHash> {
        self.set_clock(now, now);
        let now = lambda_once::clock::Clock::now(&self.clock).seconds_rounded_down();
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let is_expired =
            |key: &&KeyHash| self.record(key).is_some_and(|record| record.expiration.is_some_and(|at| at <= now));
        let expired: Vec<KeyHash> = keys.iter().filter(is_expired).copied().collect();
        for key in &expired {
            self.memory.remove(key);
            keys.remove(key);
        }
        expired
    }
}

/// Sends the unchanged request to the memory store.
pub(crate) fn plain(memory: &MemoryStore, request: &Request) -> Result<Response, Error> {
    Ok(match request {
        Request::Claim(claim) => Response::Claimed(now(memory.claim(std::slice::from_ref(claim)))?),
        Request::Settle(settle) => Response::Settled(now(memory.settle(std::slice::from_ref(settle)))?),
        Request::Read(key, data) => Response::Found(now(memory.read(&[*key], *data))?.map(Box::new)),
    })
}

/// Returns the record of a key.
pub(crate) fn record(memory: &MemoryStore, key: &KeyHash) -> Option<Record> {
    now(memory.read(&[*key], ResultData::Include)).ok().flatten()
}

/// Returns the only response of a call to the memory store, which never waits.
fn now<T>(call: impl Future<Output = Answers<T>>) -> Result<T, Error> {
    call.now_or_never().and_then(|mut answers| answers.pop()).expect("the memory store answers at once")
}

/// Returns the outcome that a record shows.
pub(super) fn outcome(record: Option<&Record>) -> Option<Outcome> {
    let record = record.filter(|record| record.status != Status::InProgress)?;
    let Some(StoredData::Json(text)) = &record.result.data else { return None };
    // A response that reports a failed request is completed, for the store.
    handler::failed_in(text).map(Outcome::Failed).or_else(|| handler::run_in(text).map(Outcome::Completed))
}

/// Deletes expired records from time to time, unless no record expires within the history.
pub(super) async fn expire(world: Arc<World>) {
    if world.plan.terms.retention.is_none() {
        return;
    }
    while !world.lock().is_over {
        let pause = world.lock().random.pause(100, 40_000);
        tokio::time::sleep(pause).await;
        for key in world.server.expire(world.timestamp()) {
            world.show(&key, None);
        }
    }
}
