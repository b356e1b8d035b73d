//! Performs a plan on the real service, with tokio's time paused.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use lambda_once::{
    ErrorKind, Idempotency, Key, MemoryStore, MissingKey, OnPanic, PermanentFailures, RecordContext, Store,
    batch::{BatchService, Handler, OnFailure, RecordReport, TotalFailure, bulk},
    clock::{Clock, Timestamp},
    idempotency::Builder,
    record::{Fingerprint, KeyHash, Owner, RECORD_VERSION, Record, Status, StoredResult},
    store::{ResultData, fault::FaultStore},
};
use lambda_runtime::{Context, LambdaEvent};

use crate::{
    desk::{Asked, Desk},
    ground::{Applied, Ground},
    hand::{Hand, Job, Letters},
    journal::{Journal, Pages},
    plan::{Delivery, Kept, Mishap, Plan, Policy, State},
    plants::Plant,
    post::{Post, event, key_name, name},
    watch::{INVOCATION, Moment, Watch, millis},
};

/// What the margin for clocks is.
pub(crate) const MARGIN_MS: u64 = 1_000;

/// How long a lease lasts if no deadline is known.
pub(crate) const LEASE_MS: u64 = 30_000;

/// Longer than any invocation.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// One invocation, from outside.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) number: usize,
    /// For each record of the event, its place in the plan.
    pub(crate) places: Vec<usize>,
    /// Which delivery of them this is, from 0.
    pub(crate) delivery: usize,
    pub(crate) began: Timestamp,
    /// How much time it had; 0 if its deadline was not known.
    pub(crate) left_ms: u64,
    pub(crate) answered: Timestamp,
    pub(crate) answer: Result<Vec<String>, ErrorKind>,
    /// What is said of each record.
    pub(crate) reports: Vec<RecordReport>,
}

/// What the store had at a time.
pub(crate) type Snapshot = (Moment, HashMap<KeyHash, Record>);

/// Everything that was seen of a case.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) plan: Arc<Plan>,
    pub(crate) hashes: HashMap<usize, KeyHash>,
    pub(crate) kept: HashMap<KeyHash, Record>,
    pub(crate) calls: Vec<Call>,
    pub(crate) pages: Pages,
    pub(crate) asked: Asked,
    pub(crate) applied: Vec<(Moment, Applied)>,
    pub(crate) snapshots: Vec<Snapshot>,
    /// How many tasks were left.
    pub(crate) tasks: usize,
}

/// Performs a plan; the bug is planted in what surrounds the service.
pub(crate) fn perform(plan: &Arc<Plan>, plant: Option<Plant>) -> Seen {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    // The engine's pauses are random; its numbers come from the thread.
    fastrand::seed(plan.seed);
    runtime.block_on(async {
        let stage = Stage::set(plan, plant);
        let (one, many) = (stage.hand.clone(), stage.hand.clone());
        let handle = move |_: Job, context: RecordContext| one.clone().handle(context);
        let handle_all = move |_: Vec<Job>, contexts: Vec<RecordContext>| many.clone().handle_all(contexts);
        let prober = stage.hand.clone();
        let probe = move |_: Job, context: RecordContext| prober.clone().probe(context);
        let together = plan.settings.together;
        match (together > 1, plan.settings.after_unknown == Policy::Probe) {
            (false, false) => stage.deliver(stage.service(handle)).await,
            (false, true) => stage.deliver(stage.service(handle).probe(probe)).await,
            (true, false) => stage.deliver(stage.service(bulk(together, handle_all))).await,
            (true, true) => stage.deliver(stage.service(bulk(together, handle_all)).probe(probe)).await,
        }
    })
}

struct Stage {
    plan: Arc<Plan>,
    plant: Option<Plant>,
    watch: Watch,
    memory: MemoryStore,
    ground: Ground,
    faults: FaultStore<Ground>,
    desk: Desk,
    once: Idempotency,
    hand: Hand,
    hashes: HashMap<usize, KeyHash>,
    kept: HashMap<KeyHash, Record>,
}

