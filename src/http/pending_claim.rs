//! Releases claims that are not used.

use std::mem;

use super::InFlight;
use crate::{
    clock::Timestamp,
    error::Error,
    idempotency::{
        engine::{Candidate, ClaimAnswer, Engine, Withdrawal},
        window::Window,
    },
    store::ResultData,
};

/// The store's result of a claim, until it is [taken](Self::take). Dropping it releases the claim.
///
/// A server drops a request whose client disconnects. If the handler has not started, there is no effect to protect, and
/// under [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) the claim would block the key permanently.
pub(super) struct PendingClaim {
    engine: Engine,
    in_flight: InFlight,
    window: Window,
    /// `None` once it is taken.
    answer: Option<Result<ClaimAnswer, Error>>,
    /// Claims that may have been applied although they were not granted.
    withdrawal: Withdrawal,
}

impl PendingClaim {
    /// Claims an operation.
    pub(super) async fn claim(engine: Engine, in_flight: InFlight, candidate: Candidate, window: Window) -> Self {
        let (mut answers, withdrawal) = engine.claim(&[candidate], window, ResultData::Include).await;
        Self { engine, in_flight, window, answer: answers.pop(), withdrawal }
    }

    /// Takes the result. The caller must then settle the claim, if it was granted.
    pub(super) fn take(&mut self) -> Result<ClaimAnswer, Error> {
        self.answer.take().unwrap_or(Ok(ClaimAnswer::OutOfTime))
    }

    /// Releases claims that may have been applied although they were not granted.
    pub(super) async fn withdraw(mut self, until: Timestamp) {
        let withdrawal = mem::take(&mut self.withdrawal);
        self.engine.withdraw(withdrawal, self.window.settling_until(until)).await;
    }
}

impl Drop for PendingClaim {
    fn drop(&mut self) {
        let (answer, withdrawal) = (self.answer.take(), mem::take(&mut self.withdrawal));
        let claim = if let Some(Ok(ClaimAnswer::Granted(claim))) = answer { Some(claim) } else { None };
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
