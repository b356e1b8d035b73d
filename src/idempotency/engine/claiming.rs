//! Sends claims, retries them after store errors, and withdraws those that nobody acts on.

use std::sync::Arc;

use futures_util::{StreamExt, future::join, stream};
use tokio::time::sleep;

use super::{Candidate, ClaimAnswer, Engine, calls::for_each, settling::RELEASE_FOR};
use crate::{
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    idempotency::{
        claim::{Claim, Granted},
        policy::AfterUnknown,
        window::Window,
    },
    order::{Entity, Order},
    record::{KeyHash, Owner, Record, Status},
    store::{ClaimRequest, Claimed, Grant, Refusal, ResultData},
};

/// The maximum number of times that a claim is sent. After that it is better to report the delivery than to wait.
const CLAIM_ATTEMPTS: u32 = 3;

impl Engine {
    /// Claims operations with distinct keys, and retries after store errors. Returns one result per operation, in
    /// order, with recorded results if requested.
    pub(crate) async fn claim(
        &self,
        candidates: &[Candidate],
        window: Window,
        result_data: ResultData,
    ) -> (Vec<Result<ClaimAnswer, Error>>, Withdrawal) {
        let (results, mut withdrawal) = self.claim_once(candidates, window, result_data).await;
        let mut answers: Vec<Option<Result<ClaimAnswer, Error>>> = results.iter().map(|_| None).collect();
        let mut given: Vec<(usize, ClaimResult)> = results.into_iter().enumerate().collect();
        loop {
            let (mut places, mut open) = (Vec::new(), Vec::new());
            for (i, result) in given {
                match result {
                    Ok(answer) => answers[i] = Some(answer),
                    Err(unclaimed) => {
                        places.push(i);
                        open.push(*unclaimed);
                    }
                }
            }
            if open.is_empty() {
                return (answers.into_iter().flatten().collect(), withdrawal);
            }
            let (results, more) = self.claim_again(open, window, window.stop).await;
            withdrawal.add(more);
            given = places.into_iter().zip(results).collect();
        }
    }

    /// Claims operations with distinct keys, by one call to the store. Returns the results in order, and for claims to be
    /// sent again the claims.
    pub(crate) async fn claim_once(
        &self,
        candidates: &[Candidate],
        window: Window,
        result_data: ResultData,
    ) -> (Vec<ClaimResult>, Withdrawal) {
        if self.clock.now() >= window.stop {
            return (candidates.iter().map(|_| Ok(Ok(ClaimAnswer::OutOfTime))).collect(), Withdrawal::default());
        }
        match self.claim_requests(candidates, window, result_data) {
            Ok(requests) => self.send_claims(requests, &[], window).await,
            Err(error) => (for_each(error, candidates.len()).into_iter().map(Ok).collect(), Withdrawal::default()),
        }
    }

    /// Sends claims again after a pause, by one call to the store. From `until` on they are given up instead.
    pub(crate) async fn claim_again(
        &self,
        open: Vec<Unclaimed>,
        window: Window,
        until: Timestamp,
    ) -> (Vec<ClaimResult>, Withdrawal) {
        let mut backoff = Backoff::default();
        let times = open.first().map_or(0, |open| open.sent.times);
        let pause = (0..times).map(|_| backoff.next()).last().unwrap_or_default();
        if self.clock.now().after(pause) >= until {
            return given_up(open);
        }
        sleep(pause).await;
        // A handler that blocks its thread, or a frozen process, may have made the pause longer.
        if self.clock.now() >= until {
            return given_up(open);
        }
        let lease = window.lease_until.since(self.clock.now());
        let before: Vec<Sent> = open.iter().map(|open| open.sent).collect();
        let requests = open.into_iter().map(|open| ClaimRequest { lease, ..open.request }).collect();
        self.send_claims(requests, &before, window).await
    }

    /// Accepts a grant, unless it arrives too late to start anything (C9). The window's lease counts from before the
    /// request was sent, so it ends no later than the store's, whatever the store's clock shows.
    fn granted(&self, claim: Claim, grant: Grant, window: Window, late: &mut Vec<Claim>) -> ClaimAnswer {
        let now = self.clock.now();
        if now < window.stop {
            return ClaimAnswer::Granted(claim);
        }
        late.push(claim);
        if now < window.lease_until {
            return ClaimAnswer::OutOfTime;
        }
        // Another claim may hold the key by now.
        let lease_until = Some(grant.lease_until);
        ClaimAnswer::Refused(Refusal::InProgress { lease_until, attempt: grant.attempt })
    }

    /// Warns of a store whose clock differs from the local one by more than the margin. Leases hold nevertheless,
    /// because the store compares them only with its own clock. However, a failover to a server with a different clock
    /// may end them early.
    fn compare_clocks(&self, grant: Grant, window: Window, begun: Timestamp) {
        let (ours, theirs, margin) = (window.lease_until, grant.lease_until, self.settings.skew_margin);
        let is_early = theirs.after(margin) < ours;
        // The store counts from the arrival of the request.
        let is_late = || theirs > ours.after(margin).after(self.clock.now().since(begun));
        if (is_early || is_late()) && self.warnings.clocks.is_first() {
            let (ours, theirs) = (ours.as_millis(), theirs.as_millis());
            tracing::warn!(target: "lambda_once", lease_until = ours, stored_lease_until = theirs, "the store's clock differs from the clock here by more than the skew margin; both times are of one lease, in milliseconds since 1970");
        }
    }

