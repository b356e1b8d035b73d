//! Settles: what a run's end asks of the store, one by one or together.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    Conclusion,
    calls::{Backoff, CALL_AT_LEAST, within},
};
use crate::{
    Claim, Failure, Idempotency, Interruption,
    clock::Timestamp,
    error::{Error, ErrorKind},
    idempotency::guard::contain,
    record::{Record, StoredResult},
    store::{
        ClaimRequest, Refusal, ResultData, SettleRequest, Settled, Settlement, Takeover,
        rules::{self, Judgement},
    },
};

/// The time for outcomes after a handler that blocked its thread until the time for settling was over, or nearly so.
/// To give up without asking would report an operation as unrecorded, although a successor may have decided its outcome.
const SETTLE_WHEN_LATE: Duration = Duration::from_secs(1);

/// How a claim is to be settled, and what its caller is told then.
#[derive(Debug)]
pub(crate) struct Due<T> {
    settlement: Settlement,
    end: End<T>,
}

/// How a run ended whose claim is to be settled.
#[derive(Debug)]
pub(super) enum End<T> {
    Completed(T),
    Recovered(T),
    Forgotten(T),
    Failed(Failure),
    Panicked,
    NotStarted,
}

/// What became of claims that were settled together, each under the caller's name for it.
#[derive(Debug)]
pub(crate) struct Settling<K, T> {
    pub(crate) concluded: Vec<Concluded<K, T>>,
    /// Those that are to be sent again.
    pub(crate) open: Vec<Open<K, T>>,
}

/// What became of one of them.
#[derive(Debug)]
#[cfg_attr(not(feature = "batch"), expect(dead_code, reason = "a single operation has no name, and its claim at hand"))]
pub(crate) struct Concluded<K, T> {
    pub(crate) name: K,
    pub(crate) claim: Claim,
    pub(crate) conclusion: Conclusion<T>,
    /// The end of the lease that holds the key nevertheless: the claim's own if it could not be settled, or a successor's.
    pub(crate) lease_until: Option<Timestamp>,
}

/// A settle that is to be sent again.
#[derive(Debug)]
pub(crate) struct Open<K, T> {
    name: K,
    claim: Claim,
    due: Due<T>,
    /// What was in its way; `None` if it was changed since, and can be sent at once.
    trouble: Option<Error>,
}

impl<T> Due<T> {
    pub(super) fn new(settlement: Settlement, end: End<T>) -> Self {
        Self { settlement, end }
    }

    pub(super) fn release(claim: &Claim, end: End<T>) -> Self {
        Self { settlement: Settlement::Release { took_over: claim.took_over() }, end }
    }

    /// Whether the operation may run again.
    pub(crate) fn is_release(&self) -> bool {
        matches!(self.settlement, Settlement::Release { .. })
    }
}

impl Idempotency {
    /// Settles one claim, for as long as it takes and there is time.
    pub(super) async fn settle<T: Send>(&self, claim: Claim, due: Due<T>) -> Conclusion<T> {
        let Settling { mut concluded, open } = self.settle_together(vec![((), claim, due)]).await;
        concluded.extend(self.settle_again(open).await);
        concluded.pop().map_or(Conclusion::LeaseLost, |concluded| concluded.conclusion)
    }

    /// Gives claims up that nobody acted on, so that their operations may run again at once.
    pub(crate) async fn release(&self, claims: Vec<Claim>) {
        if claims.is_empty() {
            return;
        }
        let due = |claim| {
            let due = Due::<()>::release(&claim, End::NotStarted);
            (0_usize, claim, due)
        };
        let open = self.settle_together(claims.into_iter().map(due).collect()).await.open;
        self.settle_again(open).await;
    }

    /// Settles claims of one invocation with one call to the store.
    pub(crate) async fn settle_together<K: Send, T: Send>(&self, dues: Vec<(K, Claim, Due<T>)>) -> Settling<K, T> {
        self.send_settles(dues, SETTLE_WHEN_LATE).await
    }

