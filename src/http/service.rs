//! One request, from its key to its answer.

use std::{
    any::Any,
    convert::Infallible,
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, request, response};
use serde::{Serialize, Serializer, ser::Error as _};
use tower_service::Service;

use super::{
    BodyProblem, RequestBody, ResponseBody, body,
    header::{self, KeyHeader},
    layer::{OPERATION, Settings},
    problem::Problem,
    response::StoredResponse,
};
use crate::{
    clock::{Deadline, Timestamp},
    error::{BoxError, ErrorKind},
    future::BoxFuture,
    idempotency::{
        engine::{Candidate, ClaimAnswer, Conclusion, End, Success},
        outcome::{Interruption, Outcome, OutcomeKind, StoredFailure},
        result,
        verdict::{Failure, Verdict},
        window::Window,
    },
    key::{
        canonical::canonical,
        hash::{Form, fingerprint},
    },
    record::KeyHash,
    store::Refusal,
    telemetry,
};

/// The longest that a client is asked to wait for a running operation, in seconds.
const MAX_RETRY_AFTER: u64 = 2;

/// The service that [`IdempotencyKeyLayer`](super::IdempotencyKeyLayer) makes.
///
/// The request that it hands on has the [`Claim`](crate::Claim) among its extensions.
#[derive(Clone)]
pub struct IdempotencyKeyService<S> {
    pub(super) inner: S,
    pub(super) settings: Arc<Settings>,
}

impl<S> IdempotencyKeyService<S> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, without the layer.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyKeyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKeyService").field("inner", &self.inner).field("settings", &self.settings).finish()
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyKeyService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: RequestBody,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone is not ready; the service that was polled is.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let settings = Arc::clone(&self.settings);
        Box::pin(async move { settings.answer(inner, request).await })
    }
}

/// How the inner service ended.
enum Ran<E> {
    Answered(response::Parts, Bytes),
    /// Its body is beyond the cap.
    TooLarge,
    Error(E),
}

impl<E> Serialize for Ran<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Answered(parts, body) => {
                StoredResponse::new(parts.status, &parts.headers, body).serialize(serializer)
            }
            Self::TooLarge => Err(S::Error::custom("the answer's body is beyond the cap")),
            Self::Error(_) => Err(S::Error::custom("an error of the service is not an answer")),
        }
    }
}

/// A request that takes part, and its place in time.
struct Entry {
    key: String,
    caller: Vec<u8>,
    window: Window,
}

