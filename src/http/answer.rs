//! Builds the response to the client.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header, request::Parts};
use tracing::Level;

use super::{
    ResponseBody, StoredResponse,
    handler_end::HandlerEnd,
    lambda,
    problem::Problem,
    settings::LayerSettings,
    stored::{ORIGINAL_REQUEST, StoredForm},
};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    idempotency::{
        engine::{ClaimAnswer, Conclusion, End, Subject},
        guard::{Unfinished, bounded, catch_panic},
        outcome::{Interruption, Outcome, OutcomeKind, StoredFailure},
        verdict::Verdict,
    },
    record::{Difference, KeyHash, StoredResult},
    store::{MismatchState, Refusal},
    telemetry::{EntryPoint, event_at, spans},
};

/// The longest that `before_replay` may take.
const MAX_GATE_TIME: Duration = Duration::from_secs(10);

/// The request that a response is for, and its operation.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// `None` after a run, unless a hook of the application needs it.
    pub(super) parts: Option<&'a Parts>,
    pub(super) key: KeyHash,
    /// 0 if nothing was granted.
    pub(super) attempt: u64,
    /// The time at which the front door gives up, if it does.
    pub(super) answer_by: Option<Timestamp>,
    /// Whether a Lambda function was invoked for it.
    pub(super) is_invocation: bool,
}

impl<'a> Asked<'a> {
    /// A request whose claim was not granted.
    pub(super) fn not_granted(parts: &'a Parts, key: KeyHash, answer_by: Option<Timestamp>) -> Self {
        Self { parts: Some(parts), key, attempt: 0, answer_by, is_invocation: lambda::is_invocation(parts) }
    }
}

impl LayerSettings {
    /// The response after a run.
    pub(super) async fn conclude<R, E>(
        &self,
        end: End<HandlerEnd<'_, R, E>>,
        asked: Asked<'_>,
        took_over: bool,
    ) -> Result<Response<ResponseBody<R>>, E> {
        let log = |outcome: OutcomeKind| self.log(outcome, Difference::UNKNOWN, asked);
        let ran = match end.into_conclusion() {
            Conclusion::Released(HandlerEnd::Broken) => {
                let outcome = OutcomeKind::Failed(Verdict::Transient);
                return Ok(self.problem(Problem::ANSWER_BROKEN_RELEASED, outcome, asked));
            }
            Conclusion::Released(ran) => {
                log(OutcomeKind::Failed(Verdict::Transient));
                ran
            }
            Conclusion::Kept(ran) => {
                log(OutcomeKind::Failed(Verdict::Unknown));
                ran
            }
            Conclusion::NotCommitted(failure) => {
                return Ok(self.problem(Problem::of_commit(&failure), OutcomeKind::Failed(failure.verdict()), asked));
            }
            Conclusion::Overtaken(refusal) => return Ok(self.refuse(*refusal, asked).await),
            conclusion => {
                let Ok(outcome) = conclusion.into_outcome(took_over, |_| Ok::<_, Infallible>(Outcome::LeaseLost));
                let kind = outcome.kind();
                let problem = match outcome {
                    // Older requests wait until it is recorded.
                    Outcome::Unrecorded(_) if self.order.is_some() => Problem::NOT_RECORDED,
                    Outcome::Executed(ran)
                    | Outcome::TookOver(ran)
                    | Outcome::Recovered(ran)
                    | Outcome::Unrecorded(ran) => {
                        log(kind);
                        return if self.refuses_large_answers && ran.is_too_large() {
                            Ok(self.refusal(Problem::ANSWER_TOO_LARGE, asked.parts))
                        } else {
                            self.first(ran, asked)
                        };
                    }
                    // Only a probe fails in this way.
                    Outcome::Failed(_) => Problem::PROBE_FAILED,
                    Outcome::Interrupted(Interruption::Panicked) => Problem::PANICKED,
                    Outcome::Interrupted(Interruption::Cancelled) => Problem::CUT_OFF,
                    Outcome::NotStarted => Problem::UNAVAILABLE,
                    Outcome::Superseded { .. } => Problem::SUPERSEDED,
                    _ => self.in_progress(None),
                };
                return Ok(self.problem(problem, kind, asked));
            }
        };
        self.first(ran, asked)
    }

