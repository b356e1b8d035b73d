//! Operations without a separate claim, for which the commit of a transaction decides which run takes effect.

use super::{
    Candidate, ClaimAnswer, Engine,
    claiming::warn_of_merged_doubt,
    committing::{COMMIT, Commit, doubt, may_be_committed, tell_doubt, verdict_of},
    ending::{Conclusion, End},
    settling::request_of,
};
use crate::{
    error::Error,
    idempotency::{
        claim::Claim,
        verdict::{Failure, Verdict},
        window::Window,
    },
    record::Record,
    store::{
        ClaimRequest, Claimed, Refusal, ResultData, Settled,
        rules::{self, Judgement},
    },
};

impl Engine {
    /// Claims an operation within a transaction, if the store supports that.
    pub(crate) async fn claim_within(
        &self,
        candidate: Candidate,
        window: Window,
        writes: &dyn Commit,
    ) -> Result<(ClaimRequest, ClaimAnswer), Error> {
        let request = self.claim_requests(&[candidate], window, ResultData::Include)?.remove(0);
        let left = window.stop.since(self.clock.now());
        if left.is_zero() {
            return Ok((request, ClaimAnswer::OutOfTime));
        }
        let answer = match self.within_transaction(left, "claim", writes.claim(&request)).await? {
            Claimed::Granted(grant) => {
                warn_of_merged_doubt(&request, &grant);
                ClaimAnswer::Granted(Claim::of(&request, grant, window))
            }
            Claimed::Refused(refusal) => ClaimAnswer::Refused(refusal),
        };
        Ok((request, answer))
    }

    /// Ends the transaction of a run. A success is committed and recorded with it. A permanent failure or a
    /// supersession is recorded. Anything else leaves no trace.
    pub(crate) async fn commit_claimless<T: Send>(
        &self,
        request: &ClaimRequest,
        window: Window,
        mut end: End<T>,
        writes: &dyn Commit,
    ) -> End<T> {
        // Nothing holds the key once the transaction has ended.
        end.held_until = None;
        let is_permanent =
            matches!(&end.conclusion, Conclusion::Failed(failure) if failure.verdict() == Verdict::Permanent);
        let is_recorded = is_permanent || matches!(end.conclusion, Conclusion::Completed(_) | Conclusion::Superseded);
        let (claim, settlement) = match end.take_due() {
            // A release replaces a failure that the store cannot record. There is no claim to release.
            Some(due) if is_recorded && !due.1.is_release() => due,
            _ => {
                if let Err(error) = self.abandon_alone(window, writes).await {
                    doubt(Some(request.key), error, &mut end);
                }
                return end;
            }
        };
        let settle = request_of(&claim, settlement);
        let time = self.time_without_claim(window);
        let answer = self.within_transaction(time, COMMIT, writes.commit(Some(&settle))).await;
        match answer {
            Ok(Settled::Done { .. } | Settled::Renewed { .. }) => {}
            Ok(Settled::LeaseLost { current }) => end.conclude(self.refused(request, current)),
            Err(error) if may_be_committed(&error) => {
                tell_doubt(Some(claim.key()), &error);
                end.conclude(Conclusion::NotCommitted(Failure::unknown(error)));
            }
            // The failure counts even if it could not be recorded.
            Err(error) if is_permanent => {
                tracing::error!(target: "lambda_once", key = %claim.key(), %error, "the permanent failure could not be recorded; the operation may run again");
            }
            Err(error) => {
                end.conclude(match verdict_of(&error, Verdict::Unknown, writes) {
                    Verdict::Superseded => Conclusion::Superseded,
                    verdict => Conclusion::NotCommitted(Failure::new(verdict, error)),
                });
            }
        }
        End { claim: Some(claim), ..end }
    }

    /// Returns the reason why a commit was refused.
    fn refused<T>(&self, request: &ClaimRequest, current: Option<Box<Record>>) -> Conclusion<T> {
        let in_progress = Refusal::InProgress { lease_until: None, attempt: 0 };
        let Some(record) = current else { return Conclusion::Overtaken(Box::new(in_progress)) };
        match rules::judge(&record, request, self.clock.now()) {
            Ok(Judgement::Refused(refusal)) => Conclusion::Overtaken(Box::new(refusal)),
            // The record blocked the commit, and no longer does.
            Ok(Judgement::Free | Judgement::Mine(_)) => Conclusion::Overtaken(Box::new(in_progress)),
            Err(error) => Conclusion::Failed(Failure::transient(error)),
        }
    }
}
