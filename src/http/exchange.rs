//! Handles one request, from its key to its response.

use std::{
    future::{pending, poll_fn},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header, request::Parts};
use tokio::time::timeout;
use tower_service::Service;

use super::{
    BodyProblem, BodyReader, RequestBody, ResponseAction, ResponseBody,
    admission::{NotAdmitted, Permit},
    answer::Asked,
    entry::Participation,
    grpc,
    in_flight::Client,
    lambda,
    pending_claim::PendingClaim,
    problem::Problem,
    response_stream::Opening,
    settings::LayerSettings,
};
use crate::{
    clock::Timestamp,
    error::{BoxError, Error, ErrorKind},
    idempotency::{
        engine::{Candidate, ClaimAnswer, Conclusion, End},
        guard::catch_panic,
        policy::AfterUnknown,
        window::Window,
    },
    key::delivery::Body,
    store::Refusal,
    telemetry::{EntryPoint, spans},
};

/// Marks responses to requests that ran without a claim.
const UNPROTECTED: HeaderName = HeaderName::from_static("idempotency-unprotected");

/// The longest that a request waits for the store before it fails open.
const FAIL_OPEN_AFTER: Duration = Duration::from_secs(3);

/// The longest that a refusal waits for the withdrawal of its claim, because clients have timeouts, too.
const WITHDRAW_FOR: Duration = Duration::from_secs(28);

/// The longest that a finished response waits for the withdrawal of its claim.
const WITHDRAW_AFTER_RUN: Duration = Duration::from_secs(2);

/// A request, and the service that handles it.
pub(super) struct Work<S, B> {
    pub(super) inner: S,
    pub(super) parts: Parts,
    pub(super) body: B,
    /// Has read the body, which counts while it is held.
    pub(super) reader: BodyReader,
    /// Opens the stream of its response.
    pub(super) opening: Opening,
}

/// The operation of a request, and its time limits.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) candidate: Candidate,
    /// The time window in which it was received.
    window: Window,
    /// The time at which the front door gives up, if it does.
    answer_by: Option<Timestamp>,
    /// The latest time, in Lambda, at which its handler begins. After that the handler would have too little time.
    pub(super) begin_by: Option<Timestamp>,
    /// The end, in Lambda, of the time to withdraw its claim before it is refused.
    withdraw_until: Timestamp,
    /// The end of its wait for another request with its key.
    pub(super) wait_until: Timestamp,
    /// Whether it continues if its client disconnects.
    to_completion: bool,
    is_in_lambda: bool,
}

/// The result of one attempt to claim and run an operation.
#[allow(clippy::large_enum_variant, reason = "there is one for each request, and it is moved once")]
enum Attempted<S: Inner<B>, B> {
    Answered(Answer<S, B>),
    /// The claim was not granted. Neither a permit nor a ready service is held any more.
    NotGranted(Result<ClaimAnswer, Error>, Work<S, B>, PendingClaim),
    /// The store is unavailable, and the request runs without it.
    Unprotected(Work<S, B>, PendingClaim, Permit),
    /// The client has left before the handler began.
    GivenUp,
}

pub(super) type Answer<S, B> = Result<Response<ResponseBody<<S as Inner<B>>::Body>>, <S as Service<Request<B>>>::Error>;

/// A service that the layer can wrap.
pub(super) trait Inner<B>:
    Service<Request<B>, Response = Response<Self::Body>, Future: Send, Error: Send + 'static> + Clone + Send + 'static
{
    type Body: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B, R> Inner<B> for S
where
    S: Service<Request<B>, Response = Response<R>, Future: Send, Error: Send + 'static> + Clone + Send + 'static,
    R: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = R;
}