    /// The inner service's own response, or its error.
    fn first<R, E>(&self, ran: HandlerEnd<'_, R, E>, asked: Asked<'_>) -> Result<Response<ResponseBody<R>>, E> {
        match ran {
            HandlerEnd::Answered { mut parts, body, .. } => {
                self.mark_first(&mut parts.headers);
                Ok(Response::from_parts(parts, body))
            }
            HandlerEnd::Broken => Ok(self.refusal(Problem::ANSWER_BROKEN, asked.parts)),
            HandlerEnd::Error(error) => Err(error),
        }
    }

    pub(super) fn mark_first(&self, headers: &mut HeaderMap) {
        if self.marks_first_responses {
            headers.insert(self.replay_header.clone(), HeaderValue::from_static("false"));
        }
    }

    /// Refuses a request whose claim was not granted, or replays a response.
    pub(super) async fn refuse_claim<R>(
        &self,
        answer: Result<ClaimAnswer, Error>,
        asked: Asked<'_>,
    ) -> Response<ResponseBody<R>> {
        match answer {
            Ok(ClaimAnswer::Refused(refusal)) => self.refuse(refusal, asked).await,
            Ok(ClaimAnswer::Granted(_) | ClaimAnswer::OutOfTime) => {
                self.problem(Problem::UNAVAILABLE, OutcomeKind::NotStarted, asked)
            }
            Err(error) => {
                self.engine.tell_error(self.subject(asked.key), &error);
                self.refusal(Problem::UNAVAILABLE, asked.parts)
            }
        }
    }

