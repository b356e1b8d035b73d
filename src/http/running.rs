//! Runs the inner service under a claim, up to its response.

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, StatusCode, header, request::Parts, response};

use super::{
    RequestBody, ResponseAction, ResponseBody,
    admission::Permit,
    answer::Asked,
    exchange::{Answer, Inner, Work},
    grpc,
    handler_end::{HandlerEnd, Replay},
    in_flight::Client,
    lambda,
    response_stream::{Settled, is_stream},
    settings::LayerSettings,
};
use crate::idempotency::{
    claim::Claim,
    engine::{Success, earlier_result},
    verdict::{Failure, Verdict},
};

/// The longest id of a request that is stored, in bytes, because clients choose it.
const MAX_REQUEST_ID: usize = 255;

impl LayerSettings {
    /// Runs the inner service under a claim.
    pub(super) async fn run<S: Inner<B>, B: RequestBody>(
        &self,
        claim: Claim,
        work: Work<S, B>,
        client: &Client,
        permit: Permit,
    ) -> Answer<S, B> {
        let Work { mut inner, mut parts, body, reader: _reader, opening } = work;
        let request = self.needs_request_later().then(|| parts.clone());
        let is_invocation = lambda::is_invocation(&parts);
        let is_head = parts.method == Method::HEAD;
        let request_id = self.request_id(&parts);
        parts.extensions.insert(claim.clone());
        parts.extensions.insert(client.clone());
        let transaction = self.transactions.as_ref().map(|transactions| (transactions.begin)(&mut parts.extensions));
        let own = claim.clone();
        let running = async move {
            if let Some(probe) = &self.probe
                && let Some(found) = earlier_result(&own, |claim| probe(&parts, claim)).await?
            {
                let (parts, bytes) = found.into_parts();
                // A different request ran.
                let body = ResponseBody::of_bytes(bytes);
                let replay = self.replay_of(&parts.headers, &body, is_invocation);
                return Ok(Success::Recover(self.ran(parts, replay, body, None)));
            }
            if client.has_left() {
                // The client left during the probe.
                return Err(Failure::transient("the client has left before the handler began"));
            }
            // The body is a part of the operation.
            let handled = || async move {
                let response = match inner.call(Request::from_parts(parts, body)).await {
                    Ok(response) => response,
                    Err(error) if self.is_doubtful(&error) => return Ok(Success::Keep(HandlerEnd::Error(error))),
                    Err(error) => return Ok(Success::Release(HandlerEnd::Error(error))),
                };
                let (parts, body) = response.into_parts();
                let decision = self.decision_on(&parts.extensions, parts.status);
                // A server drops the body of these unread, and would drop the rest of the request with it.
                let has_no_body = is_head || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
                let is_stream = is_stream(&parts) && !has_no_body;
                let broken = || match decision {
                    ResponseAction::Release => Success::Release(HandlerEnd::Broken),
                    ResponseAction::Store | ResponseAction::Keep => Success::Keep(HandlerEnd::Broken),
                };
                let read = if is_stream {
                    Some(ResponseBody::passed(body))
                } else if decision == ResponseAction::Release && !has_no_body && !grpc::is_grpc(&parts.headers) {
                    // It is not stored, so there is nothing to wait for.
                    ResponseBody::read_ready(body, self.max_response).await.ok()
                } else {
                    ResponseBody::read(body, self.max_response).await.ok()
                };
                let Some(body) = read else { return Ok(broken()) };
                let is_decided = parts.extensions.get::<ResponseAction>().is_some();
                let is_error = |headers: &HeaderMap, trailers: Option<&HeaderMap>| {
                    !is_decided && grpc::is_error(headers, trailers)
                };
                let is_passed = is_stream || decision == ResponseAction::Release && !has_no_body;
                let (ran, is_error) = if is_passed && body.whole().is_none() {
                    let mut ran = self.ran(parts, Replay::Streamed, ResponseBody::of_bytes(Bytes::new()), request_id);
                    let HandlerEnd::Answered { parts, .. } = &mut ran else { return Ok(broken()) };
                    let mut head = parts.clone();
                    // A server takes the last of so many bytes for the end, and drops the body.
                    head.headers.remove(header::CONTENT_LENGTH);
                    self.mark_first(&mut head.headers);
                    let Ok(trailers) = opening.pass(head, body).await else { return Ok(broken()) };
                    parts.extensions.insert(Settled);
                    let is_error = is_error(&parts.headers, trailers.as_ref());
                    (ran, is_error)
                } else {
                    let is_error = is_error(&parts.headers, body.trailers());
                    let replay = self.replay_of(&parts.headers, &body, is_invocation);
                    (self.ran(parts, replay, body, request_id), is_error)
                };
                let decision = if is_error { ResponseAction::Keep } else { decision };
                Ok(match decision {
                    ResponseAction::Store => Success::Complete(ran),
                    ResponseAction::Release => Success::Release(ran),
                    ResponseAction::Keep => Success::Keep(ran),
                })
            };
            self.engine.timed(Some(own.key()), handled).await
        };
        let (key, attempt) = (claim.key(), claim.attempt());
        let asked = Asked { parts: request.as_ref(), key, attempt, answer_by: None, is_invocation };
        let took_over = claim.took_over();
        let end = self.engine.run_and_settle(claim, transaction, running).await;
        // The response may be a replay, which needs no permit.
        drop(permit);
        self.conclude(end, asked, took_over).await
    }

    /// Returns the decision of the handler or, without one, of the status of its response.
    pub(super) fn decision_on(&self, extensions: &Extensions, status: StatusCode) -> ResponseAction {
        match extensions.get::<ResponseAction>().copied().unwrap_or_else(|| (self.decide)(status)) {
            // It would count as the newest request, and older ones would not run.
            ResponseAction::Store if self.order.is_some() && status.is_client_error() => ResponseAction::Release,
            decision => decision,
        }
    }

    /// Whether an error of the service leaves the effect of the operation unknown. Only boxed errors, such as the
    /// errors of `lambda_http` and of `tower`'s layers, and errors that have a classifier can be inspected.
    fn is_doubtful<E: 'static>(&self, error: &E) -> bool {
        let settings = &self.engine.settings;
        settings.classifiers.verdict_of_any(error, settings.on_panic) == Some(Verdict::Unknown)
    }

    fn ran<R, E>(
        &self,
        mut parts: response::Parts,
        replay: Replay,
        body: ResponseBody<R>,
        request_id: Option<HeaderValue>,
    ) -> HandlerEnd<'_, R, E> {
        self.remove_marks(&mut parts.headers);
        HandlerEnd::Answered { parts, body, headers: &self.stored_headers, replay, request_id }
    }

    /// Returns the part of a buffered response that a retry gets.
    fn replay_of<R>(&self, headers: &HeaderMap, body: &ResponseBody<R>, is_invocation: bool) -> Replay {
        match body.whole() {
            Some(bytes) if !is_invocation || lambda::takes_response(headers, bytes) => Replay::Whole,
            _ => Replay::TooLarge,
        }
    }

    /// Returns the id of a request that the client or the front door has assigned.
    fn request_id(&self, parts: &Parts) -> Option<HeaderValue> {
        let given = parts.headers.get(&self.request_id).filter(|id| (1..=MAX_REQUEST_ID).contains(&id.len()));
        given.cloned().or_else(|| HeaderValue::from_str(lambda::request_id(parts)?).ok())
    }
}
