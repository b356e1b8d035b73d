//! The coordinator: it starts the server and the workers, makes load and faults, and records the history.

use std::{
    collections::HashMap,
    io::{self, Write},
    process::ExitCode,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::sleep};

use crate::{
    history::{Event, Fact, History, InvocationId, Key, KeyId, Ms, RunId, WorkerId},
    options::Options,
    report::{self, Faults},
    settings::StoreKind,
};

mod api;
mod clients;
mod cluster;
mod consumer_api;
mod ledger;
mod load;
mod network;
mod operator;
mod purge;
mod queue;
mod runtime_api;
mod server;
mod slots;
// The proxy of the tests.
#[allow(clippy::unwrap_used, clippy::future_not_send, reason = "it is a part of the tests, which may panic")]
#[path = "../../../tests/support/wire/mod.rs"]
mod wire;

pub(crate) use consumer_api::{Disposition, Receipt};
pub(crate) use ledger::{Ending, Report};

/// The longest time in which no operation ends, once all faults have stopped.
const STANDSTILL: Duration = Duration::from_secs(60);
/// The longest time that the last operations take, on a busy machine.
const LAST_WAIT: Duration = Duration::from_secs(300);

/// Everything that the tasks of the coordinator share.
pub(crate) struct World {
    begun: Instant,
    options: Options,
    state: Mutex<State>,
    queue: Mutex<queue::Queue>,
    /// Wakes workers that wait for an event.
    sent: Notify,
    has_faults: AtomicBool,
    is_over: AtomicBool,
    slots: Vec<slots::Slot>,
}

struct State {
    history: History,
    faults: Faults,
    random: fastrand::Rng,
    /// The workers of runs.
    runs: Vec<(KeyId, WorkerId)>,
    calls: u32,
    workers: WorkerId,
    last_effects: HashMap<KeyId, RunId>,
    /// The invocation that each worker handles.
    invocations: HashMap<WorkerId, InvocationId>,
    open: u32,
}

impl World {
    fn new(options: Options, slots: Vec<slots::Slot>) -> Self {
        let state = State {
            history: History::default(),
            faults: Faults::default(),
            random: fastrand::Rng::with_seed(options.seed),
            runs: Vec::new(),
            calls: 0,
            workers: 0,
            last_effects: HashMap::new(),
            invocations: HashMap::new(),
            open: 0,
        };
        Self {
            begun: Instant::now(),
            state: Mutex::new(state),
            queue: Mutex::default(),
            sent: Notify::new(),
            has_faults: AtomicBool::new(!options.is_calm),
            is_over: AtomicBool::new(false),
            slots,
            options,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Ms {
        Ms::try_from(self.begun.elapsed().as_millis()).unwrap_or(Ms::MAX)
    }

    fn record(&self, fact: Fact) {
        self.record_in(&mut self.lock(), fact);
    }

    /// The time is read under the lock, so that times have the order of the history.
    fn record_in(&self, state: &mut State, fact: Fact) {
        let at = self.now();
        state.history.events.push(Event { at, fact });
    }

    /// Returns true this often, in thousandths.
    fn chance(&self, thousandths: u32) -> bool {
        self.lock().random.u32(0..1_000) < thousandths
    }

    fn pause(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.lock().random.u64(least..=most))
    }

    fn has_faults(&self) -> bool {
        self.has_faults.load(Ordering::SeqCst)
    }

    /// Records that the server refuses requests until the guard is dropped.
    fn refusal(&self) -> Refusal<'_> {
        self.record(Fact::ServerRefuses);
        Refusal(self)
    }

    fn key(&self, key: KeyId) -> Key {
        self.lock().history.keys[key as usize]
    }
}

/// The time in which the server refuses requests.
struct Refusal<'a>(&'a World);

impl Drop for Refusal<'_> {
    fn drop(&mut self) {
        self.0.record(Fact::ServerAccepts);
    }
}

/// Runs the coordinator.
pub fn run(options: Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(perform(options)));
    ended.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "chaos: {error}");
        ExitCode::from(2)
    })
}

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

