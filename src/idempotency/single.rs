//! Runs one operation under a claim of its own: for operations and invocations.

use std::{future::Future, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    claim::Claim,
    engine::{Candidate, Standing, Success, probed},
    handle::Idempotency,
    outcome::Outcome,
    probe::{Probe, Probed},
    result,
    verdict::Failure,
    window::Window,
};
use crate::{error::Error, key::MissingKey, store::Refusal};

impl Idempotency {
    /// Claims an operation, runs its work and settles it. The outcome, and how often the key has been granted.
    pub(crate) async fn run_protected<T, P, E, W, F>(
        &self,
        candidate: Candidate,
        window: Window,
        patience: Duration,
        probe: P,
        work: W,
    ) -> Result<(Outcome<T>, u64), Error>
    where
        P: Probe<T>,
        T: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
        W: FnOnce(Option<Claim>) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        let claim = match self.claim_or_wait(candidate, window, patience).await? {
            Standing::Claimed(claim) => claim,
            Standing::Refused(refusal) => return replay(refusal).map(|outcome| (outcome, 0)),
            Standing::NotStarted => return Ok((Outcome::NotStarted, 0)),
        };
        let given = claim.clone();
        let work = async move {
            if let Probed::Done(found) = probed(&given, |claim| probe.probe(claim)).await? {
                return Ok(Success::Recover(found));
            }
            work(Some(given)).await.map(Success::Remember).map_err(Into::into)
        };
        let outcome = self.conclude(&claim, work).await.into_outcome(&claim, |value| value, replay)?;
        Ok((outcome, claim.attempt()))
    }

    /// Claims a single operation. Past the stop point nothing is claimed.
    pub(crate) async fn claim_one(&self, candidate: Candidate, window: Window) -> Result<Standing, Error> {
        if self.clock.now() >= window.stop {
            return Ok(Standing::NotStarted);
        }
        self.claim(&[candidate], window).await.pop().unwrap_or(Ok(Standing::NotStarted))
    }

    pub(crate) fn runs_without_key(&self) -> bool {
        self.settings.missing_key == MissingKey::RunUnprotected
    }
}

/// The outcome of an operation that did not run.
fn replay<T: DeserializeOwned>(refusal: Refusal) -> Result<Outcome<T>, Error> {
    Ok(match refusal {
        Refusal::Completed(record) => match result::decode(&record.result)? {
            Some(value) => Outcome::Replayed(value),
            None => Outcome::ReplayedWithoutResult,
        },
        Refusal::Failed(record) => Outcome::ReplayedFailure(result::decode_failure(&record.result)?),
        Refusal::InProgress { lease_until, attempt } => Outcome::InProgress { lease_until, attempt },
        Refusal::Abandoned { attempt } => Outcome::Abandoned { attempt },
        Refusal::Mismatch => Outcome::Mismatch,
    })
}
