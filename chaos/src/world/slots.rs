//! The worker processes, each in a slot with its proxies and its Runtime API or queue, and the kills and freezes of them.

use std::{
    env,
    net::{IpAddr, Ipv4Addr},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use super::{
    Result, World,
    queue::Source,
    server,
    wire::{self, Proxy},
};
use crate::{
    history::{Fact, Ms, WorkerId},
    report::Fault,
    settings::{MAX_OFFSET_MS, StoreKind},
    worker,
};

/// The work of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A Lambda function with these queues.
    Function(&'static [Source]),
    /// An axum service.
    Service,
    /// A consumer of a queue without Lambda.
    Consumer,
}

const PLAIN: Kind = Kind::Function(&[Source::Rerun, Source::Refuse, Source::Probe]);
const BOUND: Kind = Kind::Function(&[Source::Ordered, Source::Transaction]);

pub(super) const KINDS: [Kind; 12] = [
    PLAIN,
    PLAIN,
    PLAIN,
    BOUND,
    BOUND,
    BOUND,
    BOUND,
    Kind::Service,
    Kind::Service,
    Kind::Service,
    Kind::Consumer,
    Kind::Consumer,
];

impl Kind {
    /// Returns whether its network delivers no request late or twice. On PostgreSQL, statements of transactions and of ordered
    /// operations belong to their connection, and all requests of a process pass one proxy.
    pub(super) fn is_bound(self, store: StoreKind) -> bool {
        store == StoreKind::Postgres && matches!(self, BOUND | Self::Consumer)
    }
}

/// Returns the address of a worker's proxies in front of a cluster: one per worker, as long as 127.0.0.1.
fn alias(place: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 1 + place / 10, place % 10).into()
}

/// A place for a worker, which gets a new process when one dies.
pub(super) struct Slot {
    pub(super) kind: Kind,
    /// The proxies between the worker and the server, or each node of a cluster.
    pub(super) proxies: Vec<Proxy>,
    occupant: Mutex<Occupant>,
}