impl Stage {
    fn set(plan: &Arc<Plan>, plant: Option<Plant>) -> Self {
        let watch = Watch::new();
        let memory = MemoryStore::with_clock(watch.clock.clone());
        let ground = Ground::new(memory.clone(), watch.clone(), plan, plant);
        let rated = |store: FaultStore<Ground>, (mishap, rate): &(Mishap, u32)| {
            store.with_rate((*mishap).into(), f64::from(*rate) / 1_000.0)
        };
        let faults = plan.trouble.rates.iter().fold(FaultStore::new(ground.clone(), plan.seed), rated);
        let desk = Desk::new(faults.clone(), watch.clone());
        let once = settings(plan, Idempotency::builder(desk.clone())).clock(watch.clock.clone()).build().unwrap();
        let keys = plan.keys().into_iter();
        let hashes: HashMap<_, _> = keys.map(|key| (key, once.key_hash("property", &key_name(key)).unwrap())).collect();
        let now = watch.clock.now();
        let kept: HashMap<_, _> = plan.kept.iter().map(|(key, kept)| (hashes[key], record(*kept, now))).collect();
        kept.iter().for_each(|(key, record)| memory.insert(*key, record.clone()));
        let hand = Hand { plan: Arc::clone(plan), journal: Journal::new(watch.clone()), plant };
        Self { plan: Arc::clone(plan), plant, watch, memory, ground, faults, desk, once, hand, hashes, kept }
    }

    fn service<H, Args>(&self, handler: H) -> BatchService<Post, H, Job, Args>
    where
        H: Handler<Job, Args>,
    {
        let settings = &self.plan.settings;
        let hand = self.hand.clone();
        let source = Post::new(&self.plan, self.plant);
        let decode = move |body: &String| hand.decode(body);
        let mut service = self
            .once
            .batch(source, Key::pointer("/order_id"), decode, handler)
            .concurrency(settings.concurrency)
            .on_failure(if settings.stops_batch { OnFailure::StopBatch } else { OnFailure::StopGroup })
            .permanent_failures(if settings.acknowledges_failures {
                PermanentFailures::Acknowledge
            } else {
                PermanentFailures::Report
            })
            .total_failure(if settings.total_failure_is_error { TotalFailure::Error } else { TotalFailure::Report });
        if let Some(ms) = settings.expected_ms {
            service = service.expected_duration(millis(ms));
        }
        if let Some(count) = settings.max_receive_count {
            service = service.max_receive_count(count);
        }
        if let Some(letterbox) = settings.dead_letters {
            service = service.dead_letters(Letters { letterbox, journal: self.hand.journal.clone() });
        }
        service
    }

    /// Delivers all that the plan says, and looks around after each delivery.
    async fn deliver<H, Args>(&self, service: BatchService<Post, H, Job, Args>) -> Seen
    where
        H: Handler<Job, Args>,
        Args: 'static,
    {
        let mut calls: Vec<Call> = Vec::new();
        let mut snapshots = Vec::new();
        let mut places: Vec<usize> = (0..self.plan.records.len()).collect();
        for (kind, mishap) in &self.plan.trouble.always {
            self.faults.always((*kind).into(), (*mishap).into());
        }
        for (number, delivery) in self.plan.deliveries.iter().enumerate() {
            if let Some(last) = calls.last() {
                tokio::time::sleep(millis(delivery.after_ms)).await;
                if !delivery.all {
                    places = reported(&self.plan, last);
                }
            }
            let first = calls.len();
            let starts = delivery.starts_ms.iter().enumerate();
            let several =
                starts.map(|(nth, start)| self.invoke(&service, first + nth, &places, (number, delivery), *start));
            calls.extend(join_all(several).await);
            snapshots.push(self.look().await);
            self.faults.heal();
        }
        // Whatever goes on behind the service's back has time to be noticed.
        tokio::time::sleep(millis(120_000)).await;
        Seen {
            plan: Arc::clone(&self.plan),
            hashes: self.hashes.clone(),
            kept: self.kept.clone(),
            calls,
            pages: self.hand.journal.pages(),
            asked: self.desk.asked(),
            applied: self.ground.applied(),
            snapshots,
            tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        }
    }

