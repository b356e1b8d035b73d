//! Claims: sent, sent again in trouble, and given back where nobody will act on them.

use futures_util::future::join;
use tokio::time::sleep;

use super::{
    Candidate, Standing,
    calls::{Backoff, repeat, within},
};
use crate::{
    Claim, Idempotency,
    error::{Error, ErrorKind, ErrorStatus},
    idempotency::window::Window,
    record::{KeyHash, Owner, Status},
    store::{Answers, ClaimRequest, Claimed, Refusal, ResultData, SettleRequest, Settlement},
};

/// How often a claim is sent when the store is in trouble, the first time included. A delivery that gets no answer is
/// better given back than waited for.
const CLAIM_ATTEMPTS: u32 = 3;

impl Idempotency {
    /// Claims operations with distinct keys. One answer each, in order.
    pub(crate) async fn claim(&self, candidates: &[Candidate], window: Window) -> Vec<Result<Standing, Error>> {
        let requests = match self.claim_requests(candidates, window) {
            Ok(requests) => requests,
            Err(error) => return repeat(error, candidates.len()),
        };
        let answers = self.send_claims(&requests, window).await;
        let lost = lost(&requests, &answers);
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
        // Neither waits for the other: there may be little time.
        join(self.withdraw(lost, window), self.release(late)).await;
        standings
    }

    fn claim_requests(&self, candidates: &[Candidate], window: Window) -> Result<Vec<ClaimRequest>, Error> {
        let owners = draw_owners(candidates.len())?;
        let lease = window.lease_until.since(self.clock.now());
        let request = |(candidate, owner): (&Candidate, Owner)| ClaimRequest {
            key: candidate.key,
            fingerprint: candidate.fingerprint,
            owner,
            lease,
            skew_margin: self.settings.skew_margin,
            retention: self.settings.in_progress_retention(),
            takeover: self.settings.after_unknown.takeover(),
            result_data: ResultData::Include,
        };
        Ok(candidates.iter().zip(owners).map(request).collect())
    }

    /// Sends claims, and again those that the store had trouble with. A claim keeps its owner token, so one that was
    /// applied while its answer was lost is recognised.
    async fn send_claims(&self, requests: &[ClaimRequest], window: Window) -> Answers<Claimed> {
        let left = || window.stop.since(self.clock.now());
        let mut answers = within(left(), "claim", requests.len(), self.store.claim(requests)).await;
        let mut backoff = Backoff::default();
        for _ in 1..CLAIM_ATTEMPTS {
            let may_work = |i: &usize| answers[*i].as_ref().is_err_and(Error::retry_helps);
            let open: Vec<usize> = (0..answers.len()).filter(may_work).collect();
            let pause = backoff.next();
            if open.is_empty() || self.clock.now().after(pause) >= window.stop {
                break;
            }
            sleep(pause).await;
            let lease = window.lease_until.since(self.clock.now());
            let again: Vec<ClaimRequest> =
                open.iter().map(|&i| ClaimRequest { lease, ..requests[i].clone() }).collect();
            let given = within(left(), "claim", again.len(), self.store.claim(&again)).await;
            open.into_iter().zip(given).for_each(|(i, answer)| answers[i] = answer);
        }
        answers
    }

    /// Releases claims that may have been granted although nobody will act on them: their answers were lost for good.
    /// One try; what it does not reach ends with its lease.
    async fn withdraw(&self, lost: Vec<(KeyHash, Owner)>, window: Window) {
        if lost.is_empty() {
            return;
        }
        let left = || window.settle_by.since(self.clock.now());
        let keys: Vec<KeyHash> = lost.iter().map(|(key, _)| *key).collect();
        let found = within(left(), "read", keys.len(), self.store.read(&keys, ResultData::Omit)).await;
        let granted = lost.into_iter().zip(found).filter_map(|((key, owner), record)| {
            let record = record.ok()??;
            let took_over = record.prior_status == Some(Status::InProgress);
            let is_ours = record.status == Status::InProgress && record.owner == Some(owner);
            let settlement = Settlement::Release { took_over };
            is_ours.then_some(SettleRequest { key, owner, fingerprint: record.fingerprint, settlement })
        });
        let releases: Vec<SettleRequest> = granted.collect();
        if !releases.is_empty() {
            within(left(), "release", releases.len(), self.store.settle(&releases)).await;
        }
    }
}

/// The owners of claims that may have been applied although they were answered by errors.
fn lost(requests: &[ClaimRequest], answers: &[Result<Claimed, Error>]) -> Vec<(KeyHash, Owner)> {
    // Of several tries only the last error is known, and an earlier one may have been applied.
    let may_stand = |error: &Error| error.retry_helps() || error.status() == ErrorStatus::Ambiguous;
    let lost = requests.iter().zip(answers).filter(|(_, answer)| answer.as_ref().is_err_and(may_stand));
    lost.map(|(request, _)| (request.key, request.owner)).collect()
}

/// Fresh tokens. Never drawn in init: sandboxes restored from one snapshot would share them.
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
