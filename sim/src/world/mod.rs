//! The simulated world: workers, clients, a queue, a network and a store, in virtual time on one thread.
//!
//! The seed decides everything: the plan, the order of tasks, and every fault. The real engine runs inside.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    clock::{Clock, Timestamp},
    record::KeyHash,
};
use tokio::{sync::Notify, time::Instant};

use crate::{
    bugs::Bug,
    counters::{Counters, Fault},
    history::{Answer, CallId, End, Event, Fact, History, KeyId, Ms, Outcome, RunId},
    plan::Plan,
    random::Random,
};

mod calls;
mod clients;
mod fate;
mod handler;
mod network;
mod queue;
pub(crate) mod server;
mod worker;

use calls::Job;
use queue::Queue;
use server::Server;

/// The longest time from the end of the faults to the end of the history.
const DRAIN: Duration = Duration::from_secs(3_600);

/// The true time at which histories begin, in milliseconds since 1970. The seed adds up to a second.
const BASE: u64 = 1_800_000_000_000;

/// Runs the history of a seed, with a bug planted at the boundary of store and engine.
///
/// # Panics
///
/// If tokio's runtime cannot be built.
pub fn simulate(seed: u64, bug: Option<Bug>) -> (History, Counters) {
    let mut random = Random::new(seed);
    let plan = Plan::draw(&mut random);
    // The engine's pauses come from the thread's generator.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing of the system");
    let world = runtime.block_on(async {
        let world = Arc::new(World::new(plan, random, bug));
        world.live().await;
        world
    });
    drop(runtime);
    let mut state = world.lock();
    let events = std::mem::take(&mut state.events);
    let mut counters = std::mem::take(&mut state.counters);
    counters.histories = 1;
    (History { terms: world.plan.terms, keys: world.plan.keys.clone(), events }, counters)
}

#[derive(Debug)]
struct World {
    plan: Plan,
    bug: Option<Bug>,
    start: Instant,
    base: u64,
    server: Server,
    queue: Queue,
    inbox: Mutex<VecDeque<Job>>,
    /// Wakes an idle worker.
    arrivals: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    events: Vec<Event>,
    counters: Counters,
    runs: RunId,
    calls: CallId,
    /// Whether faults occur and handlers fail.
    has_faults: bool,
    is_over: bool,
    /// By key: the run whose effect a truthful probe finds.
    effects: Vec<Option<RunId>>,
    hashes: HashMap<KeyHash, KeyId>,
    /// By key: the outcome that the store has shown last.
    shown: Vec<Option<Outcome>>,
}

impl World {
    fn new(plan: Plan, mut random: Random, bug: Option<Bug>) -> Self {
        let keys = plan.keys.len();
        let base = BASE + random.between(0, 999);
        let has_faults = !plan.terms.is_calm;
        Self {
            server: Server::new(plan.store_clock, bug),
            queue: Queue::default(),
            inbox: Mutex::default(),
            arrivals: Notify::new(),
            bug,
            start: Instant::now(),
            base,
            plan,
            state: Mutex::new(State {
                random,
                events: Vec::new(),
                counters: Counters::default(),
                runs: 0,
                calls: 0,
                has_faults,
                is_over: false,
                effects: vec![None; keys],
                hashes: HashMap::new(),
                shown: vec![None; keys],
            }),
        }
    }

    /// Runs the history to its end.
    async fn live(self: &Arc<Self>) {
        for _ in 0..self.plan.workers {
            tokio::spawn(worker::live(Arc::clone(self)));
        }
        tokio::spawn(server::expire(Arc::clone(self)));
        clients::call_all(self).await;
        self.lock().has_faults = false;
        // Every late request has arrived, and every claim of a dead worker has ended.
        let longest = self.plan.time_left.1.max(self.plan.lease) + 5_000;
        tokio::time::sleep(Duration::from_millis(self.plan.max_late + longest)).await;
        let audits = clients::audit(self);
        let _ = tokio::time::timeout(DRAIN, audits).await;
        self.lock().is_over = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Ms {
        Ms::try_from(self.start.elapsed().as_millis()).unwrap_or(Ms::MAX)
    }

    /// Returns true time as a timestamp.
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(self.base + self.now())
    }

    fn push(&self, fact: Fact) {
        let at = self.now();
        self.lock().events.push(Event { at, fact });
    }

    fn step(&self) {
        self.lock().counters.steps += 1;
    }

    /// Returns true this often while there are faults, and counts the fault.
    fn strikes(&self, rate: u32, fault: Fault) -> bool {
        let strikes = self.draws(rate);
        if strikes {
            self.count(fault);
        }
        strikes
    }

    /// Returns true this often while there are faults.
    fn draws(&self, rate: u32) -> bool {
        let mut state = self.lock();
        state.has_faults && state.random.chance(rate)
    }

    fn count(&self, fault: Fault) {
        self.lock().counters.add(fault);
    }

    fn ask(&self, key: KeyId, payload: u8, is_audit: bool) -> CallId {
        let at = self.now();
        let mut state = self.lock();
        let call = state.calls;
        state.calls += 1;
        state.counters.operations += 1;
        state.events.push(Event { at, fact: Fact::Asked { call, key, payload, is_audit } });
        call
    }

    fn tell(&self, call: CallId, answer: Answer) {
        let mut state = self.lock();
        match answer {
            Answer::Replayed(_) | Answer::ReplayedFailure => state.counters.replays += 1,
            Answer::Lost => state.counters.lost += 1,
            _ => {}
        }
        drop(state);
        self.push(Fact::Told { call, answer });
    }

    fn end(&self, run: RunId, end: End, active_until: Ms) {
        self.push(Fact::Ended { run, end, active_until });
    }

    /// Notes the outcome that the store shows after a write.
    fn show(&self, key: &KeyHash, outcome: Option<Outcome>) {
        let at = self.now();
        let mut state = self.lock();
        let Some(&id) = state.hashes.get(key) else { return };
        let shown = std::mem::replace(&mut state.shown[id as usize], outcome);
        if shown == outcome {
            return;
        }
        let fact = match outcome {
            Some(outcome) => Fact::Recorded { key: id, outcome },
            None => Fact::Erased { key: id },
        };
        state.events.push(Event { at, fact });
    }
}

/// The clock of a worker.
#[derive(Clone, Debug)]
struct WorkerClock {
    start: Instant,
    base: u64,
    offset: Arc<AtomicI64>,
    /// The time that the clock shows all the time, if it does not run, or 0.
    stands_at: Arc<AtomicU64>,
}

impl WorkerClock {
    fn new(world: &World) -> Self {
        Self { start: world.start, base: world.base, offset: Arc::default(), stands_at: Arc::default() }
    }

    fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    fn set(&self, offset: i64) {
        self.offset.store(offset, Ordering::Relaxed);
    }

    /// Stops the clock at the current time, or lets it run.
    fn stand_still(&self, stands: bool) {
        self.stands_at.store(0, Ordering::Relaxed);
        if stands {
            self.stands_at.store(self.now().as_millis(), Ordering::Relaxed);
        }
    }
}

impl Clock for WorkerClock {
    fn now(&self) -> Timestamp {
        let stands_at = self.stands_at.load(Ordering::Relaxed);
        if stands_at > 0 {
            return Timestamp::from_millis(stands_at);
        }
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_millis((self.base + elapsed).saturating_add_signed(self.offset()))
    }
}
