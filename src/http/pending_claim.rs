//! Gives back claims that nobody acts on.

use std::mem;

use super::InFlight;
use crate::{
    clock::Timestamp,
    error::Error,
    idempotency::{
        claim::Claim,
        engine::{Candidate, ClaimAnswer, Withdrawal},
        handle::Idempotency,
        window::Window,
    },
    store::{Refusal, ResultData},
};

/// The store's answer to a claim, until it is [taken](Self::take). Dropping it gives the claim back.
///
/// A server drops a request whose client disconnects. If the handler has not started, there is no effect to protect, and under
/// [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) the claim would block the key for good.
pub(super) struct PendingClaim {
    engine: Idempotency,
    in_flight: InFlight,
    window: Window,
    claim: Option<Claim>,
    refusal: Option<Result<Refused, Error>>,
    /// Claims that may have been applied although they were not granted.
    withdrawal: Withdrawal,
}

/// Why the handler does not run.
pub(super) enum Refused {
    Refusal(Refusal),
    OutOfTime,
}

impl PendingClaim {
    /// Claims an operation.
    pub(super) async fn claim(engine: Idempotency, in_flight: InFlight, candidate: Candidate, window: Window) -> Self {
        let (mut answers, withdrawal) = engine.claim(&[candidate], window, ResultData::Include).await;
        let (claim, refusal) = match answers.pop().unwrap_or(Ok(ClaimAnswer::OutOfTime)) {
            Ok(ClaimAnswer::Granted(claim)) => (Some(claim), None),
            Ok(ClaimAnswer::Refused(refusal)) => (None, Some(Ok(Refused::Refusal(refusal)))),
            Ok(ClaimAnswer::OutOfTime) => (None, Some(Ok(Refused::OutOfTime))),
            Err(error) => (None, Some(Err(error))),
        };
        Self { engine, in_flight, window, claim, refusal, withdrawal }
    }

    /// The claim, or why there is none.
    pub(super) fn take(&mut self) -> Result<Claim, Result<Refused, Error>> {
        self.claim.take().ok_or_else(|| self.refusal.take().unwrap_or(Ok(Refused::OutOfTime)))
    }

    /// Releases claims that may have been applied although they were not granted.
    pub(super) async fn withdraw(mut self, until: Timestamp) {
        let withdrawal = mem::take(&mut self.withdrawal);
        self.engine.withdraw(withdrawal, self.window.settled_by(until)).await;
    }
}

impl Drop for PendingClaim {
    fn drop(&mut self) {
        let (claim, withdrawal) = (self.claim.take(), mem::take(&mut self.withdrawal));
        if claim.is_none() && withdrawal.is_empty() {
            return;
        }
        let (engine, window) = (self.engine.clone(), self.window);
        self.in_flight.spawn_if_possible(async move {
            engine.release(claim.into_iter().collect()).await;
            engine.withdraw(withdrawal, window).await;
        });
    }
}