/// Passes a request through, refuses it, replays a stored response, or runs the inner service under a claim.
pub(super) async fn answer<S: Inner<B>, B: RequestBody>(
    settings: Arc<LayerSettings>,
    inner: S,
    request: Request<B>,
) -> Answer<S, B> {
    let (parts, body) = request.into_parts();
    let (opening, opened) = Opening::new();
    let mut reader = BodyReader::new(settings.max_body, settings.body_idle_timeout, settings.room.clone());
    let participation = match settings.hooked(|| settings.participation(&parts)) {
        Ok(Participation::PassThrough) => return settings.pass(Work { inner, parts, body, reader, opening }).await,
        Ok(participation) => participation,
        Err(problem) => return Ok(settings.refuse_early(problem, &parts).await),
    };
    let (bytes, body) = match settings.read(body, &parts, &mut reader).await {
        Ok(read) => read,
        Err(problem) => return Ok(settings.refuse_early(problem, &parts).await),
    };
    let candidate = match settings.hooked(|| settings.candidate(participation, &parts, &Body::new(&bytes))) {
        Ok(Some(candidate)) => candidate,
        Ok(None) => return settings.pass(Work { inner, parts, body, reader, opening }).await,
        Err(problem) => return Ok(settings.refuse_early(problem, &parts).await),
    };
    drop(bytes);
    let entry = settings.enter(candidate, &parts);
    let work = Work { inner, parts, body, reader, opening };
    let served = Box::pin(async move {
        let (span, served) = (spans::request(&settings.operation), Arc::clone(&settings).respond_or_wait(work, entry));
        settings.engine.observed(EntryPoint::Http, &settings.operation, span, served).await
    });
    opened.response(served).await
}

impl LayerSettings {
    /// Calls hooks of the application, which may panic, before anything is claimed.
    fn hooked<T>(&self, hooks: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
        catch_panic(hooks).unwrap_or_else(|| {
            tracing::error!(target: "lambda_once", operation = &*self.operation, "a function of the application panicked; the request is refused");
            Err(Problem::HOOK_FAILED)
        })
    }

    /// Reads the request's body. A body whose declared length is too large is not read, so that its client need not send it.
    async fn read<B: RequestBody>(
        &self,
        body: B,
        parts: &Parts,
        reader: &mut BodyReader,
    ) -> Result<(Bytes, B), Problem> {
        let declared = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        if declared.is_some_and(|bytes: u64| bytes > self.max_body as u64) {
            return Err(Problem::BODY_TOO_LARGE);
        }
        body.read(reader).await.map_err(|problem| match problem {
            BodyProblem::TooLarge => Problem::BODY_TOO_LARGE,
            BodyProblem::TimedOut => Problem::BODY_TIMED_OUT,
            BodyProblem::NoRoom => Problem::OVERLOADED.because("the layer holds as many bytes of bodies as it may"),
            BodyProblem::Broken(error) => Problem::BODY_BROKEN.because(error),
        })
    }

    /// Called once the body has been read, so a slow upload does not reduce the time to wait and to run.
    fn enter(&self, candidate: Candidate, parts: &Parts) -> Entry {
        let now = self.engine.clock.now();
        let answer_by = lambda::response_limit(parts).map(|limit| now.after(limit));
        let is_in_lambda = lambda::is_invocation(parts);
        // A handler that begins later would have too little time to finish.
        let window = self.window(parts);
        let in_time = is_in_lambda.then(|| window.stop.before(window.stop.since(now) / 4));
        let begin_by = [in_time, answer_by].into_iter().flatten().min();
        let waited = now.after(self.wait_up_to);
        Entry {
            candidate,
            window,
            answer_by,
            begin_by,
            wait_until: begin_by.map_or(waited, |by| by.min(waited)),
            withdraw_until: answer_by.unwrap_or(now.after(WITHDRAW_FOR)),
            to_completion: self.runs_to_completion.unwrap_or(!is_in_lambda),
            is_in_lambda,
        }
    }

