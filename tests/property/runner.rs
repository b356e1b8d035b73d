//! Performs a plan on the real service, with tokio's time paused.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use lambda_once::{
    Builder, ErrorKind, Idempotency, Key, MemoryStore, MissingKey, OnPanic, Payload, PermanentFailures, RecordContext,
    Store,
    batch::{BatchService, FullBatchFailure, Handler, OnFailure, Processed, RecordInfo, RecordReport, Source, bulk},
    clock::{Clock, Timestamp},
    record::{Fingerprint, KeyHash, Owner, Record, Status},
    store::{ResultData, fault::FaultStore},
};
use lambda_runtime::{Context, LambdaEvent};

use crate::{
    handler::{Order, TestDeadLetters, TestHandler, TestRedelivery},
    journal::{Entries, Journal},
    kill::Mortal,
    plan::{Delivery, PayloadChoice, Plan, Policy, StoreFault, StoredRecord, StoredState, Waiting},
    planted_bugs::PlantedBug,
    recorded_store::{RecordedStore, StoreCalls},
    source::{TestEnvelope, TestEvent, TestSource, event, id_of, key_name},
    store::{Applied, TestStore},
    timeline::{INVOCATION, Moment, Timeline, millis},
};

/// The skew margin.
pub(crate) const MARGIN_MS: u64 = 1_000;

/// The lease if no deadline is known.
pub(crate) const LEASE_MS: u64 = 30_000;

/// A duration longer than any invocation.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// An invocation, as its caller sees it.
#[derive(Clone, Debug)]
pub(crate) struct Invocation {
    pub(crate) number: usize,
    /// The index in the plan of each record of the event.
    pub(crate) places: Vec<usize>,
    /// The number of the delivery of these records, from 0.
    pub(crate) delivery: usize,
    pub(crate) began: Timestamp,
    /// The time that it had, or 0 if its deadline was unknown.
    pub(crate) left_ms: u64,
    /// The time of its response or its kill.
    pub(crate) ended: Timestamp,
    /// Its response, or `None` if it was killed.
    pub(crate) answer: Option<Result<Vec<String>, ErrorKind>>,
    /// The report on each record.
    pub(crate) reports: Vec<RecordReport>,
}

/// The store's records at a moment.
pub(crate) type Snapshot = (Moment, HashMap<KeyHash, Record>);

/// The recorded history of a case.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) plan: Arc<Plan>,
    pub(crate) hashes: HashMap<usize, KeyHash>,
    pub(crate) stored: HashMap<KeyHash, Record>,
    pub(crate) invocations: Vec<Invocation>,
    pub(crate) journal: Entries,
    pub(crate) calls: StoreCalls,
    pub(crate) applied: Vec<(Moment, Applied)>,
    pub(crate) snapshots: Vec<Snapshot>,
    /// The number of tasks left at the end.
    pub(crate) tasks: usize,
}

/// Performs a plan, with the bug planted around the service.
pub(crate) fn perform(plan: &Arc<Plan>, bug: Option<PlantedBug>) -> History {
    match plan.settings.waiting {
        Waiting::OrderedOnly => perform_from::<{ Waiting::OrderedOnly as u8 }>(plan, bug),
        Waiting::All => perform_from::<{ Waiting::All as u8 }>(plan, bug),
        Waiting::AllOrNothing => perform_from::<{ Waiting::AllOrNothing as u8 }>(plan, bug),
    }
}

fn perform_from<const WAITING: u8>(plan: &Arc<Plan>, bug: Option<PlantedBug>) -> History {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    // The engine's pauses are random. Their numbers come from the thread's generator.
    fastrand::seed(plan.seed);
    runtime.block_on(async {
        let runner = Runner::new(plan, bug);
        let (one, many) = (runner.handler.clone(), runner.handler.clone());
        let handle = move |_: Order, context: RecordContext| one.clone().handle(context);
        let handle_all = move |_: Vec<Order>, contexts: Vec<RecordContext>| many.clone().handle_all(contexts);
        let together = plan.settings.together + usize::from(bug == Some(PlantedBug::TogetherIgnored));
        let handle_all = bulk(together, handle_all);
        let is_consecutive = plan.settings.consecutive || bug == Some(PlantedBug::ConsecutiveUnasked);
        match (together > 1, is_consecutive) {
            (false, _) => runner.perform::<_, _, WAITING>(handle).await,
            (true, false) => runner.perform::<_, _, WAITING>(handle_all).await,
            (true, true) => runner.perform::<_, _, WAITING>(handle_all.consecutive()).await,
        }
    })
}