    /// `late` is the time that outcomes get if there is none left.
    async fn send_settles<K: Send, T: Send>(&self, dues: Vec<(K, Claim, Due<T>)>, late: Duration) -> Settling<K, T> {
        let Some((_, first, due)) = dues.first() else {
            return Settling { concluded: Vec::new(), open: Vec::new() };
        };
        let left = first.window.settle_by.since(self.clock.now());
        let is_worth_waiting = dues.iter().any(|(_, _, due)| !due.is_release());
        let time = if is_worth_waiting && left < CALL_AT_LEAST { left.max(late) } else { left };
        let operation = due.settlement.as_str();
        let are_alike = dues.iter().all(|(_, _, due)| due.settlement.as_str() == operation);
        let operation = if are_alike { operation } else { "settle" };
        let mut requests = Vec::with_capacity(dues.len());
        let mut ends = Vec::with_capacity(dues.len());
        for (name, claim, Due { settlement, end }) in dues {
            let (key, owner, fingerprint) = (claim.key(), claim.owner, claim.fingerprint);
            requests.push(SettleRequest { key, owner, fingerprint, settlement });
            ends.push((name, claim, end));
        }
        let answers = within(time, operation, requests.len(), self.store.settle(&requests)).await;

        let mut settling = Settling { concluded: Vec::with_capacity(ends.len()), open: Vec::new() };
        for ((request, (name, claim, end)), answer) in requests.into_iter().zip(ends).zip(answers) {
            let due = Due { settlement: request.settlement, end };
            match answer {
                Err(error) if error.retry_helps() => {
                    settling.open.push(Open { name, claim, due, trouble: Some(error) });
                }
                Err(error)
                    if error.kind() == ErrorKind::Request && !error.redelivery_helps() && due.settlement.has_data() =>
                {
                    tracing::error!(target: "lambda_once", key = %claim.key(), %error, "the store does not take the result, so it is not kept; the operation stays done");
                    let due = Due { settlement: due.settlement.without_data(), ..due };
                    settling.open.push(Open { name, claim, due, trouble: None });
                }
                answer => settling.concluded.push(self.concluded(name, claim, due, answer)),
            }
        }
        settling
    }

    /// Sends settles again until each is answered, or the time is up.
    pub(crate) async fn settle_again<K: Send, T: Send>(&self, mut open: Vec<Open<K, T>>) -> Vec<Concluded<K, T>> {
        let mut concluded = Vec::with_capacity(open.len());
        let mut backoff = Backoff::default();
        while let Some(first) = open.first() {
            let settle_by = first.claim.window.settle_by;
            if open.iter().all(|open| open.trouble.is_some()) {
                let pause = backoff.next();
                if self.clock.now().after(pause) >= settle_by {
                    let given_up = open.into_iter().filter_map(|Open { name, claim, due, trouble }| {
                        Some(self.concluded(name, claim, due, Err(trouble?)))
                    });
                    concluded.extend(given_up);
                    return concluded;
                }
                sleep(pause).await;
            }
            // Those that were changed go first; the others keep their pause.
            let (now, later) = open.into_iter().partition(|open| open.trouble.is_none());
            let are_changed = !Vec::is_empty(&now);
            let (now, later): (Vec<_>, Vec<_>) = if are_changed { (now, later) } else { (later, now) };
            let dues = now.into_iter().map(|Open { name, claim, due, .. }| (name, claim, due)).collect();
            let late = if are_changed { SETTLE_WHEN_LATE } else { Duration::ZERO };
            let mut settling = self.send_settles(dues, late).await;
            concluded.append(&mut settling.concluded);
            open = settling.open;
            open.extend(later);
        }
        concluded
    }

