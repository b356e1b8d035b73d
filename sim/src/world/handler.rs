//! The handler of all operations: it takes effect, fails, hangs or panics, and the history shows it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use lambda_once::{BoxError, Claim, Failure, ProbeResult};
use tokio::time::sleep;

use super::network::Copies;
use super::{WorkerClock, World, fate::CurrentFate};
use crate::{
    counters::Fault,
    history::{CallId, End, Fact, KeyId, Ms, RunId},
};

/// A worker, as its handlers see it.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) world: Arc<World>,
    pub(super) clock: WorkerClock,
    pub(super) fate: CurrentFate,
    pub(super) copies: Copies,
    /// Whether the current invocation has a deadline. Without one a run renews its lease.
    pub(super) has_deadline: AtomicBool,
    /// The earliest end of a lease of the current invocation: its deadline, or one lease after its start.
    pub(super) holds_until: AtomicU64,
    /// The calls of the current invocation.
    pub(super) calls: Mutex<Vec<(Order, CallId)>>,
    /// The runs of the current invocation that have returned.
    pub(super) returned: Mutex<Vec<(KeyId, RunId)>>,
}

impl Environment {
    /// Begins an invocation that serves these calls, with the deadline that its platform has drawn.
    pub(super) fn begin(&self, calls: impl IntoIterator<Item = (Order, CallId)>, deadline: Option<Ms>) {
        let world = &self.world;
        let holds_until = deadline.unwrap_or_else(|| world.now() + world.plan.lease);
        self.holds_until.store(holds_until, Ordering::Relaxed);
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner) = calls.into_iter().collect();
        self.returned.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the first call of the current invocation with this order.
    fn call(&self, order: Order) -> CallId {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().find(|(of, _)| *of == order).expect("every run serves a call of its invocation").1
    }

    /// Returns the run of this key that has returned in the current invocation.
    pub(super) fn returned(&self, key: KeyId) -> Option<RunId> {
        let returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        returned.iter().rev().find(|(of, _)| *of == key).map(|(_, run)| *run)
    }
}

/// An operation and its payload, as a message or a request contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub(super) struct Order {
    pub(super) key: KeyId,
    pub(super) payload: u8,
    pub(super) entity: u32,
    pub(super) sequence: u64,
}

impl Order {
    pub(super) fn new(world: &World, key: KeyId, payload: u8) -> Self {
        let (entity, sequence) = world.plan.keys[key as usize].order.unwrap_or_default();
        Self { key, payload, entity, sequence }
    }
}

/// Returns the result of a run.
pub(super) fn result_of(run: RunId) -> String {
    format!("{RAN}{run}:")
}

const RAN: &str = "run:";
const FAILED: &str = "failed:";

/// Finds the run in a text that contains its result.
pub(super) fn run_in(text: &str) -> Option<RunId> {
    number_after(RAN, text)
}

/// Finds the run in a text that contains its permanent failure.
pub(super) fn failed_in(text: &str) -> Option<RunId> {
    number_after(FAILED, text)
}

fn number_after(mark: &str, text: &str) -> Option<RunId> {
    let (_, rest) = text.split_once(mark)?;
    rest.split_once(':')?.0.parse().ok()
}

/// A run in the history. If it is dropped before its end, the history shows that.
struct Running {
    env: Arc<Environment>,
    run: RunId,
    is_open: bool,
}

impl Running {
    fn begin(env: &Arc<Environment>, order: Order, claim: &Claim) -> Self {
        let world = &env.world;
        let holds_until = env.holds_until.load(Ordering::Relaxed);
        let (at, Order { key, payload, .. }, took_over) = (world.now(), order, claim.took_over());
        let mut state = world.lock();
        let run = state.runs;
        state.runs += 1;
        state.counters.runs += 1;
        state.counters.takeovers += u64::from(took_over);
        state.hashes.insert(claim.key(), key);
        let fact = Fact::Began { run, key, payload, call: env.call(order), took_over, holds_until };
        state.events.push(crate::history::Event { at, fact });
        drop(state);
        Self { env: Arc::clone(env), run, is_open: true }
    }