async fn perform(options: Options) -> Result<ExitCode> {
    let store = options.store;
    let tool = operator::tool(options.tool.as_deref())?;
    let server = server::start(store);
    let url = server.url().to_owned();
    server::prepare(store, &url)?;
    let version = server::version(store, &url);
    let mut slots = Vec::new();
    for (place, kind) in (0..).zip(slots::KINDS) {
        slots.push(slots::Slot::new(kind, place, store, &url).await);
    }
    let world = Arc::new(World::new(options, slots));
    world.record(Fact::ServerStarted);
    let ledger = ledger::serve(&world).await?;
    for slot in &world.slots {
        api::serve(&world, slot).await?;
        network::trouble(&world, slot);
        slot.prepare(store, &ledger, &url, world.options.is_control);
        slot.start(&world)?;
    }
    tokio::spawn(watch(Arc::clone(&world)));
    tokio::spawn(slots::kill_at_times(Arc::clone(&world)));
    tokio::spawn(slots::freeze_at_times(Arc::clone(&world)));
    if store == StoreKind::Postgres {
        purge::purge_at_times(Arc::clone(&world), &url)?;
    }
    let mut operator = tokio::spawn({
        let (world, url) = (Arc::clone(&world), url.clone());
        async move { operator::decide_at_times(&world, &tool, &url).await }
    });
    let mut restarts = tokio::task::spawn_blocking({
        let world = Arc::clone(&world);
        move || server::disturb_at_times(&world, server)
    });
    let is_complete = tokio::select! {
        is_complete = complete(&world) => Some(is_complete),
        ended = &mut restarts => return Err(ended?.err().unwrap_or_else(|| "the server's faults have ended".into())),
        ended = &mut operator => return Err(ended?.err().unwrap_or_else(|| "the operator has ended".into())),
        _ = tokio::signal::ctrl_c() => None,
    };
    world.slots.iter().for_each(slots::Slot::end);
    if store == StoreKind::Postgres && is_complete.is_some() {
        for run in server::rows(&url).await? {
            world.record(Fact::Row { run });
        }
    }
    world.is_over.store(true, Ordering::SeqCst);
    restarts.await??;
    operator.await??;
    let is_complete = is_complete.ok_or("interrupted")?;
    let seconds = world.begun.elapsed();
    let (history, faults) = {
        let mut state = world.lock();
        (std::mem::take(&mut state.history), state.faults.clone())
    };
    report::report(&world.options, &history, &faults, &version, seconds, is_complete)
}

/// Makes the whole load, stops the faults, and waits until everything has its outcome, or until no more can be expected.
async fn complete(world: &Arc<World>) -> bool {
    load::make(world).await;
    world.has_faults.store(false, Ordering::SeqCst);
    world.slots.iter().for_each(|slot| slot.thaw(world));
    world.record(Fact::Calm);
    let begun = Instant::now();
    let (mut left, mut since) = (world.lock().open, begun);
    while left > 0 {
        if since.elapsed() > STANDSTILL || begun.elapsed() > LAST_WAIT {
            return false;
        }
        sleep(Duration::from_millis(50)).await;
        let open = world.lock().open;
        if open < left {
            (left, since) = (open, Instant::now());
        }
    }
    true
}

/// The longest delay of a timer that is not yet a stall.
const STALL: Duration = Duration::from_millis(300);

/// Notices when the machine is stalled, and reports progress.
async fn watch(world: Arc<World>) {
    let mut told = Instant::now();
    while !world.is_over.load(Ordering::SeqCst) {
        let (since, before) = (world.now(), Instant::now());
        sleep(Duration::from_millis(50)).await;
        if before.elapsed() > STALL {
            world.record(Fact::Stalled { since });
            world.lock().faults.add(report::Fault::Stalled);
        }
        if told.elapsed() >= Duration::from_secs(1) {
            told = Instant::now();
            world.slots.iter().flat_map(|slot| &slot.proxies).for_each(wire::Proxy::reset);
            let state = world.lock();
            report::progress(&state.history, &state.faults, world.now(), state.open);
        }
    }
}