    /// What a caller is told of a claim whose settle has been answered.
    fn concluded<K, T>(
        &self,
        name: K,
        claim: Claim,
        Due { settlement, end }: Due<T>,
        answer: Result<Settled, Error>,
    ) -> Concluded<K, T> {
        let (conclusion, lease_until) = match (end, answer) {
            // A run that is not recorded decides nothing, not even its failure. What was to be released may be lost.
            (end @ (End::Completed(_) | End::Recovered(_) | End::Failed(_)), Ok(Settled::LeaseLost { current }))
                if !matches!(settlement, Settlement::Release { .. }) =>
            {
                // What is the user's may panic when it is dropped.
                let _ = contain(|| drop(end));
                self.overtaken(&claim, current)
            }
            (end, Ok(_)) => (end.into_conclusion(), None),
            (end, Err(error)) => {
                log_unsettled(&claim, &settlement, &error);
                let conclusion = match end {
                    End::Completed(value) | End::Recovered(value) => Conclusion::Unrecorded(value),
                    end => end.into_conclusion(),
                };
                (conclusion, Some(claim.lease_until()))
            }
        };
        Concluded { name, claim, conclusion, lease_until }
    }

    /// What the record says about an operation whose lease was lost: a successor's outcome counts, our own does not. And
    /// until when it holds the key if it has none yet.
    fn overtaken<T>(&self, claim: &Claim, current: Option<Box<Record>>) -> (Conclusion<T>, Option<Timestamp>) {
        tracing::warn!(target: "lambda_once", key = %claim.key(), attempt = claim.attempt(), "the lease was lost before the outcome was recorded");
        let request = ClaimRequest {
            key: claim.key(),
            fingerprint: claim.fingerprint,
            owner: claim.owner,
            lease: Duration::ZERO,
            skew_margin: self.settings.skew_margin,
            retention: Duration::ZERO,
            takeover: Takeover::Refused,
            result_data: ResultData::Include,
        };
        match current.map(|record| rules::judge(&record, &request, self.clock.now())) {
            Some(Ok(Judgement::Refused(refusal @ (Refusal::Completed(_) | Refusal::Failed(_))))) => {
                (Conclusion::Overtaken(refusal), None)
            }
            Some(Ok(Judgement::Refused(Refusal::InProgress { lease_until, .. }))) => {
                (Conclusion::LeaseLost, lease_until)
            }
            _ => (Conclusion::LeaseLost, None),
        }
    }
}

impl<T> End<T> {
    fn into_conclusion(self) -> Conclusion<T> {
        match self {
            Self::Completed(value) => Conclusion::Completed(value),
            Self::Recovered(value) => Conclusion::Recovered(value),
            Self::Forgotten(value) => Conclusion::Forgotten(value),
            Self::Failed(failure) => Conclusion::Failed(failure),
            Self::Panicked => Conclusion::Interrupted(Interruption::Panicked),
            Self::NotStarted => Conclusion::NotStarted,
        }
    }
}

impl Settlement {
    fn has_data(&self) -> bool {
        matches!(self, Self::Complete { result, .. } | Self::Fail { result, .. } if result.data.is_some())
    }

    fn without_data(self) -> Self {
        let result = StoredResult::DROPPED;
        match self {
            Self::Complete { retention, .. } => Self::Complete { result, retention },
            Self::Fail { retention, .. } => Self::Fail { result, retention },
            other => other,
        }
    }
}

fn log_unsettled(claim: &Claim, settlement: &Settlement, error: &Error) {
    let key = claim.key();
    match settlement {
        Settlement::Complete { .. } => {
            tracing::error!(target: "lambda_once", %key, %error, "the operation is done but could not be recorded; it may run again after its lease");
        }
        Settlement::Fail { .. } => {
            tracing::error!(target: "lambda_once", %key, %error, "the permanent failure could not be recorded; the operation may run again after its lease");
        }
        _ => {
            tracing::warn!(target: "lambda_once", %key, %error, "the claim could not be released; it ends with its lease");
        }
    }
}