impl Settings {
    async fn answer<S, B, R>(&self, mut inner: S, request: Request<B>) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>> + Send,
        S::Future: Send,
        S::Error: Send + 'static,
        B: RequestBody,
        R: http_body::Body<Data = Bytes> + Send,
        R::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        let entry = match self.entry(&parts) {
            Ok(Some(entry)) => entry,
            Ok(None) => return pass(inner, Request::from_parts(parts, body)).await,
            Err(problem) => return Ok(problem.response()),
        };
        let (bytes, body) = match body.read(self.max_body).await {
            Ok(read) => read,
            Err(BodyProblem::TooLarge) => return Ok(Problem::BODY_TOO_LARGE.response()),
            Err(BodyProblem::Broken(_)) => return Ok(Problem::BODY_BROKEN.response()),
        };
        let candidate = self.candidate(&entry, &parts, &bytes);
        let claim = match self.engine.claim_one(candidate, entry.window).await {
            Ok(ClaimAnswer::Granted(claim)) => claim,
            Ok(ClaimAnswer::Refused(refusal)) => return Ok(self.refuse(refusal, candidate.key, 0)),
            Ok(ClaimAnswer::OutOfTime) => {
                return Ok(self.problem(Problem::UNAVAILABLE, OutcomeKind::NotStarted, candidate.key, 0));
            }
            Err(error) => {
                telemetry::error(&error, &self.operation, candidate.key);
                if self.fail_open && error.kind() != ErrorKind::Format {
                    return pass(inner, Request::from_parts(parts, body)).await;
                }
                return Ok(Problem::UNAVAILABLE.response());
            }
        };
        parts.extensions.insert(claim.clone());
        let request = Request::from_parts(parts, body);
        let work = async move {
            let response = match inner.call(request).await {
                Ok(response) => response,
                Err(error) if is_doubtful(&error) => return Ok(Success::Keep(Ran::Error(error))),
                Err(error) => return Ok(Success::Release(Ran::Error(error))),
            };
            let (parts, body) = response.into_parts();
            let remember = (self.remember)(parts.status);
            let ran = match body::collect(body, self.max_body).await {
                Ok(bytes) => Ran::Answered(parts, bytes),
                Err(BodyProblem::TooLarge) => Ran::TooLarge,
                Err(BodyProblem::Broken(error)) => return Err(Failure::unknown(error)),
            };
            Ok(if remember { Success::Complete(ran) } else { Success::Release(ran) })
        };
        let (key, attempt, took_over) = (claim.key(), claim.attempt(), claim.took_over());
        let end = self.engine.run_and_settle(claim, work).await;
        self.conclude(end, key, attempt, took_over)
    }

    /// `None` if the request passes through.
    fn entry(&self, parts: &request::Parts) -> Result<Option<Entry>, Problem> {
        if self.engine.settings.disabled || !self.methods.contains(&parts.method) {
            return Ok(None);
        }
        let key = match header::key(&parts.headers, &self.header) {
            KeyHeader::Key(key) => key,
            KeyHeader::Absent if self.required => return Err(Problem::KEY_MISSING),
            KeyHeader::Absent => return Ok(None),
            KeyHeader::Malformed(detail) => return Err(Problem::malformed(detail)),
        };
        if let Err(error) = self.registration.check().and_then(|()| self.engine.check_probe(false)) {
            let operation = &*self.operation;
            tracing::error!(target: "lambda_once", outcome = error.kind().as_str(), operation, %error, "operation");
            return Err(Problem::MISCONFIGURED);
        }
        let caller = self.scope.of(parts).ok_or(Problem::CALLER_UNKNOWN)?;
        let deadline = parts.extensions.get::<lambda_runtime::Context>().map_or(Deadline::UNKNOWN, Deadline::from);
        let window = Window::new(self.engine.clock.now(), deadline, &self.engine.settings);
        Ok(Some(Entry { key, caller, window }))
    }

    fn candidate(&self, entry: &Entry, parts: &request::Parts, body: &[u8]) -> Candidate {
        let tenant = parts.extensions.get::<lambda_runtime::Context>().and_then(|context| context.tenant_id.as_deref());
        // Both as one: each is preceded by its length, so that neither can pose as the other.
        let tenant = tenant.unwrap_or_default().as_bytes();
        let whose = [&(tenant.len() as u64).to_be_bytes(), tenant, &entry.caller].concat();
        let scope = self.engine.scope(OPERATION, Some(&whose));
        let uri = &parts.uri;
        let (form, canonical) = match canonical(body) {
            Ok(json) => (Form::CanonicalJson, Some(json)),
            Err(_) => (Form::Bytes, None),
        };
        let pieces = [
            parts.method.as_str().as_bytes(),
            uri.path().as_bytes(),
            uri.query().unwrap_or_default().as_bytes(),
            canonical.as_deref().unwrap_or(body),
        ];
        Candidate { key: scope.hash(entry.key.as_bytes()), fingerprint: Some(fingerprint(form, &pieces)) }
    }

    fn conclude<R, E>(
        &self,
        end: End<Ran<E>>,
        key: KeyHash,
        attempt: u64,
        took_over: bool,
    ) -> Result<Response<ResponseBody<R>>, E> {
        let log = |verdict: Verdict| {
            telemetry::outcome_kind(OutcomeKind::Failed(verdict), &self.operation, key, attempt);
        };
        let ran = match end.into_conclusion() {
            Conclusion::Released(ran) => {
                log(Verdict::Transient);
                ran
            }
            Conclusion::Kept(ran) => {
                log(Verdict::Unknown);
                ran
            }
            Conclusion::Overtaken(refusal) => return Ok(self.refuse(refusal, key, attempt)),
            conclusion => {
                let Ok(outcome) = conclusion.into_outcome(took_over, |_| Ok::<_, Infallible>(Outcome::LeaseLost));
                let kind = outcome.kind();
                let problem = match outcome {
                    Outcome::Executed(ran)
                    | Outcome::TookOver(ran)
                    | Outcome::Recovered(ran)
                    | Outcome::Unrecorded(ran) => {
                        telemetry::outcome_kind(kind, &self.operation, key, attempt);
                        return answered(ran);
                    }
                    Outcome::Failed(_) => Problem::ANSWER_BROKEN,
                    Outcome::Interrupted(Interruption::Panicked) => Problem::PANICKED,
                    Outcome::Interrupted(Interruption::CutOff) => Problem::CUT_OFF,
                    Outcome::NotStarted => Problem::UNAVAILABLE,
                    _ => Problem::IN_PROGRESS.retry_after(MAX_RETRY_AFTER),
                };
                return Ok(self.problem(problem, kind, key, attempt));
            }
        };
        answered(ran)
    }

    /// The answer to a request whose operation is not run.
    fn refuse<R>(&self, refusal: Refusal, key: KeyHash, attempt: u64) -> Response<ResponseBody<R>> {
        let outcome =
            Outcome::of_refusal(refusal, result::decode::<StoredResponse>, |_| Ok(StoredFailure { message: None }));
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                telemetry::error(&error, &self.operation, key);
                return Problem::ANSWER_UNREADABLE.response();
            }
        };
        let kind = outcome.kind();
        let problem = match outcome {
            Outcome::Replayed(stored) => match stored.into_response() {
                Some(response) => return self.replayed(response, key, attempt),
                None => Problem::ANSWER_UNREADABLE,
            },
            Outcome::ReplayedWithoutResult => {
                return self.replayed(Problem::ANSWER_NOT_KEPT.response(), key, attempt);
            }
            Outcome::ReplayedFailure(_) => Problem::FAILED_BEFORE,
            Outcome::Mismatch => Problem::MISMATCH,
            Outcome::Abandoned { .. } => Problem::ABANDONED,
            Outcome::InProgress { lease_until, .. } => {
                Problem::IN_PROGRESS.retry_after(retry_after(lease_until, self.engine.clock.now()))
            }
            // No refusal becomes another outcome.
            _ => Problem::UNAVAILABLE,
        };
        self.problem(problem, kind, key, attempt)
    }

    fn replayed<R>(&self, mut response: Response<R>, key: KeyHash, attempt: u64) -> Response<R> {
        response.headers_mut().insert(self.replay_header.clone(), HeaderValue::from_static("true"));
        telemetry::outcome_kind(OutcomeKind::Replayed, &self.operation, key, attempt);
        response
    }

    fn problem<R>(
        &self,
        problem: Problem,
        outcome: OutcomeKind,
        key: KeyHash,
        attempt: u64,
    ) -> Response<ResponseBody<R>> {
        telemetry::outcome_kind(outcome, &self.operation, key, attempt);
        problem.response()
    }
}