struct Runner {
    plan: Arc<Plan>,
    bug: Option<PlantedBug>,
    timeline: Timeline,
    memory: MemoryStore,
    store: TestStore,
    faults: FaultStore<TestStore>,
    recorded: RecordedStore,
    once: Idempotency,
    handler: TestHandler,
    hashes: HashMap<usize, KeyHash>,
    stored: HashMap<KeyHash, Record>,
}

/// The engine's clock. Depending on the planted bug, it is behind, or does not show the duration of handler polls.
#[derive(Debug)]
struct EngineClock {
    journal: Journal,
    bug: Option<PlantedBug>,
}

impl Clock for EngineClock {
    fn now(&self) -> Timestamp {
        let now = self.journal.timeline.clock.now();
        match self.bug {
            Some(PlantedBug::ClockBehind) => now.before(millis(600)),
            Some(PlantedBug::PollsLookQuick) => now.before(self.journal.time_blocked()),
            _ => now,
        }
    }
}

impl Runner {
    fn new(plan: &Arc<Plan>, bug: Option<PlantedBug>) -> Self {
        let timeline = Timeline::new();
        let memory = MemoryStore::with_clock(timeline.clock.clone());
        let store = TestStore::new(memory.clone(), timeline.clone(), plan, bug);
        let rated = |store: FaultStore<TestStore>, (fault, rate): &(StoreFault, u32)| {
            store.with_rate((*fault).into(), f64::from(*rate) / 1_000.0)
        };
        let faults = plan.faults.rates.iter().fold(FaultStore::new(store.clone(), plan.seed), rated);
        let recorded = RecordedStore::new(faults.clone(), timeline.clone(), bug);
        let handler = TestHandler { plan: Arc::clone(plan), journal: Journal::new(timeline.clone()), bug };
        let once = engine_settings(plan, policy(plan, bug), Idempotency::builder(recorded.clone()));
        let once = once.clock(EngineClock { journal: handler.journal.clone(), bug }).build().unwrap();
        let keys = plan.keys().into_iter();
        let hashes: HashMap<_, _> = keys.map(|key| (key, once.key_hash("property", &key_name(key)).unwrap())).collect();
        let now = timeline.clock.now();
        let stored: HashMap<_, _> =
            plan.stored.iter().map(|(key, stored)| (hashes[key], stored_record(*stored, now))).collect();
        stored.iter().for_each(|(key, record)| memory.insert(*key, record.clone()));
        Self { plan: Arc::clone(plan), bug, timeline, memory, store, faults, recorded, once, handler, hashes, stored }
    }

    fn policy(&self) -> Policy {
        policy(&self.plan, self.bug)
    }

