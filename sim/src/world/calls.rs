//! HTTP requests and calls of operations, and their responses.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt, Full};
use lambda_once::{
    BoxError, BoxFuture, Claim, ErrorKind, Failure, Idempotency, Outcome, OutcomeKind, ProbeResult, Verdict,
    http::{Caller, IdempotencyKeyLayer, IdempotencyKeyService},
};
use lambda_runtime::Context;
use tokio::sync::oneshot;
use tower::{Layer, ServiceExt, service_fn};

use super::{
    World,
    fate::{Fate, Invocation},
    handler::{self, Environment, Order, result_of, run_in},
    worker::{context, done, engine},
};
use crate::history::{Answer, CallId, Entry, Policy, RunId};

/// A call that waits for a worker.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) order: Order,
    pub(super) call: CallId,
    pub(super) sender: oneshot::Sender<Answer>,
}

impl World {
    /// Queues a call for the next free worker.
    pub(super) fn put(&self, job: Job) {
        self.inbox.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push_back(job);
        self.arrivals.notify_one();
    }

    pub(super) fn take(&self) -> Option<Job> {
        self.inbox.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front()
    }
}

/// Sends a request through the layer.
pub(super) type Exchange = Box<dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, Answer> + Send + Sync>;

/// Handles a call in an invocation.
pub(super) async fn serve(env: &Arc<Environment>, job: Job, exchange: &Exchange, calls: &Idempotency) {
    let Job { order, call, sender } = job;
    let world = &env.world;
    let entry = world.plan.keys[order.key as usize].entry;
    let in_lambda = match entry {
        Entry::Http => world.plan.http_in_lambda,
        _ => world.lock().random.chance(500),
    };
    env.has_deadline.store(in_lambda, Ordering::Relaxed);
    let given = in_lambda.then(|| context(env));
    let deadline = given.as_ref().map(|(_, deadline)| *deadline);
    env.begin([(order, call)], deadline);
    let fate = Fate::draw(world, deadline);
    env.fate.set(fate);
    let context = given.map(|(context, _)| context);
    let answer = match entry {
        Entry::Http => Invocation::new(Arc::clone(world), fate, exchange(request(order, context))).await,
        _ => Invocation::new(Arc::clone(world), fate, operate(Arc::clone(env), calls.clone(), order, context)).await,
    };
    // A worker that was killed drops the sender.
    if let Some(answer) = answer {
        let _ = sender.send(answer);
    }
}

async fn operate(env: Arc<Environment>, once: Idempotency, order: Order, context: Option<Context>) -> Answer {
    let world = &env.world;
    let waits = world.lock().random.chance(400);
    let wait = waits.then(|| world.lock().random.pause(0, 8_000));
    let mut operation = once.operation("call", &order.key).payload(&order);
    if let Some(context) = context {
        operation = operation.deadline(&context);
    }
    if let Some(wait) = wait {
        operation = operation.wait_up_to(wait);
    }
    if world.plan.keys[order.key as usize].order.is_some() {
        operation = operation.ordered_by(&order.entity, order.sequence);
    }
    let work = {
        let env = Arc::clone(&env);
        move |claim: Option<Claim>| async move {
            let claim = claim.ok_or_else(|| Failure::permanent("no claim"))?;
            handler::run(env, order, claim).await.map(result_of)
        }
    };
    if world.plan.policy(Entry::Call) != Policy::Probe {
        return response_to(operation.run_with(work).await);
    }
    let of_probe = Arc::clone(&env);
    let probe =
        move |_: Claim| async move { handler::probe(of_probe, order.key).await.map(done).map_err(Failure::from) };
    response_to(operation.probe(probe).run_with(work).await)
}

fn response_to(result: Result<Outcome<String>, lambda_once::Error>) -> Answer {
    let ran = match &result {
        Ok(
            Outcome::Executed(text)
            | Outcome::TookOver(text)
            | Outcome::Recovered(text)
            | Outcome::Unrecorded(text)
            | Outcome::Replayed(text),
        ) => run_in(text),
        _ => None,
    };
    let kind = result.as_ref().map(Outcome::kind).map_err(lambda_once::Error::kind);
    match response_of(kind, ran) {
        Answer::Replayed(_) => Answer::Replayed(ran),
        answer => answer,
    }
}

