//! The store of a plan, in memory, which records every request that was applied. Requests may reach it late, and bugs
//! may be planted in it.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use lambda_once::{
    BoxFuture, Error, ErrorKind, ErrorStatus, MemoryStore, Store,
    clock::{Clock, Timestamp},
    record::{Difference, KeyHash, Record, Status},
    store::{
        Answers, ClaimRequest, Claimed, FinalStatus, Limits, Mismatch, MismatchState, Refusal, ResultData,
        SettleRequest, Settled, Settlement, StoreId,
    },
};

use crate::{
    plan::{Faults, Plan},
    planted_bugs::PlantedBug,
    timeline::{Moment, Timeline, millis},
};

/// A request that was applied or refused, with its result.
#[derive(Clone, Debug)]
pub(crate) enum Applied {
    Claim(ClaimRequest, Claimed),
    Settle(SettleRequest, Settled),
}

#[derive(Clone, Debug)]
enum Request {
    Claim(ClaimRequest),
    Settle(SettleRequest),
}

/// The store of a plan. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct TestStore {
    memory: MemoryStore,
    timeline: Timeline,
    chunk: usize,
    faults: Arc<Faults>,
    /// Whether requests of a dropped call may still arrive.
    delivers_dropped: bool,
    bug: Option<PlantedBug>,
    state: Arc<Mutex<State>>,
}

/// A request that was sent and has not arrived yet.
#[derive(Debug)]
struct LateRequest {
    request: Request,
    sent: Timestamp,
    arrives: Timestamp,
}

#[derive(Debug)]
struct State {
    applied: Vec<(Moment, Applied)>,
    random: fastrand::Rng,
    late: Vec<LateRequest>,
}

/// The maximum time in milliseconds that a request is on its way after its sender was killed.
const LONGEST_AFTER_KILL_MS: u64 = 2_000;

impl TestStore {
    pub(crate) fn new(memory: MemoryStore, timeline: Timeline, plan: &Plan, bug: Option<PlantedBug>) -> Self {
        let random = fastrand::Rng::with_seed(!plan.seed);
        let state = Arc::new(Mutex::new(State { applied: Vec::new(), random, late: Vec::new() }));
        Self {
            memory,
            timeline,
            chunk: plan.settings.chunk,
            faults: Arc::new(plan.faults.clone()),
            delivers_dropped: plan.kills(),
            bug,
            state,
        }
    }

