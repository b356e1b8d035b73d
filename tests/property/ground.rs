//! The store itself, with a record of all that was applied to it. Requests may reach it late, and it may be planted with
//! a bug.

use std::sync::{Arc, Mutex, MutexGuard};

use lambda_once::{
    Error, ErrorKind, ErrorStatus, MemoryStore, Store,
    clock::{Clock, Timestamp},
    record::{KeyHash, Record, Status},
    store::{
        Answers, BoxFuture, ClaimRequest, Claimed, Limits, Refusal, ResultData, SettleRequest, Settled, Settlement,
    },
};

use crate::{
    plan::{Plan, Trouble},
    plants::Plant,
    watch::{Moment, Watch, millis},
};

/// A request that was applied, or refused.
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

#[derive(Clone, Debug)]
pub(crate) struct Ground {
    memory: MemoryStore,
    watch: Watch,
    chunk: usize,
    trouble: Arc<Trouble>,
    plant: Option<Plant>,
    state: Arc<Mutex<Below>>,
}

/// What is on its way.
#[derive(Debug)]
struct Late {
    request: Request,
    sent: Timestamp,
    arrives: Timestamp,
}

#[derive(Debug)]
struct Below {
    applied: Vec<(Moment, Applied)>,
    random: fastrand::Rng,
    late: Vec<Late>,
}

impl Ground {
    pub(crate) fn new(memory: MemoryStore, watch: Watch, plan: &Plan, plant: Option<Plant>) -> Self {
        let random = fastrand::Rng::with_seed(!plan.seed);
        let state = Arc::new(Mutex::new(Below { applied: Vec::new(), random, late: Vec::new() }));
        Self { memory, watch, chunk: plan.settings.chunk, trouble: Arc::new(plan.trouble.clone()), plant, state }
    }

    pub(crate) fn applied(&self) -> Vec<(Moment, Applied)> {
        self.lock().applied.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Below> {
        self.state.lock().unwrap()
    }

    /// Whether a request is lost on its way for now.
    fn is_late(&self, request: impl FnOnce() -> Request) -> bool {
        if self.trouble.late == 0 {
            return false;
        }
        let mut state = self.lock();
        let is_late = state.random.u32(0..1_000) < self.trouble.late;
        if is_late {
            let sent = self.watch.clock.now();
            let arrives = sent.after(millis(state.random.u64(1..=self.trouble.late_ms.max(1))));
            state.late.push(Late { request: request(), sent, arrives });
        }
        is_late
    }

    /// Applies what has arrived by now.
    async fn catch_up(&self) {
        loop {
            let now = self.watch.clock.now();
            let arrived = {
                let late = &mut self.lock().late;
                late.iter().position(|late| late.arrives <= now).map(|at| late.remove(at))
            };
            let Some(Late { request, sent, .. }) = arrived else { return };
            match request {
                // Its lease is as the sender has computed it.
                Request::Claim(request) => {
                    let lease = request.lease.saturating_sub(now.since(sent));
                    drop(self.apply_claim(ClaimRequest { lease, ..request }).await);
                }
                Request::Settle(request) => drop(self.apply_settle(request).await),
            }
        }
    }

    async fn on_the_way(&self) {
        if self.trouble.latency_ms > 0 {
            let time = self.lock().random.u64(0..=self.trouble.latency_ms);
            tokio::time::sleep(millis(time)).await;
        }
        self.catch_up().await;
    }

    async fn apply_claim(&self, request: ClaimRequest) -> Result<Claimed, Error> {
        let mut answer = one(self.memory.claim(std::slice::from_ref(&request)).await)?;
        if self.plant == Some(Plant::GrantedTwice) && matches!(answer, Claimed::Refused(Refusal::InProgress { .. })) {
            self.memory.remove(&request.key);
            answer = one(self.memory.claim(std::slice::from_ref(&request)).await)?;
        }
        self.note(Applied::Claim(request, answer.clone()));
        Ok(answer)
    }

    async fn apply_settle(&self, request: SettleRequest) -> Result<Settled, Error> {
        let mut sent = request.clone();
        if self.plant == Some(Plant::ReleasedAfterSuccess) && matches!(sent.settlement, Settlement::Complete { .. }) {
            sent.settlement = Settlement::Release { took_over: false };
        }
        if self.plant == Some(Plant::OwnerIgnored)
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
        let now = self.watch.now();
        self.lock().applied.push((now, applied));
    }
}

fn one<T>(mut answers: Answers<T>) -> Result<T, Error> {
    answers.pop().unwrap()
}

fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, ErrorStatus::Ambiguous, "call", "it is still on its way")
}

impl Store for Ground {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            self.on_the_way().await;
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
            self.on_the_way().await;
            let mut answers = Vec::with_capacity(requests.len());
            for request in requests {
                let is_late = self.is_late(|| Request::Settle(request.clone()));
                answers.push(if is_late { Err(lost()) } else { self.apply_settle(request.clone()).await });
            }
            answers
        })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move {
            self.on_the_way().await;
            self.memory.read(keys, data).await
        })
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: usize::MAX, batch: self.chunk }
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.memory.warm()
    }
}
