//! What a client is told.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, request::Parts};

use super::{ResponseBody, StoredResponse, exchange::Ran, problem::Problem, settings::Settings, stored::StoredForm};
use crate::{
    idempotency::{
        engine::{Conclusion, End},
        guard::bounded,
        outcome::{Interruption, Outcome, OutcomeKind, StoredFailure},
        result,
        verdict::Verdict,
    },
    record::KeyHash,
    store::Refusal,
    telemetry,
};

/// After which a client tries again where the end of a lease is not known.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The longest that the application may take to say whether an answer may be given again, if its invocation lasts as long.
const GATE_TIME: Duration = Duration::from_secs(10);

impl Settings {
    /// The answer after a run. `request` is there if a hook is to see it.
    pub(super) async fn conclude<R, E>(
        &self,
        end: End<Ran<'_, R, E>>,
        request: Option<&Parts>,
        key: KeyHash,
        attempt: u64,
        took_over: bool,
    ) -> Result<Response<ResponseBody<R>>, E> {
        let log = |outcome: OutcomeKind| telemetry::outcome_kind(outcome, &self.operation, key, attempt);
        let ran = match end.into_conclusion() {
            Conclusion::Released(ran) => {
                log(OutcomeKind::Failed(Verdict::Transient));
                ran
            }
            Conclusion::Kept(ran) => {
                log(OutcomeKind::Failed(Verdict::Unknown));
                ran
            }
            Conclusion::Overtaken(refusal) => return Ok(self.refuse(refusal, request, key, attempt).await),
            conclusion => {
                let Ok(outcome) = conclusion.into_outcome(took_over, |_| Ok::<_, Infallible>(Outcome::LeaseLost));
                let kind = outcome.kind();
                let problem = match outcome {
                    Outcome::Executed(ran)
                    | Outcome::TookOver(ran)
                    | Outcome::Recovered(ran)
                    | Outcome::Unrecorded(ran) => {
                        log(kind);
                        return self.first(ran, request);
                    }
                    // Only a probe fails for a while; an answer that breaks off leaves the outcome open.
                    Outcome::Failed(failure) if failure.verdict() == Verdict::Transient => Problem::PROBE_FAILED,
                    Outcome::Failed(_) => Problem::ANSWER_BROKEN,
                    Outcome::Interrupted(Interruption::Panicked) => Problem::PANICKED,
                    Outcome::Interrupted(Interruption::CutOff) => Problem::CUT_OFF,
                    Outcome::NotStarted => Problem::UNAVAILABLE,
                    _ => self.in_progress(RETRY_AFTER),
                };
                return Ok(self.problem(problem, kind, request, key, attempt));
            }
        };
        self.first(ran, request)
    }

    /// The service's own answer, or its error.
    fn first<R, E>(&self, ran: Ran<'_, R, E>, request: Option<&Parts>) -> Result<Response<ResponseBody<R>>, E> {
        match ran {
            Ran::Error(error) => Err(error),
            Ran::Answered { body, .. } if self.refuses_large_answers && body.whole().is_none() => {
                Ok(self.refusal(Problem::ANSWER_TOO_LARGE, request))
            }
            Ran::Answered { mut parts, body, .. } => {
                if self.marks_first_answers {
                    parts.headers.insert(self.replay_header.clone(), HeaderValue::from_static("false"));
                }
                Ok(Response::from_parts(parts, body))
            }
        }
    }

    /// The answer to a request whose operation is not run.
    pub(super) async fn refuse<R>(
        &self,
        refusal: Refusal,
        request: Option<&Parts>,
        key: KeyHash,
        attempt: u64,
    ) -> Response<ResponseBody<R>> {
        let outcome =
            Outcome::of_refusal(refusal, result::decode::<StoredForm>, |_| Ok(StoredFailure { message: None }));
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                telemetry::error(&error, &self.operation, key);
                return self.refusal(Problem::ANSWER_UNREADABLE, request);
            }
        };
        let kind = outcome.kind();
        let problem = match outcome {
            Outcome::Replayed(stored) => match stored.into_response() {
                Some(stored) => return self.replay(stored, request, key, attempt).await,
                None => Problem::ANSWER_UNREADABLE,
            },
            Outcome::ReplayedWithoutResult => {
                let refusal = self.problem(Problem::ANSWER_NOT_KEPT, kind, request, key, attempt);
                return self.marked(refusal);
            }
            Outcome::ReplayedFailure(_) => Problem::FAILED_BEFORE,
            Outcome::Mismatch => Problem::MISMATCH.status(self.mismatch_status),
            Outcome::Abandoned { .. } => Problem::ABANDONED,
            Outcome::InProgress { lease_until, .. } => {
                self.in_progress(lease_until.map_or(RETRY_AFTER, |until| until.since(self.engine.clock.now())))
            }
            // No refusal becomes another outcome.
            _ => Problem::UNAVAILABLE,
        };
        self.problem(problem, kind, request, key, attempt)
    }

    /// A stored answer, if the application does not object.
    async fn replay<R>(
        &self,
        stored: StoredResponse,
        request: Option<&Parts>,
        key: KeyHash,
        attempt: u64,
    ) -> Response<ResponseBody<R>> {
        telemetry::outcome_kind(OutcomeKind::Replayed, &self.operation, key, attempt);
        if let Some(gate) = &self.before_replay {
            let Some(request) = request else { return self.refusal(Problem::REPLAY_UNCHECKED, None) };
            let left = self.window(request).stop.since(self.engine.clock.now());
            // The hook is called inside, so that a panic in the call is caught too.
            match bounded(async { gate(request, &stored).await }, GATE_TIME.min(left)).await {
                Ok(Ok(())) => {}
                Ok(Err(refusal)) => return refusal.map(ResponseBody::of_bytes),
                Err(_) => return self.refusal(Problem::REPLAY_UNCHECKED, Some(request)),
            }
        }
        self.marked(stored.response.map(ResponseBody::of_bytes))
    }

    fn marked<R>(&self, mut response: Response<R>) -> Response<R> {
        response.headers_mut().insert(self.replay_header.clone(), HeaderValue::from_static("true"));
        response
    }

    fn in_progress(&self, left: Duration) -> Problem {
        Problem::IN_PROGRESS.retry_after(left).status(self.in_progress_status)
    }

    /// A refusal, and its event.
    pub(super) fn problem<R>(
        &self,
        problem: Problem,
        outcome: OutcomeKind,
        request: Option<&Parts>,
        key: KeyHash,
        attempt: u64,
    ) -> Response<ResponseBody<R>> {
        telemetry::outcome_kind(outcome, &self.operation, key, attempt);
        self.refusal(problem, request)
    }

    /// A refusal, as the application wants it.
    pub(super) fn refusal<R>(&self, problem: Problem, request: Option<&Parts>) -> Response<ResponseBody<R>> {
        let mut response: Response<Bytes> = problem.into_response(&self.problem_base);
        if let (Some(decorate), Some(request)) = (&self.on_refusal, request) {
            decorate(request, &mut response);
        }
        response.map(ResponseBody::of_bytes)
    }
}
