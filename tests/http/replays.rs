//! Replays: headers, marks, the gate, and decisions.

use std::{future, time::Duration};

use axum::{Extension, Router, body::Body, routing::post};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use lambda_once::{
    clock::Clock,
    http::{Caller, IdempotencyKeyLayer, ResponseAction, StoredResponse},
};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::setup::{App, numbered, post as request};

fn answering(
    set_up: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer,
    headers: &'static [(&'static str, &'static str)],
) -> App {
    let handler = move |run, _| async move {
        let answer = Response::builder().header("x-run", run);
        let answer = headers.iter().fold(answer, |answer, (name, value)| answer.header(*name, *value));
        answer.body(Full::default()).unwrap()
    };
    App::with(|engine| engine, set_up, handler)
}

const CORS: &[(&str, &str)] = &[
    ("access-control-allow-origin", "*"),
    ("access-control-expose-headers", "Idempotency-Replayed, Retry-After"),
    ("access-control-max-age", "600"),
    ("vary", "Origin"),
];

#[tokio::test(start_paused = true)]
async fn cors_headers_are_replayed_if_valid_for_every_origin_or_configured() {
    let expose = HeaderName::from_static("access-control-expose-headers");
    let app = answering(|layer| layer.store_headers([expose]), CORS);
    let first = app.post("k", "{}").await;
    let again = app.post("k", "{}").await;
    assert!(again.is_replay());
    for kept in ["access-control-allow-origin", "access-control-expose-headers", "vary"] {
        assert_eq!(again.header(kept), first.header(kept), "{kept}");
        assert!(again.header(kept).is_some(), "{kept}");
    }
    assert_eq!((first.header("access-control-max-age"), again.header("access-control-max-age")), (Some("600"), None));
}

#[tokio::test(start_paused = true)]
async fn a_cors_header_for_one_origin_is_not_replayed_to_another() {
    let app = answering(|layer| layer, &[("access-control-allow-origin", "https://shop.example.com")]);
    assert_eq!(app.post("k", "{}").await.header("access-control-allow-origin"), Some("https://shop.example.com"));
    let again = app.post("k", "{}").await;
    assert_eq!((again.is_replay(), again.header("access-control-allow-origin")), (true, None));
}

#[tokio::test(start_paused = true)]
async fn headers_that_are_to_be_dropped_are_not_replayed() {
    let secret = HeaderName::from_static("x-one-time-token");
    let app = answering(|layer| layer.drop_headers([secret]), &[("x-one-time-token", "t")]);
    assert_eq!(app.post("k", "{}").await.header("x-one-time-token"), Some("t"));
    assert_eq!(app.post("k", "{}").await.header("x-one-time-token"), None);
}

#[tokio::test(start_paused = true)]
async fn a_handlers_own_mark_does_not_make_a_first_response_a_replay() {
    let app = answering(|layer| layer, &[("idempotency-replayed", "true"), ("idempotency-replayed", "yes")]);
    assert_eq!(app.post("k", "{}").await.header("idempotency-replayed"), None);
    let again = app.post("k", "{}").await;
    assert_eq!(Vec::from_iter(again.headers.get_all("idempotency-replayed")), ["true"]);
}

