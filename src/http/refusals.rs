//! Reports requests that are refused before anything is claimed, to the log and to observers.

use std::{
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::{Response, request::Parts};
use tokio::time::Instant;
use tracing::Level;

use super::{ResponseBody, problem::Problem, settings::LayerSettings};
use crate::{
    error::ErrorKind,
    idempotency::{engine::Subject, outcome::OutcomeKind},
    telemetry::{EntryPoint, spans},
};

/// The shortest time between two warnings of one kind.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Limits warnings about refusals, by their code. A request without a caller or a key may be a client's mistake, or a missing
/// authorizer, with which every request is refused.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    caller_unknown: Mutex<Throttle>,
    key_missing: Mutex<Throttle>,
    overloaded: Mutex<Throttle>,
}

#[derive(Debug, Default)]
struct Throttle {
    last: Option<Instant>,
    suppressed: u64,
}

impl Throttle {
    /// Returns the number of warnings suppressed since the last one, or `None` if this one is suppressed as well.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < WARN_EVERY) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(mem::take(&mut self.suppressed))
    }
}

impl Warnings {
    /// Returns the limit of this refusal's warnings, or `None` if it is not logged as a warning.
    fn of(&self, problem: &Problem) -> Option<&Mutex<Throttle>> {
        match problem.code() {
            "caller_unknown" => Some(&self.caller_unknown),
            "key_missing" => Some(&self.key_missing),
            "overloaded" => Some(&self.overloaded),
            _ => None,
        }
    }
}

impl LayerSettings {
    /// Refuses a request that is not an operation yet.
    pub(super) async fn refuse_early<R>(&self, problem: Problem, request: &Parts) -> Response<ResponseBody<R>> {
        let refusing = async { self.refuse_unclaimed(problem, Some(request)) };
        self.engine.observed(EntryPoint::Http, &self.operation, spans::request(&self.operation), refusing).await
    }

    /// Refuses a request that has no claim.
    pub(super) fn refuse_unclaimed<R>(&self, problem: Problem, request: Option<&Parts>) -> Response<ResponseBody<R>> {
        let outcome = problem.unclaimed_outcome();
        let name = outcome.map_or_else(ErrorKind::as_str, OutcomeKind::as_str);
        self.log_refusal(&problem, name);
        spans::conclude(None, 0, name, Level::INFO);
        self.engine.observe(Subject::new(EntryPoint::Http, &self.operation, None), outcome);
        self.refusal(problem, request)
    }

    fn log_refusal(&self, problem: &Problem, outcome: &'static str) {
        let (operation, code, error) = (&*self.operation, problem.code(), problem.cause());
        match self.warnings.of(problem) {
            Some(throttle) => {
                let admitted = throttle.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now());
                if let Some(suppressed) = admitted {
                    tracing::warn!(target: "lambda_once", outcome, operation, code, suppressed, error, "a request is refused");
                }
            }
            // These have been logged with their cause, as errors.
            None if matches!(code, "hook_failed" | "misconfigured") => {}
            None => tracing::info!(target: "lambda_once", outcome, operation, code, error, "a request is refused"),
        }
    }
}
