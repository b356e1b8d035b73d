//! The protocol: claim, run, settle. Everything that wraps a handler goes through here.

use std::{collections::HashMap, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use super::{
    Claim, Failure, Idempotency, Interruption, OnPanic, Outcome, Verdict,
    guard::{Ended, Guarded, discard},
    result,
    window::Window,
};
use crate::{
    error::{Error, ErrorKind, ErrorStatus},
    record::{Fingerprint, KeyHash, Owner, Record, Status, StoredResult},
    store::{
        Answers, ClaimRequest, Claimed, Refusal, SettleRequest, Settled, Settlement, Takeover,
        rules::{self, Judgement},
    },
};

/// How often a claim is sent when the store is in trouble, the first time included. A delivery that gets no answer is
/// better given back than waited for.
const CLAIM_ATTEMPTS: u32 = 3;

/// The time for an outcome after a handler that blocked its thread until the time for settling was over, or nearly so. To give up without asking
/// would report the operation as unrecorded, although a successor may have decided its outcome.
const SETTLE_WHEN_LATE: Duration = Duration::from_secs(1);

/// What is too short for a call to the store.
const SETTLE_AT_LEAST: Duration = Duration::from_millis(100);

/// An operation that wants to be claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: KeyHash,
    pub(crate) fingerprint: Option<Fingerprint>,
}

/// What a claim led to.
#[derive(Debug)]
pub(crate) enum Standing {
    Claimed(Claim),
    Refused(Refusal),
    /// Granted after the stop point; released again.
    NotStarted,
}

/// A handler's success, and whether it is to be remembered.
#[derive(Debug)]
pub(crate) enum Success<T> {
    Remember(T),
    /// The operation may run again, as after a transient failure.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "the HTTP layer has answers that are not remembered"))]
    Forget(T),
    /// Nobody knows whether the operation took effect, as after an unknown failure.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "the HTTP layer hands on errors as they are"))]
    Doubt(T),
}

/// What became of a claim.
#[derive(Debug)]
pub(crate) enum Conclusion<T> {
    Completed(T),
    Forgotten(T),
    Doubted(T),
    Unrecorded(T),
    Failed(Failure),
    Interrupted(Interruption),
    /// The stop point passed before the handler's first step; released again.
    NotStarted,
    /// The lease was lost, and the successor decided the outcome.
    Overtaken(Refusal),
    LeaseLost,
}

impl<T> Conclusion<T> {
    /// What the caller is told; `replay` makes it of an outcome that a successor has decided.
    pub(crate) fn into_outcome<U, E>(
        self,
        claim: &Claim,
        value: impl FnOnce(T) -> U,
        replay: impl FnOnce(Refusal) -> Result<Outcome<U>, E>,
    ) -> Result<Outcome<U>, E> {
        Ok(match self {
            Self::Completed(done) if claim.took_over() => Outcome::TookOver(value(done)),
            Self::Completed(done) | Self::Forgotten(done) => Outcome::Executed(value(done)),
            Self::Doubted(_) => Outcome::Failed(Failure::unknown("whether the operation took effect is not known")),
            Self::Unrecorded(done) => Outcome::Unrecorded(value(done)),
            Self::Failed(failure) => Outcome::Failed(failure),
            Self::Interrupted(interruption) => Outcome::Interrupted(interruption),
            Self::NotStarted => Outcome::NotStarted,
            Self::Overtaken(refusal) => replay(refusal)?,
            Self::LeaseLost => Outcome::LeaseLost,
        })
    }
}