/// Returns the response that an outcome means. A replay in a batch comes without its result.
pub(super) fn response_of(outcome: Result<OutcomeKind, ErrorKind>, ran: Option<RunId>) -> Answer {
    match outcome {
        Ok(OutcomeKind::Executed) => Answer::Executed(ran),
        Ok(OutcomeKind::TookOver) => Answer::TookOver(ran),
        Ok(OutcomeKind::Recovered) => Answer::Recovered(ran),
        Ok(OutcomeKind::Unrecorded) => Answer::Ran(ran),
        Ok(OutcomeKind::Replayed) => Answer::Replayed(None),
        Ok(OutcomeKind::ReplayedFailure) => Answer::ReplayedFailure,
        Ok(OutcomeKind::Failed(Verdict::Permanent)) => Answer::FailedPermanently,
        Ok(OutcomeKind::Failed(_) | OutcomeKind::Interrupted(_)) => Answer::Failed,
        Ok(OutcomeKind::InProgress) => Answer::InProgress,
        Ok(OutcomeKind::Mismatch) => Answer::Mismatch,
        Ok(OutcomeKind::Superseded) => Answer::Superseded,
        Ok(OutcomeKind::Abandoned) => Answer::Abandoned,
        Ok(OutcomeKind::LeaseLost) => Answer::LeaseLost,
        Ok(OutcomeKind::NotStarted | OutcomeKind::Skipped) => Answer::NotStarted,
        Err(ErrorKind::Throttled | ErrorKind::Timeout | ErrorKind::Unavailable) => Answer::Error,
        other => panic!("unexpected: {other:?}"),
    }
}

/// Builds the layer around the handler.
pub(super) fn exchange(env: &Arc<Environment>) -> Exchange {
    let mut layer = IdempotencyKeyLayer::new(engine(env, Entry::Http), Caller::shared()).run_to_completion(false);
    if env.world.plan.policy(Entry::Http) == Policy::Probe {
        let of_probe = Arc::clone(env);
        layer = layer.probe(move |parts: &Parts, _: Claim| -> BoxFuture<'_, Result<_, BoxError>> {
            let env = Arc::clone(&of_probe);
            let key = parts.headers["idempotency-key"].to_str().ok().and_then(|key| key[1..].parse().ok());
            Box::pin(async move {
                Ok(match handler::probe(env, key.ok_or("no key")?).await? {
                    ProbeResult::Done(run) => ProbeResult::Done(response(StatusCode::OK, result_of(run))),
                    _ => ProbeResult::NotDone,
                })
            })
        });
    }
    let of_handler = Arc::clone(env);
    let inner = service_fn(move |request: Request<Full<Bytes>>| handle(Arc::clone(&of_handler), request));
    let service: IdempotencyKeyService<_> = layer.validate().expect("the layer's settings are valid").layer(inner);
    Box::new(move |request| {
        let service = service.clone();
        Box::pin(async move {
            let Ok(response) = service.oneshot(request).await;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let is_replay = parts.headers.get("idempotency-replayed").is_some_and(|value| value == "true");
            response_in(parts.status, is_replay, &String::from_utf8_lossy(&body))
        })
    })
}

async fn handle(env: Arc<Environment>, request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let claim = parts.extensions.get::<Claim>().cloned().expect("the layer gives the claim");
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let order: Order = serde_json::from_slice(&body).expect("the clients send orders");
    let response = match handler::run(env, order, claim).await {
        Ok(run) => response(StatusCode::OK, result_of(run)),
        Err(failure) => match failure.verdict() {
            Verdict::Permanent => response(StatusCode::PAYMENT_REQUIRED, failure.source().to_string()),
            Verdict::Unknown => response(StatusCode::GATEWAY_TIMEOUT, String::new()),
            _ => response(StatusCode::SERVICE_UNAVAILABLE, String::new()),
        },
    };
    Ok(response.map(Full::new))
}

fn response(status: StatusCode, text: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("text/plain"));
    response
}

fn request(order: Order, context: Option<Context>) -> Request<Full<Bytes>> {
    let body = serde_json::to_vec(&order).unwrap_or_default();
    let mut request = Request::post("/charges")
        .header("idempotency-key", format!("k{}", order.key))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .expect("the request is well formed");
    if let Some(context) = context {
        request.extensions_mut().insert(context);
    }
    request
}

fn response_in(status: StatusCode, is_replay: bool, body: &str) -> Answer {
    let code = || {
        let problem: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    };
    match status.as_u16() {
        200 if is_replay => Answer::Replayed(run_in(body)),
        200 => Answer::Ran(run_in(body)),
        402 if is_replay => Answer::ReplayedFailure,
        402 => Answer::FailedPermanently,
        503 | 504 if body.is_empty() => Answer::Failed,
        _ => match &*code() {
            "in_progress" => Answer::InProgress,
            "key_reused" => Answer::Mismatch,
            "outcome_unknown" => Answer::Abandoned,
            "unavailable" => Answer::Error,
            "probe_failed" | "handler_failed" | "out_of_time" => Answer::Failed,
            code => panic!("unexpected: {status} {code:?}: {body}"),
        },
    }
}
