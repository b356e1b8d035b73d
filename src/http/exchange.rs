//! One request, from its key to its answer.

use std::{any::Any, convert::Infallible, future::pending, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{HeaderName, HeaderValue, Request, Response, request::Parts, response};
use serde::{Serialize, Serializer, ser::Error as _};
use tower_service::Service;

use super::{
    BodyProblem, Decision, RequestBody, ResponseBody, lambda,
    offer::{Offer, Refused},
    problem::Problem,
    settings::Settings,
    stored::{HeaderPolicy, StoredForm},
};
use crate::{
    clock::Timestamp,
    error::{BoxError, ErrorKind},
    idempotency::{
        claim::Claim,
        engine::{Candidate, Success, probed},
        outcome::OutcomeKind,
        probe::Probed,
        verdict::{Failure, Verdict},
        window::Window,
    },
    key::delivery::Body,
    store::Refusal,
    telemetry,
};

/// The answers to requests that were processed without protection have it.
const UNPROTECTED: HeaderName = HeaderName::from_static("idempotency-unprotected");

/// The longest that the store may take where requests pass on without it.
const FAIL_OPEN_AFTER: Duration = Duration::from_secs(3);

/// A request and the service that answers it.
struct Work<S, B> {
    inner: S,
    parts: Parts,
    body: B,
}

/// A request's operation, and its time.
#[derive(Clone, Copy)]
struct Entry {
    candidate: Candidate,
    window: Window,
    /// Until when it waits while another request has its key.
    wait_until: Timestamp,
    /// Whether it goes on without its client.
    to_completion: bool,
    is_in_lambda: bool,
}

/// What a try to answer a request came to.
#[allow(clippy::large_enum_variant, reason = "there is one for each request, and it is moved once")]
enum Tried<S, B, A> {
    Answered(A),
    /// Another request has the key, and there is time to wait for it.
    Busy(Refusal, Work<S, B>),
}

type Answer<R, E> = Result<Response<ResponseBody<R>>, E>;

/// How the inner service ended.
#[allow(clippy::large_enum_variant, reason = "there is one for each request, and it is moved once")]
pub(super) enum Ran<'s, R, E> {
    Answered { parts: response::Parts, body: ResponseBody<R>, headers: &'s HeaderPolicy },
    Error(E),
}

impl<R, E> Serialize for Ran<'_, R, E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Answered { parts, body, headers } => match body.whole() {
                Some(bytes) => StoredForm::new(parts.status, &parts.headers, bytes, headers).serialize(serializer),
                None => Err(S::Error::custom("the answer's body is beyond the cap")),
            },
            Self::Error(_) => Err(S::Error::custom("an error of the service is not an answer")),
        }
    }
}

/// Answers a request: passes it through, refuses it, replays an answer, or has the inner service make one.
pub(super) async fn answer<S, B, R>(settings: Arc<Settings>, inner: S, request: Request<B>) -> Answer<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: RequestBody,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let head = match settings.head(&parts) {
        Ok(super::entry::Head::Passes) => return Work { inner, parts, body }.pass().await,
        Ok(head) => head,
        Err(problem) => return Ok(settings.refusal(problem, Some(&parts))),
    };
    let (bytes, body) = match body.read(settings.max_body).await {
        Ok(read) => read,
        Err(BodyProblem::TooLarge) => return Ok(settings.refusal(Problem::BODY_TOO_LARGE, Some(&parts))),
        Err(BodyProblem::Broken(_)) => return Ok(settings.refusal(Problem::BODY_BROKEN, Some(&parts))),
    };
    let candidate = match settings.candidate(head, &parts, &Body::new(&bytes)) {
        Ok(Some(candidate)) => candidate,
        Ok(None) => return Work { inner, parts, body }.pass().await,
        Err(problem) => return Ok(settings.refusal(problem, Some(&parts))),
    };
    drop(bytes);
    let entry = settings.enter(candidate, &parts);
    settings.see_through(Work { inner, parts, body }, entry).await
}