    /// The response to a request whose claim was refused.
    pub(super) async fn refuse<R>(&self, refusal: Refusal, asked: Asked<'_>) -> Response<ResponseBody<R>> {
        let decoder = self.engine.settings.decoder(&asked.key);
        let payload_version = self.engine.settings.payload_version;
        let failure = |_: &StoredResult| Ok(StoredFailure { message: None });
        let outcome = Outcome::of_refusal(refusal, payload_version, |result| decoder.decode(result), failure);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.engine.tell_error(self.subject(asked.key), &error);
                return self.refusal(Problem::ANSWER_UNREADABLE, asked.parts);
            }
        };
        let kind = outcome.kind();
        let problem = match outcome {
            Outcome::Replayed(stored) | Outcome::ReplayedOtherVersion(stored) => {
                if let Some(stored) = StoredForm::into_response(stored) {
                    return self.replay(stored, kind, asked).await;
                }
                let (kind, status) = (ErrorKind::StoredResult, ErrorStatus::Permanent);
                let error = Error::new(kind, status, "replay", "the stored data is not a response");
                self.engine.tell_error(self.subject(asked.key), &error);
                return self.refusal(Problem::ANSWER_UNREADABLE, asked.parts);
            }
            Outcome::ReplayedWithoutResult => {
                return self.marked(self.problem(Problem::ANSWER_NOT_KEPT, kind, asked));
            }
            Outcome::ReplayedFailure(_) => Problem::FAILED_BEFORE,
            Outcome::Mismatch(mismatch) => {
                let problem = Problem::of_mismatch(mismatch).status(self.mismatch_status);
                match mismatch.state {
                    MismatchState::InProgress { lease_until, .. } => self.until_free(problem, lease_until),
                    MismatchState::Final | MismatchState::Abandoned { .. } => problem,
                }
            }
            Outcome::Superseded { .. } => Problem::SUPERSEDED,
            Outcome::Abandoned { .. } => Problem::ABANDONED,
            Outcome::InProgress { lease_until, .. } => self.in_progress(lease_until),
            // No refusal becomes another outcome.
            _ => Problem::UNAVAILABLE,
        };
        self.problem(problem, kind, asked)
    }

    /// Replays a stored response, or the part of it that is kept, unless `before_replay` refuses that.
    async fn replay<R>(
        &self,
        stored: StoredResponse,
        kind: OutcomeKind,
        asked: Asked<'_>,
    ) -> Response<ResponseBody<R>> {
        let is_whole = stored.body().is_some();
        if let Some(gate) = &self.before_replay {
            let Some(request) = asked.parts else {
                return self.refuse_replay(Level::WARN, "`before_replay` has no request to check", asked);
            };
            let stop = self.window(request).stop;
            let left = asked.answer_by.map_or(stop, |by| by.min(stop)).since(self.engine.clock.now());
            // Called inside the future, so that a panic in the call is caught too.
            match bounded(async { gate(request, &stored).await }, left.min(MAX_GATE_TIME)).await {
                Ok(Ok(())) => {}
                Ok(Err(refusal)) => {
                    self.tell_refused_replay(Level::INFO, "`before_replay` refused the replay", asked);
                    return refusal.map(ResponseBody::of_bytes);
                }
                Err(unfinished) => {
                    let error = match unfinished {
                        Unfinished::Panicked(_) => "`before_replay` panicked",
                        Unfinished::Cancelled => "`before_replay` took too long",
                        Unfinished::NotStarted => "no time was left for `before_replay`",
                    };
                    return self.refuse_replay(Level::WARN, error, asked);
                }
            }
        }
        self.log(if is_whole { kind } else { OutcomeKind::ReplayedWithoutResult }, Difference::UNKNOWN, asked);
        let StoredResponse { mut response, trailers, .. } = stored;
        if !is_whole {
            let headers = response.headers_mut();
            let (location, original) = (headers.remove(header::LOCATION), headers.remove(ORIGINAL_REQUEST));
            let problem = Problem::ANSWER_NOT_KEPT.answered(response.status(), location);
            let mut response = self.marked(self.refusal(problem, asked.parts));
            response.headers_mut().extend(original.map(|id| (ORIGINAL_REQUEST, id)));
            return response;
        }
        self.marked(response.map(|bytes| ResponseBody::with_trailers(bytes, trailers)))
    }

    /// Refuses a replay that `before_replay` has not checked.
    fn refuse_replay<R>(&self, level: Level, error: &'static str, asked: Asked<'_>) -> Response<ResponseBody<R>> {
        self.tell_refused_replay(level, error, asked);
        self.refusal(Problem::REPLAY_UNCHECKED, asked.parts)
    }

    /// Logs that a stored response was not replayed, and notifies observers.
    fn tell_refused_replay(&self, level: Level, error: &'static str, asked: Asked<'_>) {
        let (kind, operation, key) = (ErrorKind::Replay, &*self.operation, asked.key);
        event_at!(level, outcome = kind.as_str(), operation, %key, error, "operation");
        spans::conclude(Some(key), asked.attempt, kind.as_str(), level);
        self.engine.observe(self.subject(key), Err(kind));
    }

    fn marked<R>(&self, mut response: Response<R>) -> Response<R> {
        response.headers_mut().insert(self.replay_header.clone(), HeaderValue::from_static("true"));
        response
    }

    fn in_progress(&self, lease_until: Option<Timestamp>) -> Problem {
        self.until_free(Problem::IN_PROGRESS.status(self.in_progress_status), lease_until)
    }

    /// Advises the client to retry after the lease and the margin, because another request holds the key.
    fn until_free(&self, problem: Problem, lease_until: Option<Timestamp>) -> Problem {
        let Some(lease_until) = lease_until else { return problem.retry_soon() };
        let free_at = lease_until.after(self.engine.settings.skew_margin);
        problem.retry_after(free_at.since(self.engine.clock.now()))
    }

    /// Logs the outcome, and refuses the request.
    pub(super) fn problem<R>(
        &self,
        problem: Problem,
        outcome: OutcomeKind,
        asked: Asked<'_>,
    ) -> Response<ResponseBody<R>> {
        self.log(outcome, problem.difference(), asked);
        self.refusal(problem, asked.parts)
    }

    fn log(&self, outcome: OutcomeKind, difference: Difference, asked: Asked<'_>) {
        let subject = Subject { is_invocation: asked.is_invocation, difference, ..self.subject(asked.key) };
        self.engine.tell_outcome(subject, outcome, None, asked.attempt);
    }

    pub(super) fn subject(&self, key: KeyHash) -> Subject<'_> {
        Subject::new(EntryPoint::Http, &self.operation, Some(key))
    }

    /// Refuses the request.
    pub(super) fn refusal<R>(&self, problem: Problem, request: Option<&Parts>) -> Response<ResponseBody<R>> {
        let base = self.problem_type_base.as_deref();
        let (Some(decorate), Some(request)) = (&self.on_rejection, request) else {
            return problem.into_response(base).map(ResponseBody::of_bytes);
        };
        let decorated = catch_panic(|| {
            let mut response: Response<Bytes> = problem.clone().into_response(base);
            decorate(request, &mut response);
            response
        });
        let response = decorated.unwrap_or_else(|| {
            tracing::error!(target: "lambda_once", operation = &*self.operation, "`on_rejection` panicked");
            Problem::HOOK_FAILED.in_place_of(&problem).into_response(base)
        });
        response.map(ResponseBody::of_bytes)
    }
}
