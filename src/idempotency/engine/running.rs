//! Runs work within the bounds of its invocation, and determines its end.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;

use super::{
    Engine,
    ending::{Conclusion, End, Success},
};
#[cfg(feature = "batch")]
use crate::idempotency::guard::catch_panic;
use crate::{
    error::Error,
    idempotency::{
        claim::Claim,
        guard::{Bounds, Guarded, Unfinished, drop_panic},
        outcome::Interruption,
        policy::OnPanic,
        result::{Encoder, Recorded},
        verdict::{Failure, Verdict},
    },
    record::StoredResult,
    store::Settlement,
};

impl Engine {
    /// Runs work within its bounds, with or without a claim. `keep` extracts the caller's part of the value, besides
    /// the stored result.
    ///
    /// Not an `async fn`, which would hold the work twice: as an argument and as an awaited future.
    pub(crate) fn run<T, U, F>(
        &self,
        claim: Option<Claim>,
        bounds: Bounds,
        work: F,
        keep: impl FnOnce(T) -> U + Send,
    ) -> impl Future<Output = End<U>> + Send
    where
        T: Recorded + Send,
        F: Future<Output = Result<Success<T>, Failure>> + Send,
    {
        let claim_of_panic = claim.clone();
        // The future is dropped before its end is made, and so within the code that catches panics. The end is made
        // there too, because user code encodes the value.
        let run = Guarded::new(work, Arc::clone(&self.clock), bounds).map(move |ended| self.end(claim, ended, keep));
        contained(run, claim_of_panic)
    }

    /// Runs work that returns a verdict for each of several claims, in their order. Returns one end per claim.
    #[cfg(feature = "batch")]
    pub(crate) async fn run_all<T, F>(&self, claims: Vec<Option<Claim>>, bounds: Bounds, work: F) -> Vec<End<()>>
    where
        T: Recorded + Send,
        F: Future<Output = Vec<Result<T, Failure>>> + Send,
    {
        // The future is dropped within the code that catches panics, as soon as it has ended.
        let run = Guarded::new(work, Arc::clone(&self.clock), bounds).map(|ended| ended);
        let ended = AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|panic| {
            drop_panic(panic);
            Err(Unfinished::Panicked(None))
        });
        let ends: Vec<Result<Result<Success<T>, Failure>, Unfinished>> = match ended {
            Ok(verdicts) => verdicts.into_iter().map(|verdict| Ok(verdict.map(Success::Complete))).collect(),
            Err(unfinished) => claims.iter().map(|_| Err(unfinished.clone())).collect(),
        };
        let end = |(claim, ended): (Option<Claim>, _)| {
            let claim_of_panic = claim.clone();
            catch_panic(|| self.end(claim, ended, crate::idempotency::guard::drop_contained))
                .unwrap_or_else(|| End::kept(claim_of_panic, Conclusion::PANICKED))
        };
        claims.into_iter().zip(ends).map(end).collect()
    }

    /// Returns the end of a run, by the handler's verdict.
    pub(super) fn end<T: Recorded, U>(
        &self,
        claim: Option<Claim>,
        ended: Result<Result<Success<T>, Failure>, Unfinished>,
        keep: impl FnOnce(T) -> U,
    ) -> End<U> {
        let completion = |value: &T| claim.as_ref().map(|claim| self.completion(claim, value));
        match ended {
            Ok(Ok(Success::Complete(value))) => {
                let settlement = completion(&value);
                End::settled_with(claim, settlement, Conclusion::Completed(keep(value)))
            }
            Ok(Ok(Success::Recover(value))) => {
                let settlement = completion(&value);
                End::settled_with(claim, settlement, Conclusion::Recovered(keep(value)))
            }
            Ok(Ok(Success::Release(value))) => End::released(claim, Conclusion::Released(keep(value))),
            Ok(Ok(Success::Keep(value))) => End::kept(claim, Conclusion::Kept(keep(value))),
            Ok(Err(failure)) => self.failed(claim, self.settings.classifiers.judge(failure, self.settings.on_panic)),
            Err(Unfinished::Cancelled) => End::kept(claim, Conclusion::Interrupted(Interruption::Cancelled)),
            Err(Unfinished::NotStarted) => End::released(claim, Conclusion::NotStarted),
            Err(Unfinished::Panicked(message)) => {
                let key = claim.as_ref().map(|claim| tracing::field::display(claim.key()));
                tracing::error!(target: "lambda_once", key, panic = message, "a panic ended the run");
                match self.settings.on_panic {
                    OnPanic::Transient => End::released(claim, Conclusion::PANICKED),
                    OnPanic::Unknown => End::kept(claim, Conclusion::PANICKED),
                }
            }
        }
    }

    fn failed<U>(&self, claim: Option<Claim>, failure: Failure) -> End<U> {
        match failure.verdict() {
            Verdict::Unknown => End::kept(claim, Conclusion::Failed(failure)),
            Verdict::Transient => End::released(claim, Conclusion::Failed(failure)),
            Verdict::Superseded => match claim.is_some().then(|| self.supersession()).transpose() {
                Ok(settlement) => End::settled_with(claim, settlement, Conclusion::Superseded),
                Err(error) => End::released(claim, Conclusion::Failed(Failure::permanent(error))),
            },
            Verdict::Permanent => {
                let settlement = claim.as_ref().map(|claim| self.failure(claim, &failure));
                End::settled_with(claim, settlement, Conclusion::Failed(failure))
            }
        }
    }

    fn completion(&self, claim: &Claim, value: &impl Recorded) -> Settlement {
        let result = value.recorded(&self.encoder(claim));
        Settlement::complete(result, self.settings.retention())
    }

    /// Returns the encoder for the result of a claim's operation.
    fn encoder(&self, claim: &Claim) -> Encoder<'_> {
        Encoder::new(claim.key(), &self.settings, self.store.limits())
    }

    /// Returns the settlement of an operation that is superseded and had no effect.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the store's records cannot represent that.
    pub(super) fn supersession(&self) -> Result<Settlement, Error> {
        if !self.store.format().keeps_every_outcome() {
            return Err(Error::config("records of AWS Powertools cannot say that an operation is superseded"));
        }
        Ok(Settlement::complete(StoredResult::SUPERSEDED, self.settings.retention()))
    }

    /// Returns the settlement of a permanent failure. If the store's records cannot represent it, the operation may run
    /// again.
    pub(super) fn failure(&self, claim: &Claim, failure: &Failure) -> Settlement {
        if !self.store.format().keeps_every_outcome() {
            return claim.release();
        }
        let result = self.encoder(claim).encode_failure(failure);
        Settlement::fail(result, self.settings.failed_retention())
    }
}

/// Awaits a run. A panic outside the guarded work keeps the claim.
pub(super) fn contained<U>(
    run: impl Future<Output = End<U>> + Send,
    claim: Option<Claim>,
) -> impl Future<Output = End<U>> + Send {
    AssertUnwindSafe(run)
        .catch_unwind()
        .map(|caught| caught.map_err(drop_panic).unwrap_or_else(|()| End::kept(claim, Conclusion::PANICKED)))
}