    fn take_effect(&self, key: KeyId) {
        let world = &self.env.world;
        world.push(Fact::Effect { run: self.run });
        let mut state = world.lock();
        state.counters.effects += 1;
        let repeated = state.effects[key as usize].replace(self.run).is_some();
        state.counters.repeated_effects += u64::from(repeated);
    }

    fn end(mut self, end: End) {
        self.is_open = false;
        let now = self.env.world.now();
        self.env.world.end(self.run, end, now);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_open {
            let world = &self.env.world;
            world.end(self.run, End::Dropped, self.env.fate.active_until(world.now()));
        }
    }
}

/// The longest time of a handler whose lease is renewed.
const MAX_RENEWED_WORK: Ms = 35_000;

/// The behaviour of a run.
enum Behaviour {
    Succeed,
    FailForGood,
    FailForNow,
    FailUnknown { has_effect: bool },
    Panic { has_effect: bool },
    Hang { has_effect: bool },
}

fn behaviour(env: &Environment, key: KeyId) -> Behaviour {
    let world = &*env.world;
    let faults = &world.plan.faults;
    if world.plan.keys[key as usize].is_poison {
        return Behaviour::FailForGood;
    }
    let has_effect = world.lock().random.chance(500);
    if world.strikes(faults.transient, Fault::Transient) {
        Behaviour::FailForNow
    } else if world.strikes(faults.unknown, Fault::Unknown) {
        Behaviour::FailUnknown { has_effect }
    } else if world.strikes(faults.panicked, Fault::Panicked) {
        Behaviour::Panic { has_effect }
    } else if world.strikes(faults.hung, Fault::Hung) {
        Behaviour::Hang { has_effect }
    } else {
        Behaviour::Succeed
    }
}

/// Runs an operation.
pub(super) async fn run(env: Arc<Environment>, order: Order, claim: Claim) -> Result<RunId, Failure> {
    let running = Running::begin(&env, order, &claim);
    let behaviour = behaviour(&env, order.key);
    let is_long = !env.has_deadline.load(Ordering::Relaxed) && env.world.lock().random.chance(300);
    let longest = if is_long { MAX_RENEWED_WORK } else { env.world.plan.work };
    let pause = || env.world.lock().random.pause(0, longest / 2);
    sleep(pause()).await;
    let has_effect = match behaviour {
        Behaviour::Succeed => true,
        Behaviour::FailForGood | Behaviour::FailForNow => false,
        Behaviour::FailUnknown { has_effect } | Behaviour::Panic { has_effect } | Behaviour::Hang { has_effect } => {
            has_effect
        }
    };
    if has_effect {
        running.take_effect(order.key);
    }
    sleep(pause()).await;
    let run = running.run;
    match behaviour {
        Behaviour::Succeed => {
            running.end(End::Returned);
            env.returned.lock().unwrap_or_else(PoisonError::into_inner).push((order.key, run));
            Ok(run)
        }
        Behaviour::FailForGood => {
            running.end(End::Permanent);
            Err(Failure::permanent(format!("{FAILED}{run}:")))
        }
        Behaviour::FailForNow => {
            running.end(End::Transient);
            Err(Failure::transient("simulated: not now"))
        }
        Behaviour::FailUnknown { .. } => {
            running.end(End::Unknown);
            Err(Failure::unknown("simulated: no answer"))
        }
        Behaviour::Panic { .. } => {
            running.end(End::Panicked);
            // As a panic, but without the message that the hook prints.
            std::panic::resume_unwind(Box::new("simulated"))
        }
        Behaviour::Hang { .. } => {
            // Longer than any invocation. The run is dropped.
            sleep(Duration::from_secs(100_000)).await;
            drop(running);
            Err(Failure::transient("simulated: it hung"))
        }
    }
}

/// Finds out truthfully whether an earlier run took effect.
pub(super) async fn probe(env: Arc<Environment>, key: KeyId) -> Result<ProbeResult<RunId>, BoxError> {
    let world = &env.world;
    let pause = world.lock().random.pause(0, 300);
    sleep(pause).await;
    if world.strikes(world.plan.faults.probe_failed, Fault::ProbeFailed) {
        return Err("simulated: the probe failed".into());
    }
    let mut state = world.lock();
    state.counters.probes += 1;
    Ok(state.effects[key as usize].map_or(ProbeResult::NotDone, ProbeResult::Done))
}