    /// Attempts the operation until there is a response, waiting for its key in between. The waits are not in a separate
    /// task, so they end when the client disconnects.
    async fn respond_or_wait<S: Inner<B>, B: RequestBody>(
        self: Arc<Self>,
        mut work: Work<S, B>,
        entry: Entry,
    ) -> Answer<S, B> {
        let key = entry.candidate.key;
        let mut wait = None;
        loop {
            let admitted = self.admit(&mut work.inner, &entry, wait.is_some()).await;
            let (answer, mut pending_claim) = match admitted {
                Ok(permit) => {
                    let attempt = |client| Arc::clone(&self).attempt(work, entry.clone(), client, permit);
                    let tried = if entry.to_completion {
                        self.in_flight.run_for_client(attempt).await
                    } else {
                        attempt(Client::default()).await
                    };
                    match tried {
                        Attempted::Answered(answer) => return answer,
                        Attempted::NotGranted(answer, back, pending_claim) => {
                            work = back;
                            (answer, Some(pending_claim))
                        }
                        Attempted::Unprotected(work, pending_claim, permit) => {
                            let to_completion = entry.to_completion;
                            let pass =
                                |client| Arc::clone(&self).pass_unprotected(work, pending_claim, entry, client, permit);
                            return if to_completion {
                                self.in_flight.run_for_client(pass).await
                            } else {
                                pass(Client::default()).await
                            };
                        }
                        // This future has been dropped.
                        Attempted::GivenUp => return pending().await,
                    }
                }
                Err(NotAdmitted::Refused(refusal)) => {
                    work.rest();
                    (Ok(ClaimAnswer::Refused(refusal)), None)
                }
                Err(NotAdmitted::Overloaded(why)) => {
                    return Ok(self.refuse_unclaimed(Problem::OVERLOADED.because(why), Some(&work.parts)));
                }
                Err(NotAdmitted::Failed(error)) => return Err(error),
            };
            let answer = match answer {
                Ok(ClaimAnswer::Refused(refusal @ Refusal::InProgress { .. }))
                    if self.engine.clock.now() < entry.wait_until =>
                {
                    pending_claim = None;
                    match self.engine.wait_until_free(&entry.candidate, refusal, &mut wait, entry.wait_until).await {
                        Ok(None) => continue,
                        Ok(Some(refusal)) => Ok(ClaimAnswer::Refused(refusal)),
                        Err(error) => Err(error),
                    }
                }
                answer => answer,
            };
            let response = self.refuse_claim(answer, Asked::not_granted(&work.parts, key, entry.answer_by)).await;
            // Outside Lambda the client does not wait for this, because dropping the pending claim withdraws it in a task.
            if let Some(pending_claim) = pending_claim.filter(|_| entry.is_in_lambda) {
                pending_claim.withdraw(entry.withdraw_until).await;
            }
            return Ok(response);
        }
    }

    /// Claims the operation, and runs it if the claim is granted. If the deadline is not known, each attempt has the whole
    /// lease.
    async fn attempt<S: Inner<B>, B: RequestBody>(
        self: Arc<Self>,
        mut work: Work<S, B>,
        entry: Entry,
        client: Client,
        permit: Permit,
    ) -> Attempted<S, B> {
        let key = entry.candidate.key;
        // A deadline that has passed in the meantime would count as unknown.
        let window = if entry.window.deadline().is_some() { entry.window } else { self.window(&work.parts) };
        let mut pending_claim = self.claim(&entry, window).await;
        if client.has_left() {
            // Dropping the claim releases it. A handler that does not begin has no effect, and such requests would keep out
            // those whose clients are still connected.
            return Attempted::GivenUp;
        }
        let answer = match pending_claim.take() {
            Ok(ClaimAnswer::Granted(claim)) => {
                // Nothing is awaited before the handler's first poll, so a request dropped after this has begun.
                let claim = claim.cancelled_at(window.stop);
                return Attempted::Answered(self.run(claim, work, &client, permit).await);
            }
            answer => answer,
        };
        let is_trouble = match &answer {
            Ok(ClaimAnswer::Granted(_) | ClaimAnswer::Refused(_)) => false,
            Ok(ClaimAnswer::OutOfTime) => self.engine.clock.now() < window.stop,
            // No outage: the operation may have run in a newer deployment, or in the home Region.
            Err(error) => !matches!(error.kind(), ErrorKind::Format | ErrorKind::Config),
        };
        if self.fails_open && is_trouble {
            if let Err(error) = &answer {
                self.engine.log_and_observe_error(self.subject(key), error);
            }
            return Attempted::Unprotected(work, pending_claim, permit);
        }
        work.rest();
        Attempted::NotGranted(answer, work, pending_claim)
    }

