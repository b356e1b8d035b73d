//! One operation alone: claimed, run and settled. For operations, requests and invocations.

use std::{convert::Infallible, future::Future, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    claim::Claim,
    engine::{Candidate, ClaimAnswer, End, Success, probed},
    guard::{Bounds, drop_panic},
    handle::Idempotency,
    outcome::Outcome,
    probe::{Probe, Probed},
    result,
    verdict::Failure,
    window::Window,
};
use crate::{error::Error, key::MissingKey, store::Refusal};

impl Idempotency {
    /// Claims an operation, waits for up to `budget` if somebody else is running it, runs its work and settles it. The
    /// outcome, and how often the key has been granted.
    pub(crate) async fn run_protected<T, P, E, W, F>(
        &self,
        candidate: Candidate,
        window: Window,
        budget: Duration,
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
        let claim = match self.claim_or_wait(candidate, window, budget).await? {
            ClaimAnswer::Granted(claim) => claim,
            ClaimAnswer::Refused(refusal) => return Ok((replay(refusal)?, 0)),
            ClaimAnswer::OutOfTime => return Ok((Outcome::NotStarted, 0)),
        };
        let (attempt, given) = (claim.attempt(), claim.clone());
        let work = async move {
            if let Probed::Done(found) = probed(&given, |claim| probe.probe(claim)).await? {
                return Ok(Success::Recover(found));
            }
            work(Some(given)).await.map(Success::Complete).map_err(Into::into)
        };
        let outcome = self.run_and_settle(claim, work).await.into_outcome(replay)?;
        Ok((outcome, attempt))
    }

    /// Runs a claimed operation and settles the claim by its verdict.
    pub(crate) async fn run_and_settle<T, F>(&self, claim: Claim, work: F) -> End<T>
    where
        T: Serialize + Send,
        F: Future<Output = Result<Success<T>, Failure>> + Send,
    {
        let claim_of_panic = claim.clone();
        let settled =
            AssertUnwindSafe(async { self.settle(self.run_with_heartbeat(claim, work, |value| value).await).await });
        settled.catch_unwind().await.unwrap_or_else(|panic| {
            drop_panic(panic);
            End::panicked(claim_of_panic)
        })
    }

    /// Runs work without a claim, still within the bounds of an invocation.
    pub(crate) async fn run_unprotected<T, F>(&self, window: Window, work: F) -> Outcome<T>
    where
        T: Serialize + Send,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let work = async { work.await.map(Success::Complete) };
        let bounds = Bounds::until(self.stop_without_claim(window));
        let end = self.run(None, bounds, work, |value| value).await;
        let Ok(outcome) = end.into_outcome(|_| Ok::<_, Infallible>(Outcome::NotStarted));
        outcome
    }

    pub(crate) fn runs_without_key(&self) -> bool {
        self.settings.missing_key == MissingKey::RunUnprotected
    }
}

/// The outcome of an operation that did not run.
fn replay<T: DeserializeOwned>(refusal: Refusal) -> Result<Outcome<T>, Error> {
    Outcome::of_refusal(refusal, result::decode, result::decode_failure)
}