    async fn invoke<H, Args>(
        &self,
        service: &BatchService<Post, H, Job, Args>,
        number: usize,
        places: &[usize],
        (nth, delivery): (usize, &Delivery),
        start_ms: u64,
    ) -> Call
    where
        H: Handler<Job, Args>,
        Args: 'static,
    {
        tokio::time::sleep(millis(start_ms)).await;
        let event = event(&self.plan, places, u32::try_from(nth).unwrap());
        let began = self.watch.clock.now();
        let mut context = Context::default();
        if delivery.left_ms > 0 {
            context.deadline = began.after(millis(delivery.left_ms)).as_millis();
        }
        let answer = INVOCATION.scope(number, service.process(LambdaEvent::new(event, context)));
        let processed = tokio::time::timeout(FOR_EVER, answer).await.expect("the service answers some time");
        let answered = self.watch.clock.now();
        Call {
            number,
            places: places.to_vec(),
            delivery: nth,
            began,
            left_ms: delivery.left_ms,
            answered,
            answer: processed.response.map_err(|error| error.kind()),
            reports: processed.records,
        }
    }

    async fn look(&self) -> Snapshot {
        let keys: Vec<KeyHash> = self.hashes.values().copied().collect();
        let records = self.memory.read(&keys, ResultData::Include).await;
        let found = keys.into_iter().zip(records).filter_map(|(key, record)| Some((key, record.unwrap()?)));
        (self.watch.now(), found.collect())
    }
}

fn settings(plan: &Plan, builder: Builder) -> Builder {
    let settings = &plan.settings;
    builder
        .scope("tests")
        .named("property")
        .disabled(false)
        .lease(millis(LEASE_MS))
        .skew_margin(millis(MARGIN_MS))
        .after_unknown(settings.after_unknown.into())
        .on_panic(if settings.releases_panics { OnPanic::Transient } else { OnPanic::Unknown })
        .missing_key(if settings.runs_without_key { MissingKey::RunUnprotected } else { MissingKey::Reject })
}

/// The records that are delivered again after such an answer.
fn reported(plan: &Plan, call: &Call) -> Vec<usize> {
    let Ok(ids) = &call.answer else { return call.places.clone() };
    let ids: HashSet<&str> = ids.iter().map(String::as_str).collect();
    let is_reported = |at: &usize| plan.records[*at].id.is_some_and(|id| ids.contains(&*name(id)));
    call.places.iter().copied().filter(is_reported).collect()
}

fn record(kept: Kept, now: Timestamp) -> Record {
    let (status, lease_until) = match kept.state {
        State::Completed | State::Expired => (Status::Completed, None),
        State::Failed => (Status::Failed, None),
        State::InProgress(ms) => (Status::InProgress, Some(now.after(millis(ms)))),
        State::Lapsed(_) => (Status::InProgress, Some(now.before(millis(MARGIN_MS + 1)))),
    };
    let expiration = match kept.state {
        State::Expired => now.seconds_rounded_down(),
        _ => now.after(millis(1_000_000_000)).seconds_rounded_up(),
    };
    Record {
        status,
        owner: Some(Owner::from_bytes([9; 16])),
        attempt: 1,
        prior_status: None,
        lease_until,
        expiration: Some(expiration),
        fingerprint: kept.other_payload.then_some(Fingerprint::from_bytes([7; 32])),
        result: StoredResult::default(),
        version: RECORD_VERSION,
    }
}
