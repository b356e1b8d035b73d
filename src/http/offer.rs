//! The answer to a claim, until somebody acts on it.

use std::mem;

use super::InFlight;
use crate::{
    error::Error,
    idempotency::{
        claim::Claim,
        engine::{Candidate, ClaimAnswer, Withdrawal},
        handle::Idempotency,
        window::Window,
    },
    store::{Refusal, ResultData},
};

/// The answer to a claim. What of it nobody takes is given back: the request may be dropped before its handler has begun,
/// and under [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) its key would be of no use to anybody any more.
pub(super) struct Offer {
    engine: Idempotency,
    in_flight: InFlight,
    window: Window,
    claim: Option<Claim>,
    refusal: Option<Result<Refused, Error>>,
    withdrawal: Withdrawal,
}

/// Why nothing is to be run.
pub(super) enum Refused {
    Refusal(Refusal),
    OutOfTime,
}

impl Offer {
    pub(super) async fn of(engine: Idempotency, in_flight: InFlight, candidate: Candidate, window: Window) -> Self {
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

    /// Gives back what may have been claimed although it was not granted.
    pub(super) async fn withdraw(mut self) {
        let withdrawal = mem::take(&mut self.withdrawal);
        self.engine.withdraw(withdrawal, self.window).await;
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let (claim, withdrawal) = (self.claim.take(), mem::take(&mut self.withdrawal));
        if claim.is_none() && withdrawal.is_empty() {
            return;
        }
        let (engine, window) = (self.engine.clone(), self.window);
        // Without a runtime there is no time left to give anything back.
        self.in_flight.spawn_if_possible(async move {
            engine.release(claim.into_iter().collect()).await;
            engine.withdraw(withdrawal, window).await;
        });
    }
}
