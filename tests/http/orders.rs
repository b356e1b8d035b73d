//! Ordered requests. Those older than the newest are refused, and only one at a time works on an entity.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lambda_once::{
    Classify, ErrorKind, Key,
    http::{Caller, IdempotencyKeyLayer, ResponseAction},
    store::fault::{Call, Fault},
};
use serde_json::{Value, json};

use crate::setup::{App, Got, numbered};

fn ordered(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    layer.ordered_by(Key::pointer("/document"), Key::pointer("/version"))
}

fn app() -> App {
    App::with(|engine| engine, ordered, numbered)
}

/// Takes a second.
async fn slow(run: u32, request: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    numbered(run, request).await
}

impl App {
    async fn post_json(&self, key: &str, body: &Value) -> Got {
        let request =
            Request::post("/charges").header("idempotency-key", key).header("content-type", "application/json");
        self.send(request.body(Full::from(body.to_string())).unwrap()).await
    }

    async fn put(&self, key: &str, document: &str, version: impl Into<Value>) -> Got {
        self.post_json(key, &json!({ "document": document, "version": version.into() })).await
    }
}

// Tests P21, P22.
#[tokio::test(start_paused = true)]
async fn an_older_request_is_permanently_refused_and_a_repeat_is_replayed() {
    let app = app();
    assert_eq!(app.put("a", "d", 5).await.status, 201);
    let old = app.put("b", "d", "4").await;
    assert_eq!((old.status, old.code(), old.header("retry-after")), (409, "superseded".to_owned(), None));
    let problem: Value = serde_json::from_slice(&old.body).unwrap();
    assert_eq!(problem["retryable"], false);
    assert!(app.put("a", "d", 5).await.is_replay());
    assert_eq!(app.put("c", "e", 1).await.status, 201, "another document");
    assert_eq!(app.put("d", "d", 6).await.status, 201);
    assert_eq!(app.runs(), 3);
}

#[tokio::test(start_paused = true)]
async fn one_request_at_a_time_works_on_an_entity() {
    let app = App::with(|engine| engine, ordered, slow);
    let (first, second, other) = tokio::join!(app.put("a", "d", 1), app.put("b", "d", 2), app.put("c", "e", 1));
    assert_eq!((first.status, other.status), (201, 201));
    assert_eq!((second.status, second.code()), (409, "in_progress".to_owned()));
    assert_eq!(app.put("b", "d", 2).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_entity() {
    let app = App::with(|engine| engine, |layer| ordered(layer).wait_up_to(Duration::from_secs(10)), slow);
    let (first, second) = tokio::join!(app.put("a", "d", 1), app.put("b", "d", 2));
    assert_eq!((first.status, second.status), (201, 201));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_entity_or_a_sequence_is_refused_and_does_not_run() {
    let app = app();
    for body in [json!({ "document": "d" }), json!({ "version": 1 }), json!({ "document": "d", "version": "one" })] {
        let got = app.post_json("a", &body).await;
        assert_eq!((got.status, got.code()), (400, "order_missing".to_owned()), "{body}");
    }
    assert_eq!((app.runs(), app.store.calls().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_refuses_a_request_supersedes_nothing() {
    let handler = |run, request| async move {
        let mut response = numbered(run, request).await;
        if run == 1 {
            *response.status_mut() = http::StatusCode::UNPROCESSABLE_ENTITY;
        }
        response
    };
    let app = App::with(|engine| engine, |layer| ordered(layer).classify_response(|_| ResponseAction::Store), handler);
    assert_eq!(app.put("a", "d", 10).await.status, 422);
    assert_eq!(app.put("b", "d", 9).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_success_that_is_not_recorded_is_to_be_tried_again() {
    let app = app();
    app.store.always(Call::Settle, Fault::ErrorBefore);
    let got = app.put("a", "d", 5).await;
    assert_eq!((got.status, got.code(), app.runs()), (503, "not_recorded".to_owned(), 1));
    assert!(got.header("retry-after").is_some());
}

#[tokio::test(start_paused = true)]
async fn in_an_order_no_request_runs_unprotected() {
    let app = App::with(|engine| engine, |layer| ordered(layer).key_optional(), numbered);
    let request = Request::post("/charges").body(Full::from(r#"{"document":"d","version":1}"#)).unwrap();
    assert_eq!(app.send(request).await.code(), "key_missing");
    let layer = ordered(IdempotencyKeyLayer::new(crate::setup::engine(), Caller::shared()));
    assert!(layer.clone().validate().is_ok());
    assert_eq!(layer.fail_open().validate().unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_header_of_an_order_is_malformed_and_an_absent_one_missing() {
    let by_header = |layer: IdempotencyKeyLayer| layer.ordered_by(Key::header("x-document"), Key::pointer("/version"));
    let app = App::with(|engine| engine, by_header, numbered);
    let cases: [(&[&str], &str); 2] = [(&["d", "d"], "key_malformed"), (&[], "order_missing")];
    for (documents, code) in cases {
        let request = Request::post("/charges").header("idempotency-key", "a");
        let request = documents.iter().fold(request, |request, document| request.header("x-document", *document));
        let got = app.send(request.body(Full::from("{\"version\":1}")).unwrap()).await;
        assert_eq!((got.status, got.code()), (400, code.to_owned()), "{documents:?}");
    }
    assert_eq!((app.runs(), app.store.calls().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_order_that_cannot_be_found_at_the_moment_is_to_be_tried_again() {
    let entity = Key::from_fn(|_| Ok(Err("the directory is busy").transient()?));
    let app = App::with(|engine| engine, |layer| layer.ordered_by(entity, Key::pointer("/version")), numbered);
    let got = app.put("a", "d", 5).await;
    assert_eq!((got.status, got.code(), app.runs()), (503, "unavailable".to_owned(), 0));
    assert_eq!(got.header("retry-after"), Some("1"));
}
