//! What the engine asks of the store, and what it is told.

use std::sync::{Arc, Mutex, MutexGuard};

use lambda_once::{
    Error, Store,
    clock::Timestamp,
    record::{Fingerprint, KeyHash, Owner, Record, Status},
    store::{
        Answers, BoxFuture, ClaimRequest, Claimed, Limits, Refusal, ResultData, SettleRequest, Settled, Settlement,
        fault::FaultStore,
    },
};

use crate::{
    ground::Ground,
    watch::{Moment, Watch, invocation},
};

/// What the engine was told of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Granted,
    Completed,
    Failed,
    /// Until when the lease in its way lasts, in milliseconds, if that is known.
    InProgress(Option<u64>),
    Abandoned,
    Mismatch,
    /// An error, or nothing at all.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) invocation: usize,
    pub(crate) asked: Moment,
    pub(crate) key: KeyHash,
    pub(crate) owner: Owner,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) told: Told,
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
            Settlement::Complete { .. } => Self::Complete,
            Settlement::Fail { .. } => Self::Fail,
            Settlement::Release { .. } => Self::Release,
            Settlement::Renew { .. } => Self::Renew,
        }
    }
}

/// What the engine was told of a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// The claim is lost, to a record with this status and payload if there is one.
    Lost(Option<(Status, Option<Fingerprint>)>),
    Nothing,
}

/// A read of a record, and what it showed. `Nothing` if there is none, or no answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) invocation: usize,
    pub(crate) key: KeyHash,
    pub(crate) told: Told,
    pub(crate) fingerprint: Option<Fingerprint>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settle {
    pub(crate) owner: Owner,
    pub(crate) ending: Ending,
    pub(crate) verdict: Verdict,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) claims: Vec<Claim>,
    pub(crate) settles: Vec<Settle>,
    pub(crate) looks: Vec<Look>,
}

#[derive(Clone, Debug)]
pub(crate) struct Desk {
    inner: FaultStore<Ground>,
    watch: Watch,
    asked: Arc<Mutex<Asked>>,
}

impl Desk {
    pub(crate) fn new(inner: FaultStore<Ground>, watch: Watch) -> Self {
        Self { inner, watch, asked: Arc::default() }
    }

    pub(crate) fn asked(&self) -> Asked {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap()
    }
}

pub(crate) fn told(answer: &Claimed) -> Told {
    match answer {
        Claimed::Granted(_) => Told::Granted,
        Claimed::Refused(Refusal::Completed(_)) => Told::Completed,
        Claimed::Refused(Refusal::Failed(_)) => Told::Failed,
        Claimed::Refused(Refusal::InProgress { lease_until, .. }) => {
            Told::InProgress(lease_until.map(Timestamp::as_millis))
        }
        Claimed::Refused(Refusal::Abandoned { .. }) => Told::Abandoned,
        Claimed::Refused(Refusal::Mismatch) => Told::Mismatch,
    }
}

fn shown(record: &Record) -> Told {
    match record.status {
        Status::Completed => Told::Completed,
        Status::Failed => Told::Failed,
        Status::InProgress => Told::InProgress(record.lease_until.map(Timestamp::as_millis)),
    }
}

fn verdict(answer: &Result<Settled, Error>) -> Verdict {
    match answer {
        Ok(Settled::Done | Settled::Renewed { .. }) => Verdict::Done,
        Ok(Settled::LeaseLost { current }) => {
            Verdict::Lost(current.as_ref().map(|record| (record.status, record.fingerprint)))
        }
        Err(_) => Verdict::Nothing,
    }
}

impl Store for Desk {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            let first = {
                let asked = &mut self.lock().claims;
                let first = asked.len();
                asked.extend(requests.iter().map(|request| Claim {
                    invocation: invocation(),
                    asked: self.watch.now(),
                    key: request.key,
                    owner: request.owner,
                    fingerprint: request.fingerprint,
                    told: Told::Nothing,
                }));
                first
            };
            let answers = self.inner.claim(requests).await;
            let asked = &mut self.lock().claims[first..];
            asked
                .iter_mut()
                .zip(&answers)
                .for_each(|(claim, answer)| claim.told = answer.as_ref().map_or(Told::Nothing, told));
            answers
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move {
            let first = {
                let asked = &mut self.lock().settles;
                let first = asked.len();
                asked.extend(requests.iter().map(|request| Settle {
                    owner: request.owner,
                    ending: (&request.settlement).into(),
                    verdict: Verdict::Nothing,
                }));
                first
            };
            let answers = self.inner.settle(requests).await;
            let asked = &mut self.lock().settles[first..];
            asked.iter_mut().zip(&answers).for_each(|(settle, answer)| settle.verdict = verdict(answer));
            answers
        })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move {
            let answers = self.inner.read(keys, data).await;
            let invocation = invocation();
            let looks = keys.iter().zip(&answers).map(|(key, answer)| {
                let record = answer.as_ref().ok().and_then(Option::as_ref);
                let fingerprint = record.and_then(|record| record.fingerprint);
                Look { invocation, key: *key, told: record.map_or(Told::Nothing, shown), fingerprint }
            });
            self.lock().looks.extend(looks);
            answers
        })
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.warm()
    }
}