impl Idempotency {
    /// Claims operations with distinct keys. One answer each, in order.
    pub(crate) async fn claim(&self, candidates: &[Candidate], window: Window) -> Vec<Result<Standing, Error>> {
        let mut requests = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            match self.claim_request(candidate, window) {
                Ok(request) => requests.push(request),
                Err(error) => return repeat(error, candidates.len()),
            }
        }
        let answers = self.send_claims(&requests, window).await;
        self.withdraw(&requests, &answers, window).await;
        let mut standings = Vec::with_capacity(requests.len());
        let mut late = Vec::new();
        for (request, answer) in requests.iter().zip(answers) {
            standings.push(answer.map(|claimed| match claimed {
                Claimed::Refused(refusal) => Standing::Refused(refusal),
                Claimed::Granted(grant) => {
                    let now = self.clock.now();
                    let claim = Claim::new(request.key, request.fingerprint, request.owner, grant, window);
                    if now < window.stop && now < grant.lease_until {
                        return Standing::Claimed(claim);
                    }
                    late.push(claim);
                    if now < grant.lease_until {
                        return Standing::NotStarted;
                    }
                    // The lease has passed, so somebody else may hold the key by now.
                    let lease_until = Some(grant.lease_until);
                    Standing::Refused(Refusal::InProgress { lease_until, attempt: grant.attempt })
                }
            }));
        }
        self.release(&late).await;
        standings
    }

    fn claim_request(&self, candidate: &Candidate, window: Window) -> Result<ClaimRequest, Error> {
        Ok(ClaimRequest {
            key: candidate.key,
            fingerprint: candidate.fingerprint,
            owner: draw_owner()?,
            lease: window.lease_until.since(self.clock.now()),
            skew_margin: self.settings.skew_margin,
            retention: self.settings.in_progress_retention(),
            takeover: self.settings.after_unknown.takeover(),
        })
    }

    /// Sends claims, and again those that the store had trouble with. A claim keeps its owner token, so one that was
    /// applied while its answer was lost is recognised.
    async fn send_claims(&self, requests: &[ClaimRequest], window: Window) -> Answers<Claimed> {
        let mut answers: Answers<Claimed> = Vec::with_capacity(requests.len());
        let mut backoff = Backoff::default();
        for attempt in 1..=CLAIM_ATTEMPTS {
            let open: Vec<usize> = if attempt == 1 {
                (0..requests.len()).collect()
            } else {
                let failed = |(i, answer): (usize, &Result<_, Error>)| {
                    answer.as_ref().is_err_and(Error::retry_helps).then_some(i)
                };
                answers.iter().enumerate().filter_map(failed).collect()
            };
            if attempt > 1 {
                let pause = backoff.next();
                if open.is_empty() || self.clock.now().after(pause) >= window.stop {
                    break;
                }
                sleep(pause).await;
            }
            let lease = window.lease_until.since(self.clock.now());
            let again: Vec<ClaimRequest> =
                open.iter().map(|&i| ClaimRequest { lease, ..requests[i].clone() }).collect();
            let claims = self.store.claim(&again);
            let left = window.stop.since(self.clock.now());
            let given = within(left, "claim", again.len(), claims).await;
            if attempt == 1 {
                answers = given;
            } else {
                open.into_iter().zip(given).for_each(|(i, answer)| answers[i] = answer);
            }
        }
        answers
    }

    /// Releases claims that may have been granted although nobody will act on them: their answers were lost for good.
    /// One try; what it does not reach ends with its lease.
    async fn withdraw(&self, requests: &[ClaimRequest], answers: &[Result<Claimed, Error>], window: Window) {
        // Of several tries only the last error is known, and an earlier one may have been applied.
        let may_stand = |error: &Error| error.retry_helps() || error.status() == ErrorStatus::Ambiguous;
        let lost = requests.iter().zip(answers).filter(|(_, answer)| answer.as_ref().is_err_and(may_stand));
        let owners: HashMap<KeyHash, Owner> = lost.map(|(request, _)| (request.key, request.owner)).collect();
        if owners.is_empty() {
            return;
        }
        let left = || window.settle_by.since(self.clock.now());
        let keys: Vec<KeyHash> = owners.keys().copied().collect();
        let found = within(left(), "read", keys.len(), self.store.read(&keys)).await;
        let granted = keys.iter().zip(found).filter_map(|(key, record)| {
            let record = record.ok()??;
            let took_over = record.prior_status == Some(Status::InProgress);
            let is_ours = record.status == Status::InProgress && record.owner == owners.get(key).copied();
            let settlement = Settlement::Release { took_over };
            is_ours.then(|| SettleRequest {
                key: *key,
                owner: owners[key],
                fingerprint: record.fingerprint,
                settlement,
            })
        });
        let releases: Vec<SettleRequest> = granted.collect();
        if !releases.is_empty() {
            within(left(), "release", releases.len(), self.store.settle(&releases)).await;
        }
    }

    /// Runs a claimed operation and settles the claim by its verdict.
    pub(crate) async fn conclude<T, F>(&self, claim: &Claim, work: F) -> Conclusion<T>
    where
        T: Serialize + Send,
        F: Future<Output = Result<Success<T>, Failure>> + Send,
    {
        // The handler's own panics are caught where it runs. Its future may also panic when it is dropped.
        let concluded = AssertUnwindSafe(self.run_and_settle(claim, work)).catch_unwind().await;
        concluded.unwrap_or_else(|panic| {
            discard(panic);
            Conclusion::Interrupted(Interruption::Panicked)
        })
    }

    async fn run_and_settle<T, F>(&self, claim: &Claim, work: F) -> Conclusion<T>
    where
        T: Serialize + Send,
        F: Future<Output = Result<Success<T>, Failure>> + Send,
    {
        match self.guarded(work, claim.window).await {
            Ended::Returned(Ok(Success::Remember(value))) => self.complete(claim, value).await,
            Ended::Returned(Ok(Success::Forget(value))) => {
                self.release(std::slice::from_ref(claim)).await;
                Conclusion::Forgotten(value)
            }
            Ended::Returned(Ok(Success::Doubt(value))) => Conclusion::Doubted(value),
            Ended::Returned(Err(failure)) => self.fail(claim, failure).await,
            Ended::CutOff => Conclusion::Interrupted(Interruption::CutOff),
            Ended::NotStarted => {
                self.release(std::slice::from_ref(claim)).await;
                Conclusion::NotStarted
            }
            Ended::Panicked(message) => {
                tracing::error!(target: "lambda_once", key = %claim.key(), panic = message, "the handler panicked");
                if self.settings.on_panic == OnPanic::Transient {
                    self.release(std::slice::from_ref(claim)).await;
                }
                Conclusion::Interrupted(Interruption::Panicked)
            }
        }
    }

    /// Runs work without a claim, still within the bounds of an invocation.
    pub(crate) async fn run_unprotected<T, F>(&self, window: Window, work: F) -> Outcome<T>
    where
        T: Send,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let ended = AssertUnwindSafe(self.guarded(work, window)).catch_unwind().await;
        match ended.unwrap_or_else(|panic| {
            discard(panic);
            Ended::Panicked(None)
        }) {
            Ended::Returned(Ok(value)) => Outcome::Executed(value),
            Ended::Returned(Err(failure)) => Outcome::Failed(failure),
            Ended::Panicked(message) => {
                tracing::error!(target: "lambda_once", panic = message, "the handler panicked, unprotected");
                Outcome::Interrupted(Interruption::Panicked)
            }
            Ended::CutOff => Outcome::Interrupted(Interruption::CutOff),
            Ended::NotStarted => Outcome::NotStarted,
        }
    }

    fn guarded<F: Future>(&self, work: F, window: Window) -> Guarded<F> {
        Guarded::new(work, Arc::clone(&self.clock), window.stop)
    }

    async fn complete<T: Serialize + Send>(&self, claim: &Claim, value: T) -> Conclusion<T> {
        let result = result::encode(&value, &self.settings, self.store.limits());
        let retention = self.settings.retention();
        match self.settle_outcome(claim, result, |result| Settlement::Complete { result, retention }).await {
            Ok(Settled::LeaseLost { current }) => self.overtaken(claim, current),
            Ok(_) => Conclusion::Completed(value),
            Err(error) => {
                tracing::error!(target: "lambda_once", key = %claim.key(), %error, "the operation is done but could not be recorded; it may run again after its lease");
                Conclusion::Unrecorded(value)
            }
        }
    }

    async fn fail<T>(&self, claim: &Claim, failure: Failure) -> Conclusion<T> {
        match failure.verdict() {
            Verdict::Unknown => {}
            Verdict::Transient => self.release(std::slice::from_ref(claim)).await,
            Verdict::Permanent => {
                let result = result::encode_failure(&failure, &self.settings, self.store.limits());
                let retention = self.settings.failed_retention();
                match self.settle_outcome(claim, result, |result| Settlement::Fail { result, retention }).await {
                    // A run that is not recorded decides nothing, not even its failure.
                    Ok(Settled::LeaseLost { current }) => return self.overtaken(claim, current),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::error!(target: "lambda_once", key = %claim.key(), %error, "the permanent failure could not be recorded; the operation may run again after its lease");
                    }
                }
            }
        }
        Conclusion::Failed(failure)
    }

    /// Records an outcome. A store that refuses the request as such, for the size of its result, say, gets it without.
    async fn settle_outcome(
        &self,
        claim: &Claim,
        result: StoredResult,
        settlement: impl Fn(StoredResult) -> Settlement,
    ) -> Result<Settled, Error> {
        let had_data = result.data.is_some();
        match self.settle(claim, settlement(result)).await {
            Err(error) if had_data && error.kind() == ErrorKind::Request => {
                tracing::error!(target: "lambda_once", key = %claim.key(), %error, "the store does not take the result, so it is not kept; the operation stays done");
                self.settle(claim, settlement(StoredResult::DROPPED)).await
            }
            answer => answer,
        }
    }

    /// What the record says about an operation whose lease was lost: a successor's outcome counts, our own does not.
    fn overtaken<T>(&self, claim: &Claim, current: Option<Box<Record>>) -> Conclusion<T> {
        tracing::warn!(target: "lambda_once", key = %claim.key(), attempt = claim.attempt(), "the lease was lost before the outcome was recorded");
        let request = ClaimRequest {
            key: claim.key(),
            fingerprint: claim.fingerprint,
            owner: claim.owner,
            lease: Duration::ZERO,
            skew_margin: self.settings.skew_margin,
            retention: Duration::ZERO,
            takeover: Takeover::Refused,
        };
        match current.map(|record| rules::judge(&record, &request, self.clock.now())) {
            Some(Ok(Judgement::Refused(refusal @ (Refusal::Completed(_) | Refusal::Failed(_))))) => {
                Conclusion::Overtaken(refusal)
            }
            _ => Conclusion::LeaseLost,
        }
    }

    /// Gives claims up, so that their operations may run again at once. A claim that cannot be released ends with its
    /// lease, so trouble is only logged.
    pub(crate) async fn release(&self, claims: &[Claim]) {
        let Some(window) = claims.first().map(|claim| claim.window) else { return };
        let requests: Vec<SettleRequest> =
            claims.iter().map(|claim| request(claim, Settlement::Release { took_over: claim.took_over() })).collect();
        for (claim, answer) in claims.iter().zip(self.send_settles(&requests, window).await) {
            if let Err(error) = answer {
                tracing::warn!(target: "lambda_once", key = %claim.key(), %error, "the claim could not be released; it ends with its lease");
            }
        }
    }

    async fn settle(&self, claim: &Claim, settlement: Settlement) -> Result<Settled, Error> {
        let requests = [request(claim, settlement)];
        let mut answers = self.send_settles(&requests, claim.window).await;
        answers.pop().unwrap_or_else(|| Err(miscounted(requests[0].settlement.as_str())))
    }

    /// Sends settles, and again those that the store had trouble with, while there is time.
    async fn send_settles(&self, requests: &[SettleRequest], window: Window) -> Answers<Settled> {
        let operation = requests[0].settlement.as_str();
        let mut backoff = Backoff::default();
        let left = |now| window.settle_by.since(now);
        let now = self.clock.now();
        let is_release = matches!(requests[0].settlement, Settlement::Release { .. });
        let time = if is_release || left(now) >= SETTLE_AT_LEAST { left(now) } else { SETTLE_WHEN_LATE };
        let mut answers = within(time, operation, requests.len(), self.store.settle(requests)).await;
        loop {
            let open: Vec<usize> = answers
                .iter()
                .enumerate()
                .filter_map(|(i, answer)| answer.as_ref().is_err_and(Error::retry_helps).then_some(i))
                .collect();
            let pause = backoff.next();
            if open.is_empty() || self.clock.now().after(pause) >= window.settle_by {
                return answers;
            }
            sleep(pause).await;
            let again: Vec<SettleRequest> = open.iter().map(|&i| requests[i].clone()).collect();
            let calls = self.store.settle(&again);
            let given = within(left(self.clock.now()), operation, again.len(), calls).await;
            open.into_iter().zip(given).for_each(|(i, answer)| answers[i] = answer);
        }
    }
}

