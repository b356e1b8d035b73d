//! A store that records the engine's requests and their results.

use std::sync::{Arc, Mutex, MutexGuard};

use lambda_once::{
    BoxFuture, Error, Store,
    clock::Timestamp,
    record::{Fingerprint, KeyHash, Owner, Record, Status},
    store::{
        Answers, ClaimRequest, Claimed, FinalStatus, Limits, Mismatch, MismatchState, Refusal, ResultData,
        SettleRequest, Settled, Settlement, StoreId, fault::FaultStore,
    },
};

use crate::{
    planted_bugs::PlantedBug,
    store::TestStore,
    timeline::{Moment, Timeline, invocation, millis},
};

/// The result that the engine got for a claim or a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Granted,
    Completed,
    Failed,
    /// The end of the lease in the way, in milliseconds, if there is one.
    InProgress(Option<u64>),
    Abandoned,
    /// Another payload has an outcome.
    Mismatch,
    /// Another payload has a claim, until this time.
    MismatchInProgress(Option<u64>),
    /// Another payload has a lapsed claim.
    MismatchAbandoned,
    /// An error, no response, or no record.
    Nothing,
}

impl Told {
    /// Returns the end of the lease in the way, in milliseconds, if there is a claim.
    pub(crate) fn held_until(self) -> Option<Option<u64>> {
        match self {
            Self::InProgress(until) | Self::MismatchInProgress(until) => Some(until),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) invocation: usize,
    pub(crate) asked: Moment,
    /// The moment at which the call returned or was dropped.
    pub(crate) answered: Option<Moment>,
    pub(crate) key: KeyHash,
    pub(crate) owner: Owner,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) told: Told,
    /// The lease of a granted claim.
    pub(crate) lease_until: Option<Timestamp>,
    pub(crate) took_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ending {
    Complete,
    Fail,
    Release,
    Renew,
}

impl From<&Settlement> for Ending {
    fn from(settlement: &Settlement) -> Self {
        match settlement {
            Settlement::Record { outcome: FinalStatus::Completed, .. } => Self::Complete,
            Settlement::Record { outcome: FinalStatus::Failed, .. } => Self::Fail,
            Settlement::Release | Settlement::HandBack => Self::Release,
            Settlement::Renew { .. } => Self::Renew,
        }
    }
}

/// The result that the engine got for a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    Done,
    /// The lease was lost, to a record with this status and payload if there is one.
    Lost(Option<(Status, Option<Fingerprint>)>),
    /// An error, or no response.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settle {
    pub(crate) invocation: usize,
    pub(crate) asked: Moment,
    pub(crate) owner: Owner,
    pub(crate) ending: Ending,
    pub(crate) told: Settling,
}

/// A read of one record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) invocation: usize,
    /// The number of the call. Reads of one call share it.
    pub(crate) call: usize,
    pub(crate) asked: Moment,
    pub(crate) answered: Option<Moment>,
    pub(crate) key: KeyHash,
    pub(crate) told: Told,
    pub(crate) fingerprint: Option<Fingerprint>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct StoreCalls {
    pub(crate) claims: Vec<Claim>,
    pub(crate) settles: Vec<Settle>,
    pub(crate) reads: Vec<Read>,
}

#[derive(Clone, Debug)]
pub(crate) struct RecordedStore {
    inner: FaultStore<TestStore>,
    timeline: Timeline,
    bug: Option<PlantedBug>,
    calls: Arc<Mutex<StoreCalls>>,
}

impl RecordedStore {
    pub(crate) fn new(inner: FaultStore<TestStore>, timeline: Timeline, bug: Option<PlantedBug>) -> Self {
        Self { inner, timeline, bug, calls: Arc::default() }
    }