#[derive(Default)]
struct Occupant {
    process: Option<Child>,
    worker: WorkerId,
    started: Ms,
    port: Option<u16>,
    is_frozen: bool,
    /// The address of its Runtime API, or of its queue.
    api: String,
    variables: Vec<(&'static str, String)>,
}

impl Slot {
    pub(super) async fn new(kind: Kind, place: u8, store: StoreKind, urls: &str) -> Self {
        let (protocol, mut proxies) = (server::protocol(store), Vec::new());
        for url in urls.split(',') {
            let address = wire::host_and_port(url);
            proxies.push(match store {
                // The nodes tell clients their own addresses.
                StoreKind::RedisCluster => Proxy::of_node(protocol, address, alias(place)).await,
                _ => Proxy::start(protocol, address).await,
            });
        }
        Self { kind, proxies, occupant: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Occupant> {
        self.occupant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn worker(&self) -> WorkerId {
        self.lock().worker
    }

    /// Returns the worker that has been here since this time, if it is the same.
    pub(super) fn worker_since(&self, since: Ms) -> Option<WorkerId> {
        let occupant = self.lock();
        (occupant.started <= since).then_some(occupant.worker)
    }

    /// Returns the port of a service that listens.
    pub(super) fn port(&self) -> Option<u16> {
        self.lock().port
    }

    pub(super) fn listens_on(&self, port: u16) {
        self.lock().port = Some(port);
    }

    pub(super) fn set_api(&self, address: &str) {
        address.clone_into(&mut self.lock().api);
    }

    /// Sets the environment of its processes.
    pub(super) fn prepare(&self, store: StoreKind, ledger: &str, url: &str, is_control: bool) {
        let urls: Vec<String> = url.split(',').zip(&self.proxies).map(|(url, proxy)| proxy.in_place_of(url)).collect();
        let mut variables = server::variables(store, &urls.join(","));
        variables.push((worker::LEDGER, ledger.to_owned()));
        if is_control {
            variables.push(("LAMBDA_ONCE_DISABLED", "1".to_owned()));
        }
        let mut occupant = self.lock();
        match self.kind {
            Kind::Service => variables.push((worker::ROLE, worker::SERVICE.to_owned())),
            Kind::Consumer => {
                variables.extend([(worker::ROLE, worker::CONSUMER.to_owned()), (worker::QUEUE, occupant.api.clone())])
            }
            Kind::Function(_) => {
                let name = |name: &str| name.to_owned();
                variables.extend([
                    (worker::ROLE, name(worker::FUNCTION)),
                    ("AWS_LAMBDA_RUNTIME_API", occupant.api.clone()),
                    ("AWS_LAMBDA_FUNCTION_NAME", name("chaos")),
                    ("AWS_LAMBDA_FUNCTION_VERSION", name("1")),
                    ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", name("128")),
                    ("AWS_LAMBDA_LOG_GROUP_NAME", name("group")),
                    ("AWS_LAMBDA_LOG_STREAM_NAME", name("stream")),
                ]);
            }
        }
        occupant.variables = variables;
    }

    /// Starts a process.
    pub(super) fn start(&self, world: &World) -> Result<()> {
        let (number, offset) = {
            let mut state = world.lock();
            state.workers += 1;
            (state.workers, state.random.i64(-MAX_OFFSET_MS..=MAX_OFFSET_MS))
        };
        let mut occupant = self.lock();
        let mut command = Command::new(env::current_exe()?);
        command.env_clear().envs(occupant.variables.iter().map(|(name, value)| (*name, value)));
        command.env(worker::NUMBER, number.to_string()).env(worker::OFFSET, offset.to_string());
        // The process ends with its input, and so with the coordinator.
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        occupant.worker = number;
        occupant.started = world.now();
        occupant.port = None;
        occupant.is_frozen = false;
        occupant.process = Some(command.spawn()?);
        Ok(())
    }

    /// Kills the process, if there is one.
    fn kill(&self) -> Option<WorkerId> {
        let mut occupant = self.lock();
        let mut process = occupant.process.take()?;
        occupant.port = None;
        let _ = process.kill(); // fails only if it has ended
        let _ = process.wait();
        Some(occupant.worker)
    }

    fn freeze(&self, world: &World) -> Option<WorkerId> {
        let mut occupant = self.lock();
        if occupant.is_frozen {
            return None;
        }
        let process = pid(occupant.process.as_ref()?)?;
        world.record(Fact::Frozen { worker: occupant.worker });
        occupant.is_frozen = kill_process(process, Signal::STOP).is_ok();
        Some(occupant.worker)
    }

    /// Continues the process, if it is still this worker.
    fn thaw_worker(&self, world: &World, worker: WorkerId) {
        let mut occupant = self.lock();
        if occupant.worker == worker
            && occupant.is_frozen
            && let Some(process) = occupant.process.as_ref().and_then(pid)
        {
            occupant.is_frozen = false;
            let _ = kill_process(process, Signal::CONT); // fails only if it has ended
            world.record(Fact::Thawed { worker });
        }
    }

    pub(super) fn thaw(&self, world: &World) {
        self.thaw_worker(world, self.worker());
    }

    /// Ends the process permanently.
    pub(super) fn end(&self) {
        self.kill();
    }

    fn has_ended(&self) -> bool {
        let mut occupant = self.lock();
        occupant.process.as_mut().is_some_and(|process| !matches!(process.try_wait(), Ok(None)))
    }
}

fn pid(process: &Child) -> Option<Pid> {
    Pid::from_raw(process.id().try_into().ok()?)
}

/// Kills and restarts a slot's worker.
fn replace(world: &World, slot: &Slot) {
    if let Some(worker) = slot.kill() {
        world.record(Fact::Killed { worker });
    }
    if !world.is_over.load(Ordering::SeqCst) {
        let _ = slot.start(world); // tried again
    }
}

/// Kills random workers, and restarts those that have ended by themselves.
pub(super) async fn kill_at_times(world: Arc<World>) {
    let (least, most) = world.options.store.pace().kills;
    loop {
        let pause = world.pause(least, most);
        sleep(pause).await;
        if world.is_over.load(Ordering::SeqCst) {
            return;
        }
        if world.has_faults() {
            let place = world.lock().random.usize(0..world.slots.len());
            world.lock().faults.add(Fault::Killed);
            replace(&world, &world.slots[place]);
        }
        for slot in world.slots.iter().filter(|slot| slot.has_ended()) {
            world.lock().faults.add(Fault::Ended);
            replace(&world, slot);
        }
    }
}

/// Freezes random workers, often past their lease.
pub(super) async fn freeze_at_times(world: Arc<World>) {
    loop {
        let pause = world.pause(300, 1_400);
        sleep(pause).await;
        if !world.has_faults() {
            return;
        }
        let place = world.lock().random.usize(0..world.slots.len());
        let Some(worker) = world.slots[place].freeze(&world) else { continue };
        world.lock().faults.add(Fault::Frozen);
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            let time: Duration = world.pause(300, 5_000);
            sleep(time).await;
            world.slots[place].thaw_worker(&world, worker);
        });
    }
}
