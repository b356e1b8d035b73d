//! axum routers with nesting, unknown paths, and layers outside and inside this one.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Path, Request},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::FutureExt;
use http::StatusCode;
use http_body_util::BodyExt;
use lambda_once::{
    Idempotency, MemoryStore,
    http::{Caller, IdempotencyKeyLayer},
    store::fault::FaultStore,
};
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::{
    setup::{Got, Store},
    support::clock::TokioClock,
};

fn layer() -> (IdempotencyKeyLayer, Store) {
    let clock = TokioClock::new();
    let store = FaultStore::new(MemoryStore::with_clock(clock.clone()), 1);
    let once = Idempotency::builder(store.clone()).clock(clock).scope("tests").build().unwrap();
    (IdempotencyKeyLayer::new(once, Caller::shared()), store)
}

async fn send(app: &Router, method: &str, path: &str, key: Option<&str>) -> Got {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let answer = app.clone().oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap();
    let (parts, body) = answer.into_parts();
    Got { status: parts.status.as_u16(), headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
}

async fn post_to(app: &Router, path: &str) -> Got {
    send(app, "POST", path, Some("k")).await
}

async fn charge(Path(account): Path<u32>) -> impl IntoResponse {
    (StatusCode::CREATED, format!("account {account}"))
}

#[tokio::test(start_paused = true)]
async fn one_key_for_two_accounts_is_refused_wherever_the_path_is_taken_apart() {
    let routes = || Router::new().route("/charges", post(charge));
    let service = || {
        service_fn(|request: Request| async move {
            assert_eq!(request.uri().path(), "/charges", "the rest of the path");
            Ok::<_, std::convert::Infallible>("account 1".into_response())
        })
    };
    let nested = [
        ("layer", Router::new().nest("/accounts/{id}", routes().layer(layer().0))),
        ("route_layer", Router::new().nest("/accounts/{id}", routes().route_layer(layer().0))),
        ("twice", Router::new().nest("/accounts", Router::new().nest("/{id}", routes().route_layer(layer().0)))),
        ("outside", Router::new().nest("/accounts/{id}", routes()).route_layer(layer().0)),
        ("a router as a service", Router::new().nest_service("/accounts/{id}", routes().layer(layer().0))),
        (
            "any service",
            Router::new().nest_service("/accounts/{id}", ServiceBuilder::new().layer(layer().0).service(service())),
        ),
    ];
    for (how, app) in nested {
        let first = post_to(&app, "/accounts/1/charges").await;
        assert_eq!((&first.body[..], first.is_replay()), (&b"account 1"[..], false), "{how}");
        let second = post_to(&app, "/accounts/2/charges").await;
        assert_eq!((second.status, second.code()), (422, "key_reused".to_owned()), "{how}");
        let again = post_to(&app, "/accounts/1/charges").await;
        assert_eq!((&again.body[..], again.is_replay()), (&b"account 1"[..], true), "{how}");
    }
}

const HEADERS: [Option<&str>; 3] = [None, Some("k"), Some("malformed,")];

#[tokio::test(start_paused = true)]
async fn as_a_route_layer_it_leaves_unknown_paths_alone() {
    let (layer, store) = layer();
    let app = Router::new().route("/charges", post(|| async { "done" })).route_layer(layer);
    for key in HEADERS {
        assert_eq!(send(&app, "POST", "/charge", key).await.status, 404);
    }
    assert!(store.calls().is_empty());
    assert_eq!(send(&app, "POST", "/charges", None).await.code(), "key_missing");
}

/// `Router::route_layer` wraps the routes of all methods, and the response for methods without a route.
#[tokio::test(start_paused = true)]
async fn as_a_method_routers_route_layer_it_leaves_unknown_methods_alone() {
    let (layer, store) = layer();
    let app = Router::new().route("/charges", post(|| async { "done" }).route_layer(layer));
    for key in HEADERS {
        assert_eq!(send(&app, "PATCH", "/charges", key).await.status, 405);
        assert_eq!(send(&app, "POST", "/charge", key).await.status, 404);
    }
    assert!(store.calls().is_empty());
    assert_eq!(send(&app, "POST", "/charges", None).await.code(), "key_missing");
}

#[tokio::test(start_paused = true)]
async fn a_layer_around_the_whole_router_forgets_unknown_paths_and_methods() {
    let app = Router::new().route("/charges", post(|| async { "done" })).layer(layer().0);
    for (path, method, status) in [("/charge", "POST", 404), ("/charges", "PATCH", 405)] {
        for _ in 0..2 {
            let got = send(&app, method, path, Some("k")).await;
            assert_eq!((got.status, got.is_replay()), (status, false));
        }
    }
    // The key is free for the corrected path.
    assert_eq!(send(&app, "POST", "/charges", Some("k")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_layer_applied_twice_is_reported_at_once() {
    let layer = layer().0.wait_up_to(Duration::from_secs(20));
    let routes = Router::new().route("/charges", post(|| async { "done" }));
    let twice = [
        Router::new().nest("/v1", routes.clone().layer(layer.clone())).layer(layer.clone()),
        Router::new().nest("/v1", routes.layer(layer.clone()).layer(layer)),
    ];
    for app in twice {
        let began = Instant::now();
        for _ in 0..2 {
            let got = post_to(&app, "/v1/charges").await;
            assert_eq!((got.status, got.code()), (500, "misconfigured".to_owned()));
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

/// Like `tower_http::timeout`, responds when the time is up, and drops the inner future.
async fn within_5_seconds(request: Request, next: Next, status: StatusCode) -> Response {
    let time = Duration::from_secs(5);
    tokio::time::timeout(time, next.run(request)).await.unwrap_or_else(|_| status.into_response())
}

async fn catch_panic(request: Request, next: Next) -> Response {
    let caught = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    caught.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// Routes whose handler takes longer than five seconds the first time, and the number of its runs.
fn slow() -> (Router, Arc<AtomicU32>) {
    let runs = Arc::<AtomicU32>::default();
    let counter = Arc::clone(&runs);
    let handler = move || {
        let run = counter.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            if run == 1 {
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            (StatusCode::CREATED, run.to_string())
        }
    };
    (Router::new().route("/charges", post(handler)), runs)
}

fn panicking() -> Router {
    let runs = Arc::<AtomicU32>::default();
    let handler = move || {
        let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            assert!(run > 1, "the first run panics");
            (StatusCode::CREATED, run.to_string())
        }
    };
    Router::new().route("/charges", post(handler))
}

/// In the right order, the operation continues, and the retry gets its response.
#[tokio::test(start_paused = true)]
async fn outside_the_layer_a_timeout_ends_the_wait_and_not_the_work() {
    let (routes, runs) = slow();
    let time_out = from_fn(|request, next| within_5_seconds(request, next, StatusCode::REQUEST_TIMEOUT));
    let app = routes.route_layer(layer().0).layer(time_out);
    assert_eq!(post_to(&app, "/charges").await.status, 408);
    assert_eq!(post_to(&app, "/charges").await.code(), "in_progress");
    tokio::time::sleep(Duration::from_secs(6)).await;
    let got = post_to(&app, "/charges").await;
    assert_eq!((got.status, &got.body[..], got.is_replay()), (201, &b"1"[..], true));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// In the wrong order, the handler is dropped, and its effect is unknown.
#[tokio::test(start_paused = true)]
async fn within_the_layer_a_timeout_keeps_the_key_until_the_lease_ends() {
    for status in [StatusCode::REQUEST_TIMEOUT, StatusCode::GATEWAY_TIMEOUT] {
        let (routes, runs) = slow();
        let time_out = from_fn(move |request, next| within_5_seconds(request, next, status));
        let app = routes.route_layer(time_out).route_layer(layer().0);
        assert_eq!(post_to(&app, "/charges").await.status, status);
        assert_eq!(post_to(&app, "/charges").await.code(), "in_progress", "{status}");
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{status}");
        tokio::time::advance(crate::setup::LAPSE).await;
        assert_eq!(&post_to(&app, "/charges").await.body[..], b"2", "{status}");
    }
}

/// In the right order, the layer sees the panic, after which the outcome is unknown.
#[tokio::test(start_paused = true)]
async fn a_panic_catcher_outside_the_layer_sees_no_panic() {
    let app = panicking().route_layer(layer().0).layer(from_fn(catch_panic));
    assert_eq!(post_to(&app, "/charges").await.code(), "handler_failed");
    assert_eq!(post_to(&app, "/charges").await.code(), "in_progress");
}

/// In the wrong order, the layer sees a 500, which releases the key by default.
#[tokio::test(start_paused = true)]
async fn a_panic_catcher_within_the_layer_makes_the_retry_run_again() {
    let app = panicking().route_layer(from_fn(catch_panic)).route_layer(layer().0);
    assert_eq!(post_to(&app, "/charges").await.status, 500);
    let got = post_to(&app, "/charges").await;
    assert_eq!((got.status, &got.body[..]), (201, &b"2"[..]));
}