    pub(crate) fn calls(&self) -> StoreCalls {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, StoreCalls> {
        self.calls.lock().unwrap()
    }

    async fn read_once(&self, keys: &[KeyHash], data: ResultData) -> Answers<Option<Record>> {
        let (invocation, asked) = (invocation(), self.timeline.now());
        let first = {
            let reads = &mut self.lock().reads;
            let read = |key: &KeyHash| Read {
                invocation,
                call: reads.len(),
                asked,
                answered: None,
                key: *key,
                told: Told::Nothing,
                fingerprint: None,
            };
            let asked: Vec<Read> = keys.iter().map(read).collect();
            reads.extend(asked);
            reads.len() - keys.len()
        };
        let _returns = OnReturn(|| {
            let now = self.timeline.now();
            self.lock().reads[first..first + keys.len()].iter_mut().for_each(|read| read.answered = Some(now));
        });
        let answers = self.inner.read(keys, data).await;
        let now = self.timeline.now().at.seconds_rounded_down();
        for (read, answer) in self.lock().reads[first..].iter_mut().zip(&answers) {
            let record = answer.as_ref().ok().and_then(Option::as_ref);
            // An expired record counts as absent.
            let record = record.filter(|record| record.expiration.is_none_or(|end| end > now));
            read.told = record.map_or(Told::Nothing, result_of_record);
            read.fingerprint = record.and_then(|record| record.fingerprint);
        }
        answers
    }
}

/// Runs a function when a call returns or is dropped.
struct OnReturn<F: Fn()>(F);

impl<F: Fn()> Drop for OnReturn<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

pub(crate) fn result_of_claim(answer: &Claimed) -> Told {
    match answer {
        Claimed::Granted(_) => Told::Granted,
        Claimed::Refused(Refusal::Completed(_)) => Told::Completed,
        Claimed::Refused(Refusal::Failed(_)) => Told::Failed,
        Claimed::Refused(Refusal::InProgress { lease_until, .. }) => {
            Told::InProgress(lease_until.map(Timestamp::as_millis))
        }
        Claimed::Refused(Refusal::Abandoned { .. }) => Told::Abandoned,
        Claimed::Refused(Refusal::Mismatch(Mismatch { state: MismatchState::Final, .. })) => Told::Mismatch,
        Claimed::Refused(Refusal::Mismatch(Mismatch {
            state: MismatchState::InProgress { lease_until, .. }, ..
        })) => Told::MismatchInProgress(lease_until.map(Timestamp::as_millis)),
        Claimed::Refused(Refusal::Mismatch(Mismatch { state: MismatchState::Abandoned { .. }, .. })) => {
            Told::MismatchAbandoned
        }
        Claimed::Refused(Refusal::Superseded { .. }) => unreachable!("these operations have no order"),
    }
}

fn result_of_record(record: &Record) -> Told {
    match record.status {
        Status::Completed => Told::Completed,
        Status::Failed => Told::Failed,
        Status::InProgress => Told::InProgress(record.lease_until.map(Timestamp::as_millis)),
    }
}

fn result_of_settle(answer: &Result<Settled, Error>) -> Settling {
    match answer {
        Ok(Settled::Done { .. } | Settled::Renewed { .. }) => Settling::Done,
        Ok(Settled::LeaseLost { current }) => {
            Settling::Lost(current.as_ref().map(|record| (record.status, record.fingerprint)))
        }
        Err(_) => Settling::Nothing,
    }
}

impl Store for RecordedStore {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            let first = {
                let claims = &mut self.lock().claims;
                claims.extend(requests.iter().map(|request| Claim {
                    invocation: invocation(),
                    asked: self.timeline.now(),
                    answered: None,
                    key: request.key,
                    owner: request.owner,
                    fingerprint: request.fingerprint,
                    told: Told::Nothing,
                    lease_until: None,
                    took_over: false,
                }));
                claims.len() - requests.len()
            };
            let _returns = OnReturn(|| {
                let now = self.timeline.now();
                let claims = &mut self.lock().claims[first..first + requests.len()];
                claims.iter_mut().for_each(|claim| claim.answered = Some(now));
            });
            let answers = self.inner.claim(requests).await;
            for (claim, answer) in self.lock().claims[first..].iter_mut().zip(&answers) {
                claim.told = answer.as_ref().map_or(Told::Nothing, result_of_claim);
                if let Ok(Claimed::Granted(grant)) = answer {
                    claim.lease_until = Some(grant.lease_until);
                    claim.took_over = grant.took_over();
                }
            }
            answers
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move {
            if self.bug == Some(PlantedBug::SettlesHeldBack) {
                tokio::time::sleep(millis(100)).await;
            }
            let first = {
                let settles = &mut self.lock().settles;
                settles.extend(requests.iter().map(|request| Settle {
                    invocation: invocation(),
                    asked: self.timeline.now(),
                    owner: request.owner,
                    ending: (&request.settlement).into(),
                    told: Settling::Nothing,
                }));
                settles.len() - requests.len()
            };
            let answers = self.inner.settle(requests).await;
            let settles = &mut self.lock().settles[first..];
            settles.iter_mut().zip(&answers).for_each(|(settle, answer)| settle.told = result_of_settle(answer));
            answers
        })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move {
            if self.bug == Some(PlantedBug::PollsRepeated) {
                for _ in 0..100 {
                    self.read_once(keys, data).await;
                }
            }
            self.read_once(keys, data).await
        })
    }

    fn id(&self) -> StoreId {
        self.inner.id()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.warm_up()
    }
}
