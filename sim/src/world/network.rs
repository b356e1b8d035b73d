//! The network between a worker and the store, which loses, delays and repeats requests and responses.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    BoxFuture, Error, ErrorKind, ErrorStatus, Store,
    clock::Clock,
    record::{KeyHash, Record},
    store::{
        Answers, ClaimRequest, Claimed, Database, Limits, RecordFormat, ResultData, SettleRequest, Settled, StoreId,
    },
};
use tokio::{sync::oneshot, time::sleep};

use super::{
    WorkerClock, World,
    server::{Request, Response, outcome},
};
use crate::counters::Fault;

/// A worker's connection to the store.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) world: Arc<World>,
    pub(super) clock: WorkerClock,
    pub(super) copies: Copies,
    pub(super) id: StoreId,
}

/// The time after which the requests of the current invocation arrive a second time, in milliseconds, or 0 if they do
/// not.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies(Arc<AtomicU64>);

impl Copies {
    pub(super) fn draw(&self, world: &World) {
        let is_copied = world.strikes(world.plan.faults.copied, Fault::Copied);
        let after = if is_copied { world.lock().random.between(1_000, world.plan.max_late) } else { 0 };
        self.0.store(after, Ordering::Relaxed);
    }

    fn after(&self) -> Option<Duration> {
        Some(self.0.load(Ordering::Relaxed)).filter(|after| *after > 0).map(Duration::from_millis)
    }
}

/// The fate of a call on its way.
struct Routing {
    /// The time of each copy that arrives.
    arrivals: Vec<Duration>,
    /// The time of the response's way back, or `None` if it is lost.
    back: Option<Duration>,
    /// The time after which the connection breaks, if it does.
    breaks: Option<Duration>,
}

type Given = Vec<Result<Response, Error>>;

impl Connection {
    fn route(&self) -> Routing {
        let world = &*self.world;
        let (latency, faults) = (world.plan.latency, &world.plan.faults);
        let way = || world.lock().random.pause(1, latency);
        let late = || world.lock().random.pause(latency, world.plan.max_late);
        let is_lost = world.draws(faults.request_lost);
        let is_doubled = world.draws(faults.request_doubled);
        let mut arrivals = Vec::new();
        for is_sent in [!is_lost, is_doubled] {
            if is_sent {
                let is_late = world.strikes(faults.request_late, Fault::RequestLate);
                arrivals.push(if is_late { late() } else { way() });
            }
        }
        if arrivals.len() == 2 {
            world.count(Fault::RequestDoubled);
        }
        arrivals.extend(self.copies.after());
        if arrivals.is_empty() {
            world.count(Fault::RequestLost);
        }
        let back = if world.draws(faults.answer_lost) {
            // A request that does not arrive has no response.
            if !arrivals.is_empty() {
                world.count(Fault::AnswerLost);
            }
            None
        } else if world.strikes(faults.answer_late, Fault::AnswerLate) {
            Some(world.lock().random.pause(latency, 8_000))
        } else {
            Some(way())
        };
        let is_broken = (arrivals.is_empty() || back.is_none()) && world.lock().random.chance(600);
        let breaks = is_broken.then(|| world.lock().random.pause(latency, 1_500));
        Routing { arrivals, back, breaks }
    }

    async fn call(&self, operation: &'static str, requests: Vec<Request>) -> Given {
        let count = requests.len();
        let Routing { arrivals, back, breaks } = self.route();
        let (sender, receiver) = oneshot::channel();
        let (sent, requests) = (self.clock.now(), Arc::new(requests));
        let mut sender = Some(sender);
        for arrival in arrivals {
            let (world, requests) = (Arc::clone(&self.world), Arc::clone(&requests));
            // The first copy's response is the one that the sender waits for.
            let answered = sender.take().zip(back);
            tokio::spawn(async move {
                sleep(arrival).await;
                let given = world.arrive(operation, &requests, sent);
                if let Some((sender, back)) = answered {
                    sleep(back).await;
                    world.step();
                    // The worker is dead, or has timed out.
                    let _ = sender.send(given);
                }
            });
        }
        let given = receiver.await;
        match (given, breaks) {
            (Ok(given), _) => given,
            (Err(_), Some(breaks)) => {
                sleep(breaks).await;
                (0..count).map(|_| Err(broken(operation))).collect()
            }
            (Err(_), None) => std::future::pending().await,
        }
    }
}

impl World {
    /// Applies a call that arrives at the server.
    fn arrive(&self, operation: &'static str, requests: &[Request], sent: lambda_once::clock::Timestamp) -> Given {
        self.step();
        let faults = &self.plan.faults;
        if self.strikes(faults.throttled, Fault::Throttled) {
            return requests.iter().map(|_| Err(throttled(operation))).collect();
        }
        let mut given: Given = Vec::with_capacity(requests.len());
        for request in requests {
            let fails = self.strikes(faults.member_failed, Fault::MemberFailed);
            if fails && self.lock().random.chance(500) {
                given.push(Err(throttled(operation)));
                continue;
            }
            let answer = self.server.apply(request, sent, self.timestamp());
            if !matches!(request, Request::Read(..)) {
                self.show(&request.key(), outcome(self.server.record(&request.key()).as_ref()));
            }
            given.push(if fails { Err(broken(operation)) } else { answer });
        }
        if let Some(bug) = self.bug {
            bug.mix(&mut given);
        }
        given
    }
}

fn broken(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, operation, "simulated: the connection broke")
}

fn throttled(operation: &'static str) -> Error {
    Error::new(ErrorKind::Throttled, ErrorStatus::Temporary, operation, "simulated: the rate is exceeded")
}

fn of_kind<T>(given: Given, get: impl Fn(Response) -> Option<T>) -> Answers<T> {
    let unwrap = |response| get(response).expect("the server answers with the kind of the request");
    given.into_iter().map(|answer| answer.map(unwrap)).collect()
}

#[deny(clippy::missing_trait_methods)]
impl Store for Connection {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            let given = self.call("claim", requests.iter().cloned().map(Request::Claim).collect()).await;
            of_kind(given, |response| if let Response::Claimed(claimed) = response { Some(claimed) } else { None })
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move {
            let given = self.call("settle", requests.iter().cloned().map(Request::Settle).collect()).await;
            of_kind(given, |response| if let Response::Settled(settled) = response { Some(settled) } else { None })
        })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move {
            let given = self.call("read", keys.iter().map(|key| Request::Read(*key, data)).collect()).await;
            of_kind(
                given,
                |response| if let Response::Found(found) = response { Some(found.map(|record| *record)) } else { None },
            )
        })
    }

    fn limits(&self) -> Limits {
        self.world.server.memory.limits()
    }

    fn id(&self) -> StoreId {
        self.id
    }

    fn format(&self) -> RecordFormat {
        RecordFormat::Native
    }

    fn database(&self) -> Database<'_> {
        Database::new("simulated")
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}
