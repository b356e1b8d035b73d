//! Panics, timeouts, lost leases and store failures.

use std::{
    convert::Infallible,
    future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use lambda_once::{
    AfterUnknown, BoxError, Builder, Claim, Classify, Failure, Idempotency, MemoryStore, Store, Verdict,
    http::{Caller, IdempotencyKeyLayer},
    record::{KeyHash, Record, Status},
    store::{
        ResultData,
        dynamodb::Config,
        fault::{Call, Fault},
    },
};
use lambda_runtime::Context;
use tower::{Layer, ServiceExt};

use crate::{
    setup::{App, Got, LAPSE, in_lambda, numbered, post},
    support::{self, clock::TokioClock},
};

fn without_settings<H>(handler: H) -> App
where
    H: Fn(u32, Request<Full<Bytes>>) -> future::Pending<http::Response<Full<Bytes>>> + Clone + Send + Sync + 'static,
{
    App::with(|engine| engine, |layer| layer, handler)
}

#[tokio::test(start_paused = true)]
async fn a_panic_keeps_the_key_until_the_lease_ends() {
    let app = App::with(
        |engine| engine,
        |layer| layer,
        |run, request| async move {
            assert!(run > 1, "the first run panics");
            numbered(run, request).await
        },
    );
    let got = app.post("k", "{}").await;
    assert_eq!((got.status, got.code()), (500, "handler_failed".to_owned()));
    assert_eq!(app.post("k", "{}").await.code(), "in_progress");
    tokio::time::advance(LAPSE).await;
    assert_eq!(app.post("k", "{}").await.header("x-run"), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn without_a_heartbeat_the_lease_cancels_a_handler_of_unknown_deadline() {
    for deadline in [None, Some(0), Some(600_000)] {
        let app = App::with(|engine| engine, |layer| layer.heartbeat(None), |_, _| future::pending());
        let mut request = post("k", "{}");
        if let Some(deadline) = deadline {
            let mut context = Context::default();
            context.deadline = deadline;
            request.extensions_mut().insert(context);
        }
        let began = tokio::time::Instant::now();
        let got = app.send(request).await;
        assert_eq!((got.status, got.code()), (504, "out_of_time".to_owned()));
        // The configured lease of 30 s, minus its reserve.
        assert_eq!(began.elapsed().as_millis() / 100, 285, "{deadline:?}");
        assert_eq!(app.post("k", "{}").await.code(), "in_progress", "the claim is kept");
    }
}

async fn is_cancelled_half_a_second_before_the_deadline(app: &App) {
    let mut context = Context::default();
    let now = lambda_once::clock::Clock::now(&app.clock);
    context.deadline = now.after(Duration::from_secs(10)).as_millis();
    let mut request = post("k", "{}");
    request.extensions_mut().insert(context);
    let began = tokio::time::Instant::now();
    assert_eq!(app.send(request).await.status, 504);
    assert_eq!(began.elapsed().as_millis() / 100, 95);
}

// Tests L7, P7.
#[tokio::test(start_paused = true)]
async fn a_handler_is_cancelled_before_a_known_deadline() {
    let app = without_settings(|_, _| future::pending());
    is_cancelled_half_a_second_before_the_deadline(&app).await;
}

/// A quarter of the time is for the claim alone.
#[tokio::test(start_paused = true)]
async fn under_a_claim_a_handler_that_may_fail_open_has_the_whole_time() {
    let app = App::with(|engine| engine, |layer| layer.fail_open(), |_, _| future::pending());
    is_cancelled_half_a_second_before_the_deadline(&app).await;
}

/// An extension of a request. A clone of it takes longer than the lease.
struct Slowed(TokioClock);

impl Clone for Slowed {
    fn clone(&self) -> Self {
        self.0.jump(LAPSE);
        Self(self.0.clone())
    }
}

// Tests L7.
#[tokio::test(start_paused = true)]
async fn a_handler_whose_time_is_up_before_it_begins_does_not_run() {
    let hooked = |layer: IdempotencyKeyLayer| layer.heartbeat(None).on_rejection(|_, _| {});
    let app = App::with(|engine| engine, hooked, numbered);
    let mut request = post("k", "{}");
    // The hook needs a clone of the request, which is made once the claim is granted.
    request.extensions_mut().insert(Slowed(app.clock.clone()));
    let got = app.send(request).await;
    assert_eq!((got.status, got.code(), app.runs()), (503, "unavailable".to_owned(), 0));
    assert_eq!(app.calls(Call::Claim), 1);
}

#[tokio::test(start_paused = true)]
async fn under_refuse_an_unknown_outcome_stays_unknown() {
    let app = App::with(|engine| engine.after_unknown(AfterUnknown::Refuse), |layer| layer, |_, _| future::pending());
    app.post("k", "{}").await;
    tokio::time::advance(LAPSE).await;
    let got = app.post("k", "{}").await;
    assert_eq!((got.status, got.code(), got.header("retry-after")), (409, "outcome_unknown".to_owned(), None));
    assert_eq!(app.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_needs_a_probe_refuses_requests_before_any_claim() {
    let app = App::with(|engine| engine.after_unknown(AfterUnknown::Probe), |layer| layer.fail_open(), numbered);
    let got = app.post("k", "{}").await;
    assert_eq!((got.status, got.code()), (500, "misconfigured".to_owned()));
    assert_eq!((app.runs(), app.store.calls()), (0, vec![]));
}

// Tests P26.
#[tokio::test(start_paused = true)]
async fn without_the_store_requests_are_refused_unless_failing_open_is_chosen() {
    let app = App::new();
    app.store.always(Call::Claim, Fault::AccessDenied);
    let got = app.post("k", "{}").await;
    assert_eq!((got.status, got.code(), got.header("retry-after")), (503, "unavailable".to_owned(), Some("1")));
    assert_eq!(app.runs(), 0);

    let app = App::with(|engine| engine, |layer| layer.fail_open(), numbered);
    app.store.always(Call::Claim, Fault::ErrorBefore);
    assert_eq!(app.post("k", "{}").await.status, 201);
    assert_eq!(app.post("k", "{}").await.header("x-run"), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_arrives_too_late_fails_open_while_a_handler_may_begin() {
    // A handler may begin for 28.5 seconds, and a request that fails open waits for the store for three.
    for (arrival, status, mark, runs) in
        [(3_000, 201, Some("true"), 1), (28_400, 201, Some("true"), 1), (28_500, 503, None, 0)]
    {
        let app = App::with(|engine| engine, |layer| layer.fail_open(), numbered);
        app.store.always(Call::Claim, Fault::Delay(Duration::from_secs(1)));
        let freeze = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            app.clock.jump(Duration::from_millis(arrival - 1_000));
        };
        let (got, ()) = tokio::join!(app.post("k", "{}"), freeze);
        assert_eq!((got.status, got.header("idempotency-unprotected"), app.runs()), (status, mark, runs), "{arrival}");
    }
}

/// An application that has run one request, with the key of its record.
async fn recorded(set_up: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer) -> (App, KeyHash, Record) {
    let key = Arc::new(OnceLock::new());
    let noted = Arc::clone(&key);
    let handler = move |run, request: Request<Full<Bytes>>| {
        noted.set(request.extensions().get::<Claim>().unwrap().key()).unwrap();
        numbered(run, request)
    };
    let app = App::with(|engine| engine, set_up, handler);
    assert_eq!(app.post("k", "{}").await.status, 201);
    let key = *key.get().unwrap();
    let record = app.records.read(&[key], ResultData::Include).await.pop().unwrap().unwrap().unwrap();
    (app, key, record)
}

#[tokio::test(start_paused = true)]
async fn a_recorded_failure_is_refused_and_does_not_run_again() {
    let (app, key, record) = recorded(|layer| layer).await;
    app.records.insert(key, Record { status: Status::Failed, ..record });
    let got = app.post("k", "{}").await;
    assert_eq!((got.status, got.code(), got.header("retry-after")), (500, "failed_before".to_owned(), None));
    assert_eq!(app.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_newer_format_is_no_store_failure_that_may_fail_open() {
    let (app, key, record) = recorded(|layer| layer.fail_open()).await;
    app.records.insert(key, Record { version: u32::MAX, ..record });
    for body in ["{}", "{\"other\":1}"] {
        let got = app.post("k", body).await;
        assert_eq!((got.status, got.code(), got.header("retry-after")), (503, "unavailable".to_owned(), Some("1")));
        assert_eq!(got.header("idempotency-unprotected"), None);
    }
    assert_eq!(app.runs(), 1);
}

/// Its operations run in the home Region.
#[tokio::test]
async fn outside_the_home_region_a_layer_that_fails_open_runs_nothing() {
    // Claims are refused without a request.
    let elsewhere = support::client("http://127.0.0.1:1").await;
    let store = Config::new("records").home_region("eu-central-1").build(elsewhere).unwrap();
    let once = Idempotency::builder(store).scope("tests").build().unwrap();
    let handler = tower::service_fn(|_: Request<Full<Bytes>>| async {
        panic!("nothing was claimed") as Result<http::Response<Full<Bytes>>, Infallible>
    });
    let service = IdempotencyKeyLayer::new(once, Caller::shared()).fail_open().layer(handler);
    let (parts, body) = service.oneshot(post("k", "{}")).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let got = Got { status: parts.status.as_u16(), headers: parts.headers, body };
    assert_eq!((got.status, got.code(), got.header("retry-after")), (503, "unavailable".to_owned(), Some("1")));
    assert_eq!(got.header("idempotency-unprotected"), None);
}

#[tokio::test(start_paused = true)]
async fn an_unrecordable_completion_still_responds_and_does_not_run_again() {
    let app = App::new();
    app.store.always(Call::Settle, Fault::Throttled);
    assert_eq!(app.post("k", "{}").await.status, 201);
    app.store.heal();
    assert_eq!(app.post("k", "{}").await.status, 409, "kept, not released");
    assert_eq!(app.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn lost_store_results_do_not_affect_the_response() {
    let app = App::new();
    app.store.next(Call::Claim, Fault::ErrorAfter);
    app.store.next(Call::Settle, Fault::ErrorAfter);
    assert_eq!(app.post("k", "{}").await.status, 201);
    assert!(app.post("k", "{}").await.is_replay());
    assert_eq!(app.runs(), 1);
}

/// The first run blocks its thread until its lease has passed, while another request takes over. Returns the response of
/// the second request, if it finishes, and then of the first.
async fn overtaken(successor_finishes: bool) -> (Option<Got>, Got) {
    let app: Arc<OnceLock<App>> = Arc::default();
    let successor: Arc<OnceLock<Option<Got>>> = Arc::default();
    let (itself, answer) = (Arc::clone(&app), Arc::clone(&successor));
    let handler = move |run, request| {
        let (app, answer) = (Arc::clone(&itself), Arc::clone(&answer));
        async move {
            if run == 1 {
                let app = app.get().unwrap();
                app.clock.jump(LAPSE);
                answer.set(app.send(in_lambda(post("k", "{}"))).now_or_never()).unwrap();
            } else if !successor_finishes {
                future::pending::<()>().await;
            }
            numbered(run, request).await
        }
    };
    app.set(App::with(|engine| engine, |layer| layer, handler)).ok().unwrap();
    let first = app.get().unwrap().send(in_lambda(post("k", "{}"))).await;
    (successor.get().unwrap().clone(), first)
}

#[tokio::test(start_paused = true)]
async fn a_late_holder_returns_its_successors_response() {
    let (successor, first) = overtaken(true).await;
    let successor = successor.unwrap();
    assert_eq!((successor.header("x-run"), successor.is_replay()), (Some("2"), false));
    assert_eq!((first.header("x-run"), first.is_replay()), (Some("2"), true));
    assert_eq!(first.body, successor.body);
}

#[tokio::test(start_paused = true)]
async fn a_late_holder_with_an_unfinished_successor_returns_a_conflict() {
    let (successor, first) = overtaken(false).await;
    assert_eq!(successor, None);
    assert_eq!((first.status, first.code()), (409, "in_progress".to_owned()));
    // The time for which the successor holds the key is unknown, so there is no `retry_after_ms`.
    let problem: serde_json::Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!((&problem["retryable"], problem.get("retry_after_ms")), (&serde_json::json!(true), None));
    assert!(first.header("retry-after").is_some());
}

/// The status of a retry after a boxed error.
async fn after(error: fn() -> Result<Infallible, BoxError>) -> u16 {
    after_on(|builder| builder, error).await
}

/// The status of a retry after an error, on an engine with these settings.
async fn after_on<E: std::fmt::Debug + Send + 'static>(
    settings: impl FnOnce(Builder) -> Builder,
    error: fn() -> Result<Infallible, E>,
) -> u16 {
    let once = settings(Idempotency::builder(MemoryStore::new()).scope("tests")).build().unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let handler = tower::service_fn(move |_: Request<Full<Bytes>>| {
        let first = runs.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            match first {
                true => error().map(|never| match never {}),
                false => Ok(http::Response::new(Full::<Bytes>::default())),
            }
        }
    });
    let service = IdempotencyKeyLayer::new(once, Caller::from_fn(|_| Some("alice".to_owned()))).layer(handler);
    assert!(service.clone().oneshot(post("k", "{}")).await.is_err(), "the error is handed on");
    service.oneshot(post("k", "{}")).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn an_error_of_the_service_releases_the_key_unless_its_outcome_is_unknown() {
    assert_eq!(after(|| Err("try again".into())).await, 200);
    assert_eq!(after(|| Ok(Err("declined").permanent()?)).await, 200);
    assert_eq!(after(|| Ok(Err("timed out").unknown()?)).await, 409);
}

#[derive(Debug, thiserror::Error)]
#[error("the bank has not answered")]
struct TimedOut;

#[tokio::test]
async fn a_service_error_that_is_classified_as_unknown_keeps_the_key() {
    let settings = |builder: Builder| builder.classify(|_: &TimedOut| Verdict::Unknown);
    assert_eq!(after_on(|builder| builder, || Err(TimedOut)).await, 200, "without a classifier");
    assert_eq!(after_on(settings, || Err(TimedOut)).await, 409, "its own type");
    assert_eq!(after_on(settings, || Err(BoxError::from(TimedOut))).await, 409, "boxed");
    assert_eq!(after_on(settings, || Err(anyhow::Error::from(TimedOut))).await, 409, "of anyhow");
    assert_eq!(after_on(settings, || Err(Failure::from(TimedOut))).await, 409, "a failure");
    assert_eq!(after_on(settings, || Err(Failure::transient(TimedOut))).await, 200, "marked");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_an_inner_timeout_drops_keeps_its_key() {
    let runs = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&runs);
    let handler = tower::service_fn(move |_: Request<Full<Bytes>>| {
        counter.fetch_add(1, Ordering::SeqCst);
        future::pending::<Result<http::Response<Full<Bytes>>, Infallible>>()
    });
    let once = Idempotency::builder(MemoryStore::new()).scope("tests").build().unwrap();
    let timed = tower::timeout::Timeout::new(handler, Duration::from_secs(1));
    let service = IdempotencyKeyLayer::new(once, Caller::shared()).layer(timed);
    let error = service.clone().oneshot(post("k", "{}")).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>(), "the error is handed on");
    let retry = service.oneshot(post("k", "{}")).await.unwrap();
    assert_eq!((retry.status().as_u16(), runs.load(Ordering::SeqCst)), (409, 1));
}

/// The error of `tokio::time::timeout`, from a separate runtime.
fn elapsed() -> tokio::time::error::Elapsed {
    let late = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(Duration::ZERO, future::pending::<()>()).await.unwrap_err() })
    };
    std::thread::spawn(late).join().unwrap()
}

#[derive(Debug, thiserror::Error)]
#[error("the bank is slow")]
struct Slow(#[source] tokio::time::error::Elapsed);

#[tokio::test]
async fn an_error_with_a_timeout_among_its_sources_keeps_the_key() {
    assert_eq!(after(|| Err(elapsed().into())).await, 409, "itself");
    assert_eq!(after(|| Err(Slow(elapsed()).into())).await, 409, "its source");
    assert_eq!(after_on(|builder| builder, || Err(elapsed())).await, 409, "not boxed");
    assert_eq!(after_on(|builder| builder, || Err(Failure::from(Slow(elapsed())))).await, 409, "a failure");
    assert_eq!(after(|| Ok(Err(elapsed()).transient()?)).await, 200, "the mark counts");
    let settings = |builder: Builder| builder.classify(|_: &Slow| Verdict::Transient);
    assert_eq!(after_on(settings, || Err(Slow(elapsed()))).await, 200, "the classifier counts");
}

/// The code of the refusal and the status of a retry, after a response whose body breaks off.
async fn broken_off(status: u16) -> (Got, u16) {
    let runs = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&runs);
    let handler = move || {
        let first = counter.fetch_add(1, Ordering::SeqCst) == 0;
        let frames = [Ok("half"), Err(std::io::Error::other("broken"))].into_iter().take(if first { 2 } else { 1 });
        let body = axum::body::Body::from_stream(futures_util::stream::iter(frames));
        async move { http::Response::builder().status(if first { status } else { 201 }).body(body).unwrap() }
    };
    let layer = IdempotencyKeyLayer::new(crate::setup::engine(), Caller::shared());
    let app = axum::Router::new().route("/charges", axum::routing::post(handler)).route_layer(layer);
    let send = || {
        let request = Request::post("/charges").header("idempotency-key", "k").body(axum::body::Body::empty());
        app.clone().oneshot(request.unwrap())
    };
    let (parts, body) = send().await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let got = Got { status: parts.status.as_u16(), headers: parts.headers, body };
    (got, send().await.unwrap().status().as_u16())
}

#[tokio::test]
async fn a_releasing_response_releases_its_key_even_if_its_body_breaks_off() {
    for (status, retry) in [(503, 201), (429, 201), (201, 409), (504, 409)] {
        let (got, retried) = broken_off(status).await;
        assert_eq!((got.status, got.code(), retried), (500, "response_broken".to_owned(), retry), "{status}");
        let problem: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
        let is_unknown = problem["detail"].as_str().unwrap().contains("not known");
        assert_eq!((&problem["retryable"], is_unknown), (&true.into(), retry == 409), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_handler_finds_its_claim_among_the_extensions() {
    let app = App::with(
        |engine| engine,
        |layer| layer,
        |run, request| async move {
            let claim = request.extensions().get::<Claim>().expect("the claim").clone();
            assert_eq!(claim.took_over(), run == 2);
            assert!(run > 1, "the first run panics");
            numbered(run, request).await
        },
    );
    app.post("k", "{}").await;
    tokio::time::advance(LAPSE).await;
    assert_eq!(app.post("k", "{}").await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn in_lambda_nothing_is_spawned_that_outlives_a_request() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let app = App::with(
        |engine| engine,
        |layer| layer,
        |run, request| async move {
            if run == 2 {
                future::pending::<()>().await;
            }
            numbered(run, request).await
        },
    );
    for (key, status) in [("done", 201), ("cancelled", 504), ("done", 201)] {
        assert_eq!(app.send(in_lambda(post(&format!("\"{key}\""), "{}"))).await.status, status);
        assert_eq!(tasks(), before, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn outside_lambda_a_failed_but_applied_claim_is_withdrawn_afterwards() {
    let mut in_flight = None;
    let app = App::with(
        |engine| engine.after_unknown(AfterUnknown::Refuse),
        |layer| {
            in_flight = Some(layer.in_flight());
            layer
        },
        numbered,
    );
    app.store.always(Call::Claim, Fault::ErrorAfter);
    assert_eq!(app.post("k", "{}").await.status, 503);
    app.store.heal();
    in_flight.unwrap().drain().await;
    let retry = app.post("k", "{}").await;
    assert_eq!((retry.status, app.runs()), (201, 1), "{:?}", retry.body);
}