    async fn claim(&self, entry: &Entry, window: Window) -> PendingClaim {
        let now = self.engine.clock.now();
        let window = if self.fails_open {
            window.stopping_by(now.after((window.stop.since(now) / 4).min(FAIL_OPEN_AFTER)))
        } else {
            window
        };
        let claiming =
            PendingClaim::claim(self.engine.clone(), self.in_flight.clone(), entry.candidate.clone(), window);
        // In Lambda nothing runs in a task that may outlive the invocation, unless a lost claim would block its key
        // permanently.
        let may_lose = entry.is_in_lambda && self.engine.settings.after_unknown == AfterUnknown::Rerun;
        if may_lose || entry.to_completion {
            return claiming.await;
        }
        // The request may be dropped while the store is responding. In a separate task the claim still completes, and is
        // then released.
        self.in_flight.run(claiming).await
    }

    /// Handles the request as without the layer. If it has a transaction, the transaction's writes are committed alone.
    async fn pass<S: Inner<B>, B: RequestBody>(&self, mut work: Work<S, B>) -> Answer<S, B> {
        let Some(transactions) = &self.transactions else { return work.pass().await };
        let request = self.needs_request_later().then(|| work.parts.clone());
        let window = self.window(&work.parts);
        let transaction = (transactions.begin)(&mut work.parts.extensions);
        let response = work.pass().await?;
        // Its body is not read, so its trailers are unknown.
        let is_decided = response.extensions().get::<ResponseAction>().is_some();
        let is_error = !is_decided && grpc::is_error(response.headers(), None);
        let conclusion = match self.hooked(|| Ok(self.decision_on(response.extensions(), response.status()))) {
            Ok(_) if is_error => Conclusion::Released(response),
            Ok(ResponseAction::Store) => Conclusion::Completed(response),
            Ok(ResponseAction::Release | ResponseAction::Keep) => Conclusion::Released(response),
            Err(problem) => Conclusion::Released(self.refuse_unclaimed(problem, request.as_ref())),
        };
        let end = End::settled_with(None, None, conclusion);
        match self.engine.commit(end, window, transaction).await.into_conclusion() {
            Conclusion::Completed(response) | Conclusion::Released(response) => Ok(response),
            Conclusion::NotCommitted(failure) => {
                Ok(self.refuse_unclaimed(Problem::of_commit(&failure), request.as_ref()))
            }
            _ => Ok(self.refusal(Problem::UNAVAILABLE, request.as_ref())),
        }
    }

    /// Removes headers that only the layer may set: replay and unprotected marks.
    pub(super) fn remove_marks(&self, headers: &mut HeaderMap) {
        headers.remove(&self.replay_header);
        headers.remove(UNPROTECTED);
    }

    /// Runs the inner service as without the layer, because the store is unavailable.
    async fn pass_unprotected<S: Inner<B>, B: RequestBody>(
        self: Arc<Self>,
        mut work: Work<S, B>,
        pending_claim: PendingClaim,
        entry: Entry,
        client: Client,
        permit: Permit,
    ) -> Answer<S, B> {
        work.parts.extensions.insert(client);
        let (operation, key) = (&*self.operation, entry.candidate.key);
        tracing::warn!(target: "lambda_once", outcome = "unprotected", operation, %key, "operation");
        spans::conclude_unprotected(key);
        let (handling, withdrawal) = (
            pin!(work.pass()),
            pin!(async {
                if entry.is_in_lambda {
                    pending_claim.withdraw(entry.withdraw_until).await;
                } else {
                    // In a task, because the response does not wait for it.
                    drop(pending_claim);
                }
            }),
        );
        let answer = match select(handling, withdrawal).await {
            Either::Left((answer, withdrawal)) => {
                let _ = timeout(WITHDRAW_AFTER_RUN, withdrawal).await;
                answer
            }
            Either::Right(((), handling)) => handling.await,
        };
        drop(permit);
        let mut response = answer?;
        self.remove_marks(response.headers_mut());
        self.mark_first(response.headers_mut());
        response.headers_mut().insert(UNPROTECTED, HeaderValue::from_static("true"));
        Ok(response)
    }
}

impl<S: Inner<B>, B: RequestBody> Work<S, B> {
    /// Gives up the place that a ready service reserves, such as the permit of a concurrency limit.
    fn rest(&mut self) {
        self.inner = self.inner.clone();
    }

    /// Handles the request as without the layer.
    async fn pass(mut self) -> Answer<S, B> {
        poll_fn(|context| self.inner.poll_ready(context)).await?;
        let request = Request::from_parts(self.parts, self.body);
        Ok(self.inner.call(request).await?.map(ResponseBody::passed))
    }
}