    pub(crate) fn applied(&self) -> Vec<(Moment, Applied)> {
        self.lock().applied.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Returns whether a request is delayed on its way.
    fn is_late(&self, request: impl FnOnce() -> Request) -> bool {
        if self.faults.late == 0 {
            return false;
        }
        let mut state = self.lock();
        let is_late = state.random.u32(0..1_000) < self.faults.late;
        if is_late {
            let sent = self.timeline.clock.now();
            let arrives = sent.after(millis(state.random.u64(1..=self.faults.late_ms.max(1))));
            state.late.push(LateRequest { request: request(), sent, arrives });
        }
        is_late
    }

    /// Applies the requests that have arrived by now.
    async fn apply_late_requests(&self) {
        loop {
            let now = self.timeline.clock.now();
            let arrived = {
                let late = &mut self.lock().late;
                late.iter().position(|late| late.arrives <= now).map(|at| late.remove(at))
            };
            let Some(LateRequest { request, sent, .. }) = arrived else { return };
            match request {
                // Its lease is the one that the sender computed.
                Request::Claim(request) => {
                    let lease = request.lease.saturating_sub(now.since(sent));
                    drop(self.apply_claim(ClaimRequest { lease, ..request }).await);
                }
                Request::Settle(request) => drop(self.apply_settle(request).await),
            }
        }
    }

    async fn travel(&self, requests: impl Iterator<Item = Request>) {
        if self.faults.latency_ms > 0 {
            let time = self.lock().random.u64(0..=self.faults.latency_ms);
            let requests = if self.delivers_dropped { requests.collect() } else { Vec::new() };
            let mut travelling = Travelling { store: self, requests, sent: self.timeline.clock.now() };
            tokio::time::sleep(millis(time)).await;
            travelling.requests.clear();
        }
        self.apply_late_requests().await;
    }

    async fn apply_claim(&self, request: ClaimRequest) -> Result<Claimed, Error> {
        let mut answer = one(self.memory.claim(std::slice::from_ref(&request)).await)?;
        if let Claimed::Refused(Refusal::InProgress { .. }) = &answer {
            match self.bug {
                Some(PlantedBug::GrantedTwice) => {
                    self.memory.remove(&request.key);
                    answer = one(self.memory.claim(std::slice::from_ref(&request)).await)?;
                }
                Some(PlantedBug::InProgressToldAsCompleted) => {
                    let record = self.read_one(request.key).await.unwrap();
                    answer =
                        Claimed::Refused(Refusal::Completed(Box::new(Record { status: Status::Completed, ..record })));
                }
                _ => {}
            }
        }
        let is_final = self.bug == Some(PlantedBug::MismatchToldAsFinal);
        if is_final && matches!(answer, Claimed::Refused(Refusal::Mismatch(_))) {
            answer = Claimed::Refused(Refusal::Mismatch(Mismatch::new(MismatchState::Final, Difference::UNKNOWN)));
        }
        self.note(Applied::Claim(request, answer.clone()));
        Ok(answer)
    }

    async fn apply_settle(&self, request: SettleRequest) -> Result<Settled, Error> {
        let mut sent = request.clone();
        let completes = matches!(sent.settlement, Settlement::Record { outcome: FinalStatus::Completed, .. });
        if self.bug == Some(PlantedBug::ReleasedAfterSuccess) && completes {
            sent.settlement = Settlement::Release;
        }
        if self.bug == Some(PlantedBug::OwnerIgnored)
            && let Some(record) = self.read_one(request.key).await
        {
            let owner = Some(request.owner);
            self.memory.insert(request.key, Record { owner, status: Status::InProgress, ..record });
        }
        let answer = one(self.memory.settle(&[sent]).await)?;
        self.note(Applied::Settle(request, answer.clone()));
        Ok(answer)
    }

    async fn read_one(&self, key: KeyHash) -> Option<Record> {
        self.memory.read(&[key], ResultData::Include).await.pop()?.unwrap()
    }

    fn note(&self, applied: Applied) {
        let now = self.timeline.now();
        self.lock().applied.push((now, applied));
    }
}

/// Requests on their way. If their call is dropped, some of them are lost and the others arrive later.
struct Travelling<'a> {
    store: &'a TestStore,
    requests: Vec<Request>,
    sent: Timestamp,
}

impl Drop for Travelling<'_> {
    fn drop(&mut self) {
        let mut state = self.store.lock();
        for request in mem::take(&mut self.requests) {
            if state.random.bool() {
                let arrives = self.sent.after(millis(state.random.u64(0..=LONGEST_AFTER_KILL_MS)));
                state.late.push(LateRequest { request, sent: self.sent, arrives });
            }
        }
    }
}

fn one<T>(mut answers: Answers<T>) -> Result<T, Error> {
    answers.pop().unwrap()
}

fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, "call", "it is still on its way")
}

impl Store for TestStore {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            self.travel(requests.iter().cloned().map(Request::Claim)).await;
            let mut answers = Vec::with_capacity(requests.len());
            for request in requests {
                let is_late = self.is_late(|| Request::Claim(request.clone()));
                answers.push(if is_late { Err(lost()) } else { self.apply_claim(request.clone()).await });
            }
            answers
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move {
            self.travel(requests.iter().cloned().map(Request::Settle)).await;
            let mut answers = Vec::with_capacity(requests.len());
            for request in requests {
                let is_late = self.is_late(|| Request::Settle(request.clone()));
                let is_lost = self.bug == Some(PlantedBug::SettleLostAndAcknowledged);
                answers.push(match request.settlement {
                    _ if is_late => Err(lost()),
                    Settlement::Record { outcome: FinalStatus::Completed, .. } if is_lost => {
                        Ok(Settled::Done { found: None })
                    }
                    _ => self.apply_settle(request.clone()).await,
                });
            }
            answers
        })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move {
            self.travel(std::iter::empty()).await;
            self.memory.read(keys, data).await
        })
    }

    fn id(&self) -> StoreId {
        StoreId::unique()
    }

    fn limits(&self) -> Limits {
        let batch = if self.bug == Some(PlantedBug::ChunkIgnored) { 1_000 } else { self.chunk };
        Limits { max_result_bytes: usize::MAX, batch, orders: false }
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.memory.warm_up()
    }
}