/// Awaits a store call for as long as there is time, and holds the store to one answer for each request.
async fn within<T>(
    time: Duration,
    operation: &'static str,
    requests: usize,
    call: impl Future<Output = Answers<T>> + Send,
) -> Answers<T> {
    match timeout(time, call).await {
        Ok(answers) if answers.len() == requests => answers,
        Ok(_) => repeat(miscounted(operation), requests),
        Err(_) => {
            let message = "the store did not answer before the invocation's time was up";
            repeat(Error::new(ErrorKind::Timeout, ErrorStatus::Ambiguous, operation, message), requests)
        }
    }
}

fn request(claim: &Claim, settlement: Settlement) -> SettleRequest {
    SettleRequest { key: claim.key(), owner: claim.owner, fingerprint: claim.fingerprint, settlement }
}

/// The same error for every request of a call; its source goes to the last.
fn repeat<T>(error: Error, times: usize) -> Answers<T> {
    let copies: Vec<Error> = (1..times).map(|_| error.without_source()).collect();
    copies.into_iter().chain([error]).take(times).map(Err).collect()
}

fn miscounted(operation: &'static str) -> Error {
    let message = "the store gave more or fewer answers than there were requests";
    Error::new(ErrorKind::Request, ErrorStatus::Ambiguous, operation, message)
}

/// A fresh token. Never drawn in init: sandboxes restored from one snapshot would share it.
fn draw_owner() -> Result<Owner, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|source| {
        let message = "the operating system gave no random bytes";
        Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, "claim", message).with_source(source.to_string())
    })?;
    Ok(Owner::from_bytes(bytes))
}

/// Pauses that double up to a ceiling, each cut to a random part of itself, so that many callers do not come back at
/// the same moment.
#[derive(Default)]
struct Backoff {
    retries: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(2);

    fn next(&mut self) -> Duration {
        let ceiling = Self::FIRST.saturating_mul(2_u32.saturating_pow(self.retries)).min(Self::LONGEST);
        self.retries += 1;
        ceiling.mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_ceiling() {
        let mut backoff = Backoff::default();
        assert!(backoff.next() <= Duration::from_millis(50));
        for _ in 0..100 {
            assert!(backoff.next() <= Duration::from_secs(2));
        }
    }

    #[test]
    fn every_owner_is_drawn_afresh() {
        let owners: std::collections::HashSet<_> = (0..100).map(|_| draw_owner().unwrap()).collect();
        assert_eq!(owners.len(), 100);
    }
}