/// The service's own answer, or its error.
fn answered<R, E>(ran: Ran<E>) -> Result<Response<ResponseBody<R>>, E> {
    match ran {
        Ran::Answered(parts, bytes) => Ok(Response::from_parts(parts, ResponseBody::replayed(bytes))),
        Ran::TooLarge => Ok(Problem::ANSWER_TOO_LARGE.response()),
        Ran::Error(error) => Err(error),
    }
}

/// Whether an error of the service is marked as unknown. Only boxed errors can be looked into, as those of
/// `lambda_http` are.
fn is_doubtful<E: 'static>(error: &E) -> bool {
    let boxed = (error as &dyn Any).downcast_ref::<BoxError>();
    boxed.is_some_and(|error| Verdict::of(&**error) == Verdict::Unknown)
}

/// In whole seconds, at least one.
fn retry_after(lease_until: Option<Timestamp>, now: Timestamp) -> u64 {
    let left = lease_until.map_or(MAX_RETRY_AFTER, |until| until.since(now).as_secs());
    left.clamp(1, MAX_RETRY_AFTER)
}

async fn pass<S, B, R>(mut inner: S, request: Request<B>) -> Result<Response<ResponseBody<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send,
    S::Future: Send,
    B: Send,
{
    Ok(inner.call(request).await?.map(ResponseBody::passed))
}
