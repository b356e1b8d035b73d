//! One operation alone, claimed, run and settled. For operations, requests and invocations.

use std::{convert::Infallible, future::Future, panic::AssertUnwindSafe, time::Duration};

use futures_util::{FutureExt, TryFutureExt};
use serde::{Serialize, de::DeserializeOwned};

use super::{Candidate, ClaimAnswer, Commit, End, Engine, Success, earlier_result};
use crate::{
    error::Error,
    idempotency::{
        claim::Claim,
        guard::{Bounds, drop_panic},
        outcome::Outcome,
        probe::Probe,
        result::Recorded,
        verdict::Failure,
        window::Window,
    },
    key::missing::MissingKey,
    record::KeyHash,
    store::Refusal,
};

impl Engine {
    /// Claims an operation, waits for up to `wait_up_to` if it is running elsewhere, runs its work and settles it.
    /// Returns the outcome, and the number of grants of the key.
    pub(crate) async fn run_protected<T, P, E, W, F>(
        &self,
        candidate: Candidate,
        window: Window,
        wait_up_to: Duration,
        probe: P,
        writes: Option<Box<dyn Commit>>,
        work: W,
    ) -> Result<(Outcome<T>, u64), Error>
    where
        P: Probe<T>,
        T: Serialize + DeserializeOwned + Send,
        E: Into<Failure>,
        W: FnOnce(Option<Claim>) -> F + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        let key = candidate.key;
        let claim = match self.claim_or_wait(&candidate, window, wait_up_to).await? {
            ClaimAnswer::Granted(claim) => claim,
            ClaimAnswer::Refused(refusal) => return Ok((self.replay(key, refusal)?, 0)),
            ClaimAnswer::OutOfTime => return Ok((Outcome::NotStarted, 0)),
        };
        let (attempt, given) = (claim.attempt(), claim.clone());
        let work = async move {
            if let Some(found) = earlier_result(&given, |claim| probe.probe(claim)).await? {
                return Ok(Success::Recover(found));
            }
            let handled = self.timed(Some(given.key()), || work(Some(given))).await;
            handled.map(Success::Complete).map_err(Into::into)
        };
        let outcome =
            self.run_and_settle(claim, writes, work).await.into_outcome(|refusal| self.replay(key, refusal))?;
        Ok((outcome, attempt))
    }

    /// Runs work that commits its writes and its outcome together, without a claim before that.
    pub(crate) async fn run_claimless<T, F>(
        &self,
        candidate: Candidate,
        window: Window,
        writes: &dyn Commit,
        work: F,
    ) -> Result<(Outcome<T>, u64), Error>
    where
        T: Serialize + DeserializeOwned + Send,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let key = candidate.key;
        let (request, answer) = self.claim_within(candidate, window, writes).await?;
        let claim = match answer {
            ClaimAnswer::Granted(claim) => claim,
            ClaimAnswer::Refused(refusal) => return Ok((self.replay(key, refusal)?, 0)),
            ClaimAnswer::OutOfTime => return Ok((Outcome::NotStarted, 0)),
        };
        let (attempt, bounds) = (claim.attempt(), Bounds::until(self.stop_without_claim(window), &window));
        let work = self.timed(Some(claim.key()), || work).map_ok(Success::Complete);
        let end = self.run(Some(claim), bounds, work, |value| value).await;
        let end = self.commit_claimless(&request, window, end, writes).await;
        Ok((end.into_outcome(|refusal| self.replay(key, refusal))?, attempt))
    }

    /// Runs a claimed operation and settles the claim by its verdict, in one transaction with `writes`.
    pub(crate) async fn run_and_settle<T, F>(&self, claim: Claim, writes: Option<Box<dyn Commit>>, work: F) -> End<T>
    where
        T: Recorded + Send,
        F: Future<Output = Result<Success<T>, Failure>> + Send,
    {
        let claim_of_panic = claim.clone();
        let settled = async {
            let window = claim.granted().window;
            let mut end = self.run_with_heartbeat(claim, work, |value| value).await;
            if let Some(writes) = writes {
                // Boxed, because it is rare and every run would reserve space for it.
                end = Box::pin(self.commit(end, window, writes)).await;
            }
            self.settle(end).await
        };
        AssertUnwindSafe(settled).catch_unwind().await.unwrap_or_else(|panic| {
            drop_panic(panic);
            End::panicked(claim_of_panic)
        })
    }

    /// Runs work without a claim, still within the bounds of an invocation.
    pub(crate) async fn run_unprotected<T, F>(
        &self,
        window: Window,
        writes: Option<Box<dyn Commit>>,
        work: F,
    ) -> Outcome<T>
    where
        T: Serialize + Send,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let work = async { work.await.map(Success::Complete) };
        let bounds = Bounds::until(self.stop_without_claim(window), &window);
        let mut end = self.run(None, bounds, work, |value| value).await;
        if let Some(writes) = writes {
            // Boxed, because it is rare and every run would reserve space for it.
            end = Box::pin(self.commit(end, window, writes)).await;
        }
        let Ok(outcome) = end.into_outcome(|_| Ok::<_, Infallible>(Outcome::NotStarted));
        outcome
    }

    /// Returns the outcome of an operation that did not run.
    fn replay<T: DeserializeOwned>(&self, key: KeyHash, refusal: Refusal) -> Result<Outcome<T>, Error> {
        let decoder = self.settings.decoder(&key);
        let payload_version = self.settings.payload_version;
        Outcome::of_refusal(
            refusal,
            payload_version,
            |result| decoder.decode(result),
            |result| decoder.decode_failure(result),
        )
    }

    pub(crate) fn runs_without_key(&self) -> bool {
        self.settings.missing_key == MissingKey::RunUnprotected
    }
}
