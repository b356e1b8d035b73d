//! The protocol: claim, run, settle. Everything that wraps a handler goes through here.

use std::{future::Future, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use serde::Serialize;

use super::{Claim, Failure, Idempotency, Interruption, Outcome, guard::discard};
use crate::{
    record::{Fingerprint, KeyHash},
    store::Refusal,
};

mod calls;
mod claiming;
mod probing;
mod running;
mod settling;
mod waiting;

#[cfg(feature = "batch")]
pub(crate) use calls::Backoff;
pub(crate) use probing::probed;
pub(crate) use running::Finished;
#[cfg(feature = "batch")]
pub(crate) use running::Ran;
#[cfg(feature = "batch")]
pub(crate) use settling::{Concluded, Due, Open, Settling};
#[cfg(feature = "batch")]
pub(crate) use waiting::Seen;

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
    /// It is remembered in the same way, but it is an earlier run's: a probe has found it.
    Recover(T),
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
    Recovered(T),
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
            Self::Recovered(found) => Outcome::Recovered(value(found)),
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
    /// Runs a claimed operation and settles the claim by its verdict.
    pub(crate) async fn conclude<T, F>(&self, claim: &Claim, work: F) -> Conclusion<T>
    where
        T: Serialize + Send,
        F: Future<Output = Result<Success<T>, Failure>> + Send,
    {
        let concluded = AssertUnwindSafe(async {
            match self.run(claim, work, |value| value).await {
                Finished::Concluded(conclusion) => conclusion,
                Finished::Due(due) => self.settle(claim.clone(), due).await,
            }
        });
        concluded.catch_unwind().await.unwrap_or_else(|panic| {
            discard(panic);
            Conclusion::Interrupted(Interruption::Panicked)
        })
    }
}