    fn has(&self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    fn service<H, Args, const WAITING: u8>(&self, handler: H) -> BatchService<TestSource<WAITING>, H, Order, Args>
    where
        H: Handler<Order, Args>,
    {
        let settings = &self.plan.settings;
        let acknowledges = settings.acknowledges_failures != self.has(PlantedBug::PermanentFailuresSwapped);
        let decoder = self.handler.clone();
        let decode = move |_: &RecordInfo, body: &String| decoder.decode(body);
        let mut service = self
            .once
            .batch(TestSource::new(&self.plan, self.bug), Key::pointer("/order_id"), decode, handler)
            .concurrency(settings.concurrency + usize::from(self.has(PlantedBug::ConcurrencyExceeded)))
            .on_failure(if settings.stops_batch { OnFailure::StopBatch } else { OnFailure::StopGroup })
            .permanent_failures(if acknowledges { PermanentFailures::Acknowledge } else { PermanentFailures::Report })
            .on_full_batch_failure(if settings.total_failure_is_error {
                FullBatchFailure::Error
            } else {
                FullBatchFailure::Report
            })
            .payload(match settings.payload {
                PayloadChoice::Body => Payload::Body,
                PayloadChoice::Part => Payload::Part(Key::pointer("/note")),
                PayloadChoice::Ignored => Payload::Ignored,
            })
            .dead_letter_abandoned(settings.dead_letter_abandoned);
        if settings.ignores {
            let handler = self.handler.clone();
            service = service.ignore(move |delivery| handler.is_no_work(delivery.body()));
        }
        if settings.all_or_error && !self.has(PlantedBug::AllOrErrorForgotten) {
            service = service.all_or_error();
        }
        if let Some(ms) = settings.expected_ms.filter(|_| !self.has(PlantedBug::ExpectedDurationIgnored)) {
            service = service.expected_duration(millis(ms));
        }
        if let Some(count) = settings.max_receive_count {
            service = service.max_receive_count(count);
        }
        if let Some(ms) = settings.wait_up_to_ms {
            service = service.wait_up_to(millis(ms));
        }
        if self.has(PlantedBug::WaitsWithoutLimit) {
            service = service.wait_up_to(FOR_EVER);
        }
        if let Some(ms) = settings.last_attempt_timeout_ms {
            service = service.last_attempt_timeout(millis(ms));
        }
        if self.has(PlantedBug::LastAttemptTimeoutIgnored) {
            service = service.last_attempt_timeout(FOR_EVER);
        }
        let journal = &self.handler.journal;
        if let Some(behaviour) = settings.dead_letters {
            service = service.dead_letters(TestDeadLetters { behaviour, journal: journal.clone() });
        }
        if let Some(behaviour) = settings.redelivery {
            service = service.redelivery(TestRedelivery { behaviour, journal: journal.clone(), bug: self.bug });
        }
        service
    }

    /// Performs the plan with this handler, and with a probe if the policy has one.
    async fn perform<H, Args, const WAITING: u8>(&self, handler: H) -> History
    where
        H: Handler<Order, Args, Output = String>,
        Args: 'static,
    {
        let service = self.service::<_, _, WAITING>(handler);
        if self.policy() != Policy::Probe {
            return self.take_out_and_deliver(service).await;
        }
        let prober = self.handler.clone();
        let probe = move |_: Order, context: RecordContext| prober.clone().probe(context);
        self.take_out_and_deliver(service.probe(probe)).await
    }

    async fn take_out_and_deliver<H, Args, const WAITING: u8>(
        &self,
        service: BatchService<TestSource<WAITING>, H, Order, Args>,
    ) -> History
    where
        H: Handler<Order, Args>,
        Args: 'static,
    {
        if self.plan.settings.envelopes {
            return self.deliver(service.envelope(TestEnvelope { bug: self.bug })).await;
        }
        self.deliver(service).await
    }

    /// Performs all deliveries, and reads the store after each.
    async fn deliver<S, H, Args>(&self, service: BatchService<S, H, Order, Args>) -> History
    where
        S: Source<Event = TestEvent, Response = Vec<String>>,
        H: Handler<Order, Args>,
        Args: 'static,
    {
        let mut invocations: Vec<Invocation> = Vec::new();
        let mut snapshots = Vec::new();
        let mut places: Vec<usize> = (0..self.plan.records.len()).collect();
        for (kind, fault) in &self.plan.faults.always {
            self.faults.always((*kind).into(), (*fault).into());
        }
        for (number, delivery) in self.plan.deliveries.iter().enumerate() {
            if let Some(last) = invocations.last() {
                tokio::time::sleep(millis(delivery.after_ms)).await;
                if !delivery.all {
                    places = reported(&self.plan, last);
                }
            }
            let first = invocations.len();
            let several = (0..delivery.starts_ms.len())
                .map(|nth| self.invoke(&service, first + nth, &places, (number, delivery), nth));
            invocations.extend(join_all(several).await);
            snapshots.push(self.read_all().await);
            self.faults.heal();
        }
        // Detached work has time to be recorded.
        tokio::time::sleep(millis(120_000)).await;
        History {
            plan: Arc::clone(&self.plan),
            hashes: self.hashes.clone(),
            stored: self.stored.clone(),
            invocations,
            journal: self.handler.journal.entries(),
            calls: self.recorded.calls(),
            applied: self.store.applied(),
            snapshots,
            tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        }
    }

    async fn invoke<S, H, Args>(
        &self,
        service: &BatchService<S, H, Order, Args>,
        number: usize,
        places: &[usize],
        (delivery, planned): (usize, &Delivery),
        nth: usize,
    ) -> Invocation
    where
        S: Source<Event = TestEvent, Response = Vec<String>>,
        H: Handler<Order, Args>,
        Args: 'static,
    {
        tokio::time::sleep(millis(planned.starts_ms[nth])).await;
        let event = event(&self.plan, places, u32::try_from(delivery).unwrap());
        let began = self.timeline.clock.now();
        let mut context = Context::default();
        if planned.left_ms > 0 {
            context.deadline = began.after(millis(planned.left_ms)).as_millis();
        }
        let answer = INVOCATION.scope(number, service.process(LambdaEvent::new(event, context)));
        let kill = planned.kills.get(nth).copied().flatten();
        let processed = tokio::time::timeout(FOR_EVER, Mortal::new(answer, kill)).await;
        let processed = processed.expect("the service answers some time");
        let ended = self.timeline.clock.now();
        let (answer, reports) = match processed {
            Some(Processed { response, records, .. }) => (Some(response.map_err(|error| error.kind())), records),
            None => (None, Vec::new()),
        };
        Invocation {
            number,
            places: places.to_vec(),
            delivery,
            began,
            left_ms: planned.left_ms,
            ended,
            answer,
            reports,
        }
    }

    async fn read_all(&self) -> Snapshot {
        let keys: Vec<KeyHash> = self.hashes.values().copied().collect();
        let records = self.memory.read(&keys, ResultData::Include).await;
        let found = keys.into_iter().zip(records).filter_map(|(key, record)| Some((key, record.unwrap()?)));
        (self.timeline.now(), found.collect())
    }
}

fn policy(plan: &Plan, bug: Option<PlantedBug>) -> Policy {
    if bug == Some(PlantedBug::PolicyIgnored) { Policy::Rerun } else { plan.settings.after_unknown }
}

fn engine_settings(plan: &Plan, policy: Policy, builder: Builder) -> Builder {
    let settings = &plan.settings;
    builder
        .scope("tests")
        .named("property")
        .disabled(false)
        .lease(millis(LEASE_MS))
        .skew_margin(millis(MARGIN_MS))
        .after_unknown(policy.into())
        .on_panic(if settings.releases_panics { OnPanic::Transient } else { OnPanic::Unknown })
        .missing_key(if settings.runs_without_key { MissingKey::RunUnprotected } else { MissingKey::Reject })
}

/// Returns the records that are redelivered after such an invocation.
fn reported(plan: &Plan, invocation: &Invocation) -> Vec<usize> {
    let Some(Ok(ids)) = &invocation.answer else { return invocation.places.clone() };
    let ids: HashSet<&str> = ids.iter().map(String::as_str).collect();
    let is_reported = |at: &usize| plan.records[*at].id.is_some_and(|id| ids.contains(&*id_of(id)));
    invocation.places.iter().copied().filter(is_reported).collect()
}

fn stored_record(stored: StoredRecord, now: Timestamp) -> Record {
    let (status, lease_until) = match stored.state {
        StoredState::Completed | StoredState::Expired => (Status::Completed, None),
        StoredState::Failed => (Status::Failed, None),
        StoredState::InProgress(ms) => (Status::InProgress, Some(now.after(millis(ms)))),
        StoredState::Lapsed(_) => (Status::InProgress, Some(now.before(millis(MARGIN_MS + 1)))),
    };
    let expiration = match stored.state {
        StoredState::Expired => now.seconds_rounded_down(),
        _ => now.after(millis(1_000_000_000)).seconds_rounded_up(),
    };
    Record {
        owner: Some(Owner::from_bytes([9; 16])),
        attempt: 1,
        lease_until,
        expiration: Some(expiration),
        fingerprint: stored.other_payload.then_some(Fingerprint::from_bytes([7; 32])),
        ..Record::new(status)
    }
}