    pub(super) fn claim_requests(
        &self,
        candidates: &[Candidate],
        window: Window,
        result_data: ResultData,
    ) -> Result<Vec<ClaimRequest>, Error> {
        let owners = draw_owners(candidates.len())?;
        let lease = window.lease_until.since(self.clock.now());
        let request = |(candidate, owner): (&Candidate, Owner)| ClaimRequest {
            key: candidate.key,
            fingerprint: self.compared(candidate),
            owner,
            lease,
            skew_margin: self.settings.skew_margin,
            retention: self.settings.in_progress_retention(),
            takeover: self.settings.after_unknown.takeover(),
            result_data,
            order: Order::of(candidate.sequence(), self.settings.retention()),
            operation: Arc::clone(&self.operation),
            label: candidate.extras.as_ref().and_then(|extras| extras.label.clone()),
        };
        Ok(candidates.iter().zip(owners).map(request).collect())
    }

    /// Sends claims by one call to the store. A claim that is sent again keeps its owner token, so a claim that was
    /// applied although its response was lost is recognized (C5). `before` is for these.
    async fn send_claims(
        &self,
        requests: Vec<ClaimRequest>,
        before: &[Sent],
        window: Window,
    ) -> (Vec<ClaimResult>, Withdrawal) {
        let mut withdrawal = Withdrawal::default();
        let begun = self.clock.now();
        let left = window.stop.since(begun);
        let answers = self.within(left, "claim", requests.len(), self.store.claim(&requests)).await;
        let mut granted = Vec::with_capacity(requests.len());
        let sent_before =
            |i: usize| before.get(i).copied().unwrap_or(Sent { times: 0, first: begun, is_unanswered: false });
        for (i, (request, answer)) in requests.iter().zip(&answers).enumerate() {
            if let Ok(Claimed::Granted(grant)) = answer {
                // The grant may be that of the first request, which may have arrived late.
                self.compare_clocks(*grant, window, sent_before(i).first);
                warn_of_merged_doubt(request, grant);
                granted.push(Granted::of(request, *grant, window));
            }
        }
        let mut claims = Claim::all(granted);
        let mut results = Vec::with_capacity(answers.len());
        for (i, (request, answer)) in requests.into_iter().zip(answers).enumerate() {
            let before = sent_before(i);
            // A claim that was unanswered once may have been applied, whatever the last error.
            let is_unanswered = before.is_unanswered || is_unanswered(&answer);
            let sent = Sent { times: before.times + 1, is_unanswered, ..before };
            results.push(match answer {
                Err(error) if error.retry_helps() && sent.times < CLAIM_ATTEMPTS => {
                    Err(Box::new(Unclaimed { request, error, sent }))
                }
                answer => {
                    if is_unanswered && may_stand(&answer) {
                        withdrawal.unanswered.push(request);
                    }
                    Ok(answer.map(|claimed| match claimed {
                        Claimed::Refused(refusal) => ClaimAnswer::Refused(refusal),
                        Claimed::Granted(grant) => match claims.next() {
                            Some(claim) => self.granted(claim, grant, window, &mut withdrawal.late),
                            None => ClaimAnswer::OutOfTime,
                        },
                    }))
                }
            });
        }
        (results, withdrawal)
    }

    /// Releases claims that nobody acts on. If a claim would block its operation permanently, this is retried while
    /// there is time. Otherwise it is given up after [`RELEASE_FOR`], and the claim ends with its lease.
    pub(crate) async fn withdraw(&self, withdrawal: Withdrawal, window: Window) {
        // Run concurrently, because there may be little time.
        join(self.withdraw_unanswered(withdrawal.unanswered, window), self.release(withdrawal.late)).await;
    }

    async fn withdraw_unanswered(&self, unanswered: Vec<ClaimRequest>, window: Window) {
        let until = match self.settings.after_unknown {
            AfterUnknown::Rerun => window.settle_by.min(self.clock.now().after(RELEASE_FOR)),
            AfterUnknown::Refuse | AfterUnknown::Probe => window.settle_by,
        };
        let unanswered: Vec<_> = unanswered.into_iter().map(|request| (request, until)).collect();
        let window = window.settling_until(until);
        // A release may take all of the time, so the reads of other claims continue concurrently.
        stream::unfold((unanswered, None, Backoff::default()), async |(unanswered, pause, mut backoff)| {
            let last = unanswered.iter().map(|(_, until)| *until).max()?;
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            let (applied, again) = self.find_applied(unanswered, window, last).await;
            let pause = backoff.next();
            let resumes = self.clock.now().after(pause);
            let again = again.into_iter().filter(|(_, until)| resumes < *until).collect();
            Some((applied, (again, Some(pause), backoff)))
        })
        .for_each_concurrent(None, |applied| self.release(applied))
        .await;
    }

