//! Refusals, with their members and retry advice, and applications that change them.

use std::{future, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use lambda_once::{
    ErrorKind, Idempotency, MemoryStore,
    clock::Clock,
    http::{Caller, IdempotencyKeyLayer},
    store::fault::{Call, Fault},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tracing::Level;

use crate::{
    setup::{App, Got, numbered, post},
    support::collector::Collector,
};

/// The first run never ends. Later runs respond.
pub(crate) async fn hanging_once(run: u32, request: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
    if run == 1 {
        future::pending::<()>().await;
    }
    numbered(run, request).await
}

fn app(set_up: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer) -> App {
    App::with(|engine| engine, set_up, hanging_once)
}

fn members(got: &Got) -> Value {
    assert_eq!(got.header("content-type"), Some("application/problem+json"));
    serde_json::from_slice(&got.body).unwrap()
}

/// The refusal of a second request while the first one runs, some time after it began.
async fn meanwhile(app: &App, later: Duration) -> (Got, Duration) {
    let second = async {
        tokio::time::sleep(later).await;
        let began = Instant::now();
        (app.post("k", "{}").await, began.elapsed())
    };
    tokio::select! {
        biased;
        _ = app.post("k", "{}") => panic!("the first one runs"),
        told = second => told,
    }
}

/// The key is held for the lease and the skew margin. After ten and twenty seconds the lease is renewed.
#[tokio::test(start_paused = true)]
async fn a_conflict_contains_the_hold_time_of_the_key_and_an_early_retry_after() {
    for (later, left) in [(0, 31_000), (9, 22_000), (27, 24_000)] {
        let (got, _) = meanwhile(&app(|layer| layer), Duration::from_secs(later)).await;
        let problem = members(&got);
        assert_eq!((got.status, &problem["retryable"], &problem["retry_after_ms"]), (409, &json!(true), &json!(left)));
        let seconds: u64 = got.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=2).contains(&seconds));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_no_retry_would_change_is_marked_as_not_retryable() {
    let app = App::new();
    app.post("k", "{}").await;
    let malformed = app.post("a,b", "{}").await;
    for got in [app.post("k", "[]").await, malformed] {
        let problem = members(&got);
        assert_eq!((&problem["retryable"], problem.get("retry_after_ms")), (&json!(false), None));
        assert_eq!(got.header("retry-after"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_problem_has_a_type_only_where_the_api_has_documented_it() {
    let base = "https://api.example.com/problems/";
    let typed = app(|layer| layer.problem_type_base(base));
    for (app, is_typed) in [(App::new(), false), (typed, true)] {
        app.post("k", "{}").await;
        let malformed = (app.post("a,b", "{}").await, "key_malformed", "Bad Request");
        let reused = (app.post("k", "[]").await, "key_reused", "Unprocessable Content");
        for (got, code, title) in [malformed, reused] {
            let kind = if is_typed { format!("{base}{code}") } else { "about:blank".to_owned() };
            let problem = members(&got);
            assert_eq!(
                (&problem["type"], &problem["code"], &problem["title"]),
                (&json!(kind), &json!(code), &json!(title))
            );
            assert_eq!(problem.to_string().matches("://").count(), usize::from(is_typed), "{problem}");
        }
    }
}

// Tests IKH-2.7-1, IKH-2.7-2, IKH-2.7-4.
#[tokio::test(start_paused = true)]
async fn a_refused_request_is_refused_until_the_client_corrects_it() {
    let base = "https://api.example.com/problems/";
    let app = App::with(|engine| engine, |layer| layer.problem_type_base(base), numbered);
    app.post("k", "{}").await;
    let keyless = || Request::post("/charges?x=1").body("{}".into()).unwrap();
    for _ in 0..3 {
        for (request, status, code) in [
            (keyless(), 400, "key_missing"),
            (post("a,b", "{}"), 400, "key_malformed"),
            (post("k", "[]"), 422, "key_reused"),
        ] {
            let got = app.send(request).await;
            assert_eq!((got.status, &members(&got)["type"]), (status, &json!(format!("{base}{code}"))));
        }
    }
    assert_eq!(app.runs(), 1);
    assert_eq!(app.post("another", "[]").await.status, 201);
    assert!(app.post("k", "{}").await.is_replay());
}

#[tokio::test(start_paused = true)]
async fn every_refusal_is_shown_to_the_application_before_it_is_given() {
    let app = app(|layer| {
        layer.max_body(16).on_rejection(|request, response| {
            let origin = request.headers["origin"].clone();
            response.headers_mut().insert("access-control-allow-origin", origin);
            if response.status() == StatusCode::UNPROCESSABLE_ENTITY {
                *response.body_mut() = "the API's own form".into();
            }
        })
    });
    let from = |key: &str, body| {
        let mut request = post(key, body);
        request.headers_mut().insert("origin", "https://shop.example.com".parse().unwrap());
        request
    };
    let mut keyless = from("k", "{}");
    keyless.headers_mut().remove("idempotency-key");
    app.send(from("other", "{}")).await;
    assert_eq!(app.send(from("done", "{}")).await.status, 201);
    let mut refused = Vec::new();
    for request in
        [keyless, from("a,b", "{}"), from("k", "more than sixteen bytes"), from("done", "[]"), from("other", "{}")]
    {
        let got = app.send(request).await;
        assert_eq!(got.header("access-control-allow-origin"), Some("https://shop.example.com"));
        if got.status == 422 {
            assert_eq!(&got.body[..], b"the API's own form");
        }
        refused.push(got.status);
    }
    app.store.always(Call::Claim, Fault::AccessDenied);
    let got = app.send(from("k", "{}")).await;
    assert_eq!(got.header("access-control-allow-origin"), Some("https://shop.example.com"));
    refused.push(got.status);
    assert_eq!(refused, [400, 400, 413, 422, 409, 503]);
    app.store.heal();
    assert_eq!(app.send(from("done", "{}")).await.header("access-control-allow-origin"), None, "a replay is none");
}

// Tests IKH-2.7-2, IKH-2.7-3.
#[tokio::test(start_paused = true)]
async fn the_statuses_of_a_mismatch_and_of_a_request_in_progress_can_be_chosen() {
    let set_up = |layer: IdempotencyKeyLayer| {
        layer.mismatch_status(StatusCode::BAD_REQUEST).in_progress_status(StatusCode::LOCKED)
    };
    let (got, _) = meanwhile(&app(set_up), Duration::ZERO).await;
    assert_eq!((got.status, got.code()), (423, "in_progress".to_owned()));
    let app = App::with(|engine| engine, set_up, numbered);
    app.post("k", "{}").await;
    let got = app.post("k", "[]").await;
    assert_eq!((got.status, got.code()), (400, "key_reused".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_no_longer_than_it_may() {
    let (got, waited) = meanwhile(&app(|layer| layer.wait_up_to(Duration::from_secs(5))), Duration::ZERO).await;
    assert_eq!((got.status, got.code()), (409, "in_progress".to_owned()));
    assert!((4..=5).contains(&waited.as_secs()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_gets_the_response_soon_after_it_is_stored() {
    let slow = |run, request| async move {
        tokio::time::sleep(Duration::from_secs(6)).await;
        numbered(run, request).await
    };
    let app = App::with(|engine| engine, |layer| layer.wait_up_to(Duration::from_secs(10)), slow);
    let began = Instant::now();
    let (first, second) = tokio::join!(app.post("k", "{}"), app.post("k", "{}"));
    assert_eq!((first.is_replay(), second.is_replay(), app.runs()), (false, true, 1));
    assert_eq!(first.body, second.body);
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
}

/// A lease from the time of its arrival would be over.
#[tokio::test(start_paused = true)]
async fn without_a_deadline_a_request_runs_after_a_wait_longer_than_a_lease() {
    let slow = |run, request| async move {
        let mut response = numbered(run, request).await;
        if run == 1 {
            tokio::time::sleep(Duration::from_secs(40)).await;
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        response
    };
    let app = App::with(|engine| engine, |layer| layer.wait_up_to(Duration::from_secs(60)), slow);
    let (first, second) = tokio::join!(app.post("k", "{}"), app.post("k", "{}"));
    assert_eq!((first.status, second.is_replay(), app.runs()), (503, false, 2));
    assert_ne!(second.status, 503);
}

/// A request from API Gateway, in an invocation with ten minutes left.
pub(crate) fn of_api_gateway(app: &App, format: &str) -> Request<Full<Bytes>> {
    let event = std::fs::read_to_string(format!("events/http-{format}.json")).unwrap();
    let (mut parts, _) = lambda_http::request::from_str(&event).unwrap().into_parts();
    let mut context = lambda_runtime::Context::default();
    context.deadline = app.clock.now().after(Duration::from_secs(600)).as_millis();
    parts.extensions.insert(context);
    // The authorizer's principal is no name for the scope of the application.
    parts.headers.insert("x-caller", "checkout".parse().unwrap());
    Request::from_parts(parts, "{}".into())
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_before_api_gateway_gives_up() {
    for (format, gateway) in [("rest-v1", 29), ("api-v2", 30)] {
        let app = app(|layer| layer.wait_up_to(Duration::from_secs(120)));
        let second = async {
            let began = Instant::now();
            (app.send(of_api_gateway(&app, format)).await, began.elapsed())
        };
        let (got, waited) = tokio::select! {
            biased;
            _ = app.send(of_api_gateway(&app, format)) => panic!("the first one runs"),
            told = second => told,
        };
        assert_eq!(got.code(), "in_progress", "{format}");
        assert!((20..gateway).contains(&waited.as_secs()), "{format}: {waited:?}");
    }
}

/// Returns the time that a request took while the store did not respond to claims, and the response.
async fn unprotected(app: &App, request: Request<Full<Bytes>>) -> (Duration, Got) {
    app.store.always(Call::Claim, Fault::Silence);
    let began = Instant::now();
    let got = app.send(request).await;
    (began.elapsed(), got)
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_fails_open_gives_the_store_at_most_a_quarter_of_its_time() {
    for (left, at_most) in [(None, 3_000), (Some(60), 3_000), (Some(8), 2_000), (Some(4), 1_000)] {
        let app = App::with(|engine| engine, |layer| layer.fail_open(), numbered);
        let mut request = post("k", "{}");
        if let Some(left) = left {
            let mut context = lambda_runtime::Context::default();
            context.deadline = app.clock.now().after(Duration::from_secs(left)).as_millis();
            request.extensions_mut().insert(context);
        }
        let (collector, guard) = Collector::install();
        let (waited, got) = unprotected(&app, request).await;
        drop(guard);
        assert!(waited <= Duration::from_millis(at_most), "{left:?}: {waited:?}");
        assert_eq!((got.status, got.header("idempotency-unprotected"), app.runs()), (201, Some("true"), 1), "{left:?}");
        let lines = collector.lines();
        assert_eq!(lines.iter().filter(|line| line.get("outcome") == "unprotected").count(), 1, "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_does_not_fail_open_asks_a_silent_store_again() {
    let app = App::new();
    app.store.next(Call::Claim, Fault::Silence);
    let got = app.post("k", "{}").await;
    assert_eq!((got.status, app.calls(Call::Claim), app.runs()), (201, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn protected_responses_are_not_marked_as_unprotected() {
    let app = App::with(|engine| engine, |layer| layer.fail_open(), numbered);
    for is_replay in [false, true] {
        let got = app.post("k", "{}").await;
        assert_eq!((got.is_replay(), got.header("idempotency-unprotected")), (is_replay, None));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unprotected_response_is_never_marked_as_a_replay() {
    let marked = |_, _| async {
        let answer = Response::builder().header("idempotency-replayed", "true").header("x-run", "1");
        answer.body(Full::default()).unwrap()
    };
    let app = App::with(|engine| engine, |layer| layer.fail_open(), marked);
    app.store.always(Call::Claim, Fault::AccessDenied);
    let got = app.post("k", "{}").await;
    assert_eq!((got.header("idempotency-unprotected"), got.header("x-run")), (Some("true"), Some("1")));
    assert_eq!(got.header("idempotency-replayed"), None);
}

#[tokio::test]
async fn outside_lambda_a_service_without_a_name_is_refused_with_advice() {
    let name = std::env::var_os("AWS_LAMBDA_FUNCTION_NAME");
    assert_eq!(name, None, "this test needs an environment without a name");
    let layer = || IdempotencyKeyLayer::new(Idempotency::new(MemoryStore::new()), Caller::shared());
    let error = layer().validate().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("scope("), "{error}");

    let inner = tower::service_fn(|_: Request<Full<Bytes>>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let service = layer().layer(inner);
    let (collector, guard) = Collector::install();
    let answer = service.clone().oneshot(post("k", "{}")).await.unwrap();
    drop(guard);
    assert_eq!(answer.status(), 500);
    let errors: Vec<_> = collector.lines().into_iter().filter(|line| line.level == Level::ERROR).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].get("error").contains("scope("), "{errors:?}");
    let get = Request::get("/charges").body(Full::default()).unwrap();
    assert_eq!(service.oneshot(get).await.unwrap().status(), 200, "not covered");
}