#[tokio::test(start_paused = true)]
async fn first_responses_are_marked_too_if_configured() {
    let name = HeaderName::from_static("x-replayed");
    let app = answering(|layer| layer.mark_first_responses().replay_header(name), &[("x-replayed", "perhaps")]);
    for mark in ["false", "true", "true"] {
        let got = app.post("k", "{}").await;
        assert_eq!(Vec::from_iter(got.headers.get_all("x-replayed")), [mark]);
        assert_eq!(app.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_trailers_of_a_first_response_reach_its_client() {
    let checksum: HeaderMap = [(header::ETAG, "\"e\"".parse().unwrap())].into_iter().collect();
    let trailers = checksum.clone();
    let handler = move || async move {
        Response::new(Body::new(Full::from("charged").with_trailers(future::ready(Some(Ok(trailers))))))
    };
    // As a whole, and beyond the cap.
    for cap in [7, 3] {
        let layer = IdempotencyKeyLayer::new(crate::setup::engine(), Caller::shared()).max_response(cap);
        let app = Router::new().route("/charges", post(handler.clone())).route_layer(layer);
        let request = Request::post("/charges").header("idempotency-key", "k").body(Body::empty()).unwrap();
        let body = app.oneshot(request).await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(body.trailers(), Some(&checksum), "{cap}");
        assert_eq!(body.to_bytes(), "charged", "{cap}");
    }
}

fn forbidden() -> Response<Bytes> {
    Response::builder().status(403).header("x-why", "suspended").body("not any more".into()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_refuses_a_replay_sends_its_response_and_changes_nothing() {
    let app = App::with(
        |engine| engine,
        |layer| {
            layer.before_replay(|request, stored: &StoredResponse| {
                Box::pin(async move {
                    assert_eq!(
                        (stored.status(), &stored.body().unwrap()[..]),
                        (StatusCode::CREATED, &b"{\"run\": 1}\n"[..])
                    );
                    assert_eq!(stored.headers()["x-run"], "1");
                    // The gate is asynchronous.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if request.headers.contains_key("x-suspended") { Err(forbidden()) } else { Ok(()) }
                })
            })
        },
        numbered,
    );
    let first = app.post("k", "{}").await;
    let settled = app.store.calls();
    let mut suspended = request("k", "{}");
    suspended.headers_mut().insert("x-suspended", "1".parse().unwrap());
    let refused = app.send(suspended).await;
    assert_eq!(
        (refused.status, refused.header("x-why"), &refused.body[..]),
        (403, Some("suspended"), &b"not any more"[..])
    );
    let again = app.post("k", "{}").await;
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    assert_eq!((app.runs(), app.store.calls().len()), (1, settled.len() + 2), "each was one call");
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_panics_refuses_the_replay_for_now() {
    let app = App::with(
        |engine| engine,
        |layer| {
            layer.before_replay(|request, _| {
                assert!(!request.headers.contains_key("x-panic"), "in the call itself");
                Box::pin(async { panic!("in its future") })
            })
        },
        numbered,
    );
    app.post("k", "{}").await;
    for header in ["x-panic", "x-other"] {
        let mut again = request("k", "{}");
        again.headers_mut().insert(header, "1".parse().unwrap());
        let got = app.send(again).await;
        assert_eq!(
            (got.status, got.code(), got.header("retry-after")),
            (503, "replay_unchecked".to_owned(), Some("1"))
        );
    }
    assert_eq!(app.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_hangs_refuses_the_replay_before_the_invocation_ends() {
    let hanging = |layer: IdempotencyKeyLayer| layer.before_replay(|_, _| Box::pin(future::pending()));
    let app = App::with(|engine| engine, hanging, numbered);
    app.post("k", "{}").await;
    for left in [5, 300] {
        let mut context = lambda_runtime::Context::default();
        context.deadline = app.clock.now().after(Duration::from_secs(left)).as_millis();
        let mut again = request("k", "{}");
        again.extensions_mut().insert(context);
        let began = Instant::now();
        assert_eq!(app.send(again).await.code(), "replay_unchecked");
        assert!(began.elapsed() < Duration::from_secs(left.min(29)), "{left}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn an_axum_handler_sets_the_action_of_its_response() {
    // The decision, the status, and the retry's response.
    let cases = [
        (ResponseAction::Keep, StatusCode::SERVICE_UNAVAILABLE, StatusCode::CONFLICT, false),
        (ResponseAction::Store, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::INTERNAL_SERVER_ERROR, true),
        (ResponseAction::Release, StatusCode::CREATED, StatusCode::CREATED, false),
    ];
    for (decision, status, retry, is_replay) in cases {
        let layer = IdempotencyKeyLayer::new(crate::setup::engine(), Caller::shared());
        let handler = move || async move { (status, Extension(decision)) };
        let app = Router::new().route("/charges", post(handler)).route_layer(layer);
        let send = || {
            let request = Request::post("/charges").header("idempotency-key", "k").body(Body::empty()).unwrap();
            app.clone().oneshot(request)
        };
        assert_eq!(send().await.unwrap().status(), status);
        let again = send().await.unwrap();
        let is_marked = again.headers().contains_key("idempotency-replayed");
        assert_eq!((again.status(), is_marked), (retry, is_replay), "{decision:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn by_default_a_gateway_timeout_keeps_the_key_and_other_errors_free_it() {
    let retried = |status: u16, keeps: bool| async move {
        let handler = move |_, _| async move { Response::builder().status(status).body(Full::default()).unwrap() };
        let keep =
            |status: StatusCode| if status.is_server_error() { ResponseAction::Keep } else { ResponseAction::Store };
        let app =
            App::with(|engine| engine, |layer| if keeps { layer.classify_response(keep) } else { layer }, handler);
        assert_eq!(app.post("k", "{}").await.status, status);
        let again = app.post("k", "{}").await;
        (again.status, app.runs())
    };
    assert_eq!(retried(504, false).await, (409, 1));
    for status in [500, 502, 503] {
        assert_eq!(retried(status, false).await, (status, 2));
        assert_eq!(retried(status, true).await, (409, 1));
    }
}