    /// Reads the records of unanswered claims. Each comes with the time at which it is given up, and `last` is the latest
    /// of these times. Returns the claims that were applied, and the claims to read again.
    async fn find_applied(
        &self,
        unanswered: Vec<(ClaimRequest, Timestamp)>,
        window: Window,
        last: Timestamp,
    ) -> (Vec<Claim>, Vec<(ClaimRequest, Timestamp)>) {
        let keys: Vec<KeyHash> = unanswered.iter().map(|(request, _)| request.key).collect();
        // A claim that a read has found takes a call to release.
        let time = last.since(self.clock.now()) / 2;
        let found = self.within(time, "read", keys.len(), self.store.read(&keys, ResultData::Omit)).await;
        let (mut ours, mut again) = (Vec::new(), Vec::new());
        for ((request, until), record) in unanswered.into_iter().zip(found) {
            match record {
                Ok(record) => ours.extend(record.and_then(|record| applied(&request, &record, window))),
                Err(error) if error.may_pass() => {
                    let until = if error.retry_helps() { until } else { self.refused_until(until) };
                    again.push((request, until));
                }
                Err(_) => {}
            }
        }
        (ours, again)
    }
}

/// A claim that the store did not decide, and that is to be sent again.
#[derive(Debug)]
pub(crate) struct Unclaimed {
    request: ClaimRequest,
    error: Error,
    sent: Sent,
}

/// The requests that were sent for a claim.
#[derive(Clone, Copy, Debug)]
struct Sent {
    times: u32,
    first: Timestamp,
    /// Whether one of them may have been applied.
    is_unanswered: bool,
}

/// The result of a call to the store for a claim, which is either decided, or to be sent again.
pub(crate) type ClaimResult = Result<Result<ClaimAnswer, Error>, Box<Unclaimed>>;

/// Gives up claims that the store did not decide.
fn given_up(open: Vec<Unclaimed>) -> (Vec<ClaimResult>, Withdrawal) {
    let mut withdrawal = Withdrawal::default();
    let give_up = |unclaimed: Unclaimed| {
        withdrawal.unanswered.extend(Some(unclaimed.request).filter(|_| unclaimed.sent.is_unanswered));
        Ok(Err(unclaimed.error))
    };
    (open.into_iter().map(give_up).collect(), withdrawal)
}

/// Claims that nobody acts on, because their responses were lost and they may have been applied, or because they were
/// granted too late.
#[derive(Debug, Default)]
pub(crate) struct Withdrawal {
    unanswered: Vec<ClaimRequest>,
    late: Vec<Claim>,
}

impl Withdrawal {
    fn add(&mut self, other: Self) {
        self.unanswered.extend(other.unanswered);
        self.late.extend(other.late);
    }

    #[cfg(any(feature = "batch", feature = "http"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.unanswered.is_empty() && self.late.is_empty()
    }
}

/// Returns the claim if the record belongs to it.
fn applied(request: &ClaimRequest, record: &Record, window: Window) -> Option<Claim> {
    let is_ours = record.status == Status::InProgress && record.owner == Some(request.owner);
    let Record { attempt, prior_status, .. } = *record;
    let grant = Grant { lease_until: record.lease_until?, attempt, prior_status, has_merged_doubt: false };
    is_ours.then(|| Claim::of(request, grant, window))
}

/// Warns if operations of the claim's entity may wait for a long time.
pub(super) fn warn_of_merged_doubt(request: &ClaimRequest, grant: &Grant) {
    if cfg!(feature = "order") && grant.has_merged_doubt {
        tracing::warn!(
            target: "lambda_once", entity = %Entity::of(&request.key),
            "65 operations of this entity may have taken effect without an outcome. Older ones wait until a newer one \
             completes; if none will, an operator can resolve the doubt"
        );
    }
}

/// Returns whether a claim may have been applied although an error was returned.
fn is_unanswered(answer: &Result<Claimed, Error>) -> bool {
    answer.as_ref().is_err_and(|error| error.retry_helps() || error.status() == ErrorStatus::Ambiguous)
}

/// Returns whether an unanswered claim may be held, or may still be applied. A key may be in progress because of the
/// claim's own first request, if a later one has met its lock or its transaction.
fn may_stand(answer: &Result<Claimed, Error>) -> bool {
    matches!(answer, Err(_) | Ok(Claimed::Refused(Refusal::InProgress { .. })))
}

/// Draws fresh tokens. They are never drawn in init, because execution environments restored from one snapshot would
/// share them.
fn draw_owners(count: usize) -> Result<Vec<Owner>, Error> {
    let mut bytes = vec![[0; 16]; count];
    getrandom::fill(bytes.as_flattened_mut()).map_err(|source| {
        let message = "the operating system gave no random bytes";
        Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, "claim", message).with_source(source.to_string())
    })?;
    Ok(bytes.into_iter().map(Owner::from_bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owner_is_drawn_afresh() {
        let owners: std::collections::HashSet<_> = (0..10).flat_map(|_| draw_owners(10).unwrap()).collect();
        assert_eq!(owners.len(), 100);
    }
}