impl Settings {
    /// The time of a request begins when its body is there: how long that takes is up to the client.
    fn enter(&self, candidate: Candidate, parts: &Parts) -> Entry {
        let window = self.window(parts);
        let patience = lambda::answer_within(parts).map_or(self.patience, |limit| self.patience.min(limit));
        let is_in_lambda = lambda::deadline(parts).is_some();
        Entry {
            candidate,
            window,
            wait_until: self.engine.clock.now().after(patience).min(window.stop),
            to_completion: self.runs_to_completion.unwrap_or(!is_in_lambda),
            is_in_lambda,
        }
    }

    /// Tries until there is an answer, and waits in between: a client that disconnects meanwhile ends the wait.
    async fn see_through<S, B, R>(self: Arc<Self>, mut work: Work<S, B>, entry: Entry) -> Answer<R, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Send + 'static,
        B: RequestBody,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let key = entry.candidate.key;
        let mut wait = None;
        loop {
            let trying = Arc::clone(&self).attempt(work, entry);
            let tried = if entry.to_completion { self.in_flight.run(trying).await } else { trying.await };
            let (refusal, back) = match tried {
                Tried::Answered(answer) => return answer,
                Tried::Busy(refusal, back) => (refusal, back),
            };
            match self.engine.wait_until_free(entry.candidate, refusal, &mut wait, entry.wait_until).await {
                Ok(None) => work = back,
                Ok(Some(refusal)) => return Ok(self.refuse(refusal, Some(&back.parts), key, 0).await),
                Err(error) => {
                    telemetry::error(&error, &self.operation, key);
                    return Ok(self.refusal(Problem::UNAVAILABLE, Some(&back.parts)));
                }
            }
        }
    }

    /// Claims the operation, and runs it if that is granted.
    async fn attempt<S, B, R>(self: Arc<Self>, work: Work<S, B>, entry: Entry) -> Tried<S, B, Answer<R, S::Error>>
    where
        S: Service<Request<B>, Response = Response<R>> + Send + 'static,
        S::Future: Send,
        S::Error: Send + 'static,
        B: RequestBody,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let key = entry.candidate.key;
        let mut offer = self.claim(entry).await;
        let refused = match offer.take() {
            Ok(claim) => {
                // Nothing is awaited before the handler begins: what is dropped from here on has begun.
                let claim = claim.stopping_at(entry.window.stop);
                return Tried::Answered(self.run(claim, work).await);
            }
            Err(refused) => refused,
        };
        let may_wait = self.engine.clock.now() < entry.wait_until;
        let answer = match refused {
            Ok(Refused::Refusal(refusal @ Refusal::InProgress { .. })) if may_wait => {
                return Tried::Busy(refusal, work);
            }
            Ok(Refused::Refusal(refusal)) => self.refuse(refusal, Some(&work.parts), key, 0).await,
            Ok(Refused::OutOfTime) if self.fails_open && self.engine.clock.now() < entry.window.stop => {
                return Tried::Answered(self.pass_unprotected(work, offer, entry).await);
            }
            Ok(Refused::OutOfTime) => {
                self.problem(Problem::UNAVAILABLE, OutcomeKind::NotStarted, Some(&work.parts), key, 0)
            }
            Err(error) => {
                telemetry::error(&error, &self.operation, key);
                if self.fails_open && error.kind() != ErrorKind::Format {
                    return Tried::Answered(self.pass_unprotected(work, offer, entry).await);
                }
                self.refusal(Problem::UNAVAILABLE, Some(&work.parts))
            }
        };
        // Outside Lambda the client does not wait for this: the offer is given back when it is dropped.
        if entry.is_in_lambda {
            offer.withdraw().await;
        }
        Tried::Answered(Ok(answer))
    }

    async fn claim(&self, entry: Entry) -> Offer {
        let Entry { candidate, window, .. } = entry;
        let now = self.engine.clock.now();
        let window = if self.fails_open {
            window.stopping_at(now.after((window.stop.since(now) / 4).min(FAIL_OPEN_AFTER)))
        } else {
            window
        };
        let claiming = Offer::of(self.engine.clone(), self.in_flight.clone(), candidate, window);
        if entry.is_in_lambda || entry.to_completion {
            return claiming.await;
        }
        // This request may be dropped while its claim is under way. In a task of its own the claim is answered all the same,
        // and given back.
        self.in_flight.run(claiming).await
    }

    /// Runs the inner service under a claim.
    async fn run<S, B, R>(&self, claim: Claim, work: Work<S, B>) -> Answer<R, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>> + Send,
        S::Future: Send,
        S::Error: Send + 'static,
        B: Send,
        R: http_body::Body<Data = Bytes> + Send,
        R::Error: Into<BoxError>,
    {
        let Work { mut inner, mut parts, body } = work;
        let request = self.needs_request_later().then(|| parts.clone());
        parts.extensions.insert(claim.clone());
        let own = claim.clone();
        let running = async move {
            if let Some(probe) = &self.probe
                && let Probed::Done(found) = probed(&own, |claim| probe(&parts, claim)).await?
            {
                let (parts, bytes) = found.into_parts();
                return Ok(Success::Recover(self.ran(parts, ResponseBody::of_bytes(bytes))));
            }
            let response = match inner.call(Request::from_parts(parts, body)).await {
                Ok(response) => response,
                Err(error) if is_doubtful(&error) => return Ok(Success::Keep(Ran::Error(error))),
                Err(error) => return Ok(Success::Release(Ran::Error(error))),
            };
            let (parts, body) = response.into_parts();
            let said = parts.extensions.get::<Decision>().copied();
            let decision = said.unwrap_or_else(|| (self.decide)(parts.status));
            let body = ResponseBody::read(body, self.max_body).await.map_err(Failure::unknown)?;
            let ran = self.ran(parts, body);
            Ok(match decision {
                Decision::Store => Success::Complete(ran),
                Decision::Release => Success::Release(ran),
                Decision::Keep => Success::Keep(ran),
            })
        };
        let (key, attempt, took_over) = (claim.key(), claim.attempt(), claim.took_over());
        let end = self.engine.run_and_settle(claim, running).await;
        self.conclude(end, request.as_ref(), key, attempt, took_over).await
    }

    fn ran<R, E>(&self, mut parts: response::Parts, body: ResponseBody<R>) -> Ran<'_, R, E> {
        // The mark is ours to set.
        parts.headers.remove(&self.replay_header);
        Ran::Answered { parts, body, headers: &self.stored_headers }
    }

    /// The store is in trouble, and the request is not to wait for it.
    async fn pass_unprotected<S, B, R>(&self, work: Work<S, B>, offer: Offer, entry: Entry) -> Answer<R, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>> + Send,
        S::Future: Send,
        B: Send,
    {
        let (operation, key) = (&*self.operation, entry.candidate.key);
        tracing::warn!(target: "lambda_once", outcome = "unprotected", operation, %key, "operation");
        let withdrawal = async {
            offer.withdraw().await;
            pending::<Infallible>().await
        };
        // The answer does not wait for the withdrawal.
        let mut response = match select(pin!(work.pass()), pin!(withdrawal)).await {
            Either::Left((answer, _)) => answer?,
            Either::Right((never, _)) => match never {},
        };
        response.headers_mut().insert(UNPROTECTED, HeaderValue::from_static("true"));
        Ok(response)
    }
}

impl<S, B> Work<S, B> {
    /// As without the layer.
    async fn pass<R>(mut self) -> Answer<R, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>> + Send,
        S::Future: Send,
        B: Send,
    {
        let request = Request::from_parts(self.parts, self.body);
        Ok(self.inner.call(request).await?.map(ResponseBody::passed))
    }
}

/// Whether an error of the service is marked as unknown. Only boxed errors can be looked into, as those of
/// `lambda_http` are.
fn is_doubtful<E: 'static>(error: &E) -> bool {
    let boxed = (error as &dyn Any).downcast_ref::<BoxError>();
    boxed.is_some_and(|error| Verdict::of(&**error) == Verdict::Unknown)
}
