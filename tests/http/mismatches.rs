//! Refusals of a key that another request has used, by the state of that request.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, Request, Response, header::IF_MATCH};
use http_body_util::{BodyExt as _, Full};
use lambda_once::{
    AfterUnknown, Idempotency, MemoryStore, OperationSettings,
    http::{Caller, IdempotencyKeyLayer, ResponseAction},
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tower::{Layer as _, ServiceExt as _};

use crate::setup::{App, Got, LAPSE, numbered, post};

fn members(got: &Got) -> Value {
    assert_eq!((got.status, got.code()), (422, "key_reused".to_owned()));
    serde_json::from_slice(&got.body).unwrap()
}

/// The text of a refusal. A client that sends the same operation with another key makes it take effect twice.
fn detail(problem: &Value) -> &str {
    let detail = problem["detail"].as_str().unwrap();
    for advice in ["new key", "another key", "different key", "other key"] {
        assert!(!detail.contains(advice), "{detail}");
    }
    detail
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_parts_that_differ_from_the_first_request() {
    let app = App::with(|engine| engine, |layer| layer.compare_headers([http::header::IF_MATCH]), numbered);
    let request = |uri: &'static str, etag: &'static str, body: &'static str| {
        let request = Request::post(uri).header("idempotency-key", "k").header("if-match", etag);
        request.body(Full::from(body)).unwrap()
    };
    assert_eq!(app.send(request("/a?x=1", "7", "{}")).await.status, 201);
    for (other, differs, sentence) in [
        (request("/a?x=1", "7", "[]"), vec!["body"], "Compared with that request, the body differs"),
        (request("/a", "7", "[]"), vec!["query", "body"], "Compared with that request, the query and the body differ"),
        (request("/b?x=1", "7", "{}"), vec!["method_and_path"], "the method or path differs"),
        (request("/a?x=1", "8", "{}"), vec!["headers"], "the compared headers differ"),
    ] {
        let problem = members(&app.send(other).await);
        assert_eq!(problem["differs"], json!(differs));
        assert!(detail(&problem).contains(sentence), "{problem}");
    }
    let malformed = app.post("a,b", "{}").await;
    let problem: Value = serde_json::from_slice(&malformed.body).unwrap();
    assert_eq!((malformed.code(), problem.get("differs")), ("key_malformed".to_owned(), None), "it is not compared");
    assert_eq!(app.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_of_a_raised_payload_version_gets_the_response_of_before() {
    let once = Idempotency::builder(MemoryStore::new()).scope("tests").build().unwrap();
    let send = async |version, body| {
        let version = OperationSettings::new().payload_version(version);
        let layer = IdempotencyKeyLayer::new(once.clone(), Caller::shared()).with_settings(version);
        let handler = tower::service_fn(move |request| async move { Ok::<_, Infallible>(numbered(1, request).await) });
        let (parts, body) = layer.layer(handler).oneshot(post("k", body)).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let got = Got { status: parts.status.as_u16(), headers: parts.headers, body };
        (got.status, got.is_replay(), got.body)
    };
    let first = send(1, "{}").await;
    assert_eq!((first.0, first.1), (201, false));
    assert_eq!(send(2, "[]").await, (201, true, first.2));
    assert_eq!(send(1, "[]").await.0, 422, "the record keeps the version of its claim");
}

#[tokio::test(start_paused = true)]
async fn a_header_that_is_named_twice_is_compared_like_one_named_once() {
    let once = Idempotency::builder(MemoryStore::new()).scope("tests").build().unwrap();
    let is_replayed = async |names: Vec<HeaderName>| {
        let layer = IdempotencyKeyLayer::new(once.clone(), Caller::shared()).compare_headers(names);
        let handler = tower::service_fn(move |request| async move { Ok::<_, Infallible>(numbered(1, request).await) });
        let mut request = post("k", "{}");
        request.headers_mut().insert(IF_MATCH, HeaderValue::from_static("7"));
        let answer = layer.layer(handler).oneshot(request).await.unwrap();
        (answer.status().as_u16(), answer.headers().contains_key("idempotency-replayed"))
    };
    assert_eq!(is_replayed(vec![IF_MATCH]).await, (201, false));
    assert_eq!(is_replayed(vec![IF_MATCH, IF_MATCH]).await, (201, true));
}

/// A response that keeps the key.
async fn keep(_: u32, _: Request<Full<bytes::Bytes>>) -> Response<Full<bytes::Bytes>> {
    let mut response = Response::new(Full::from("it may have taken effect"));
    response.extensions_mut().insert(ResponseAction::Keep);
    response
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_with_a_completed_request_is_refused_as_final() {
    let app = App::new();
    assert_eq!(app.post("k", "{}").await.status, 201);
    let got = app.post("k", "[]").await;
    let problem = members(&got);
    assert!(detail(&problem).contains("outcome stands"), "{problem}");
    assert_eq!((&problem["retryable"], got.header("retry-after")), (&Value::Bool(false), None));
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_request_that_runs_is_refused_as_one_that_may_become_free() {
    let go = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&go);
    let handler = move |run, request| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            if run == 1 {
                return Response::builder().status(503).body(Full::default()).unwrap();
            }
            numbered(run, request).await
        }
    };
    let app = App::with(|engine| engine, |layer| layer, handler);
    let meanwhile = async {
        app.begun(1).await;
        let got = app.post("k", "[]").await;
        go.add_permits(2);
        got
    };
    let (first, got) = tokio::join!(app.post("k", "{}"), meanwhile);
    assert_eq!(first.status, 503);
    let problem = members(&got);
    let detail = detail(&problem);
    assert!(detail.contains("is being processed, or ended without an outcome"), "{detail}");
    assert!(detail.contains("only if that one releases the key") && !detail.contains("stands"), "{detail}");
    // The lease and the skew margin.
    assert_eq!((&problem["retryable"], &problem["retry_after_ms"]), (&Value::Bool(true), &Value::from(31_000)));
    assert_eq!(got.header("retry-after"), Some("2"));
    // It has released the key.
    assert_eq!((app.post("k", "[]").await.status, app.runs()), (201, 2));
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_with_a_request_of_unknown_outcome_is_not_called_final() {
    let app = App::with(|engine| engine, |layer| layer, keep);
    assert_eq!(app.post("k", "{}").await.status, 200);
    tokio::time::sleep(LAPSE).await;
    let got = app.post("k", "[]").await;
    let problem = members(&got);
    let detail = detail(&problem);
    assert!(detail.contains("may have taken effect") && !detail.contains("stands"), "{detail}");
    assert_eq!((&problem["retryable"], got.header("retry-after"), app.runs()), (&Value::Bool(false), None, 1));
}

#[tokio::test(start_paused = true)]
async fn a_client_is_never_advised_to_send_its_operation_with_another_key() {
    let app = App::with(|engine| engine.after_unknown(AfterUnknown::Refuse), |layer| layer, keep);
    assert_eq!(app.post("k", "{}").await.status, 200);
    for (code, wait) in [("in_progress", Duration::ZERO), ("outcome_unknown", LAPSE)] {
        tokio::time::sleep(wait).await;
        let got = app.post("k", "{}").await;
        assert_eq!((got.status, got.code()), (409, code.to_owned()));
        let problem: Value = serde_json::from_slice(&got.body).unwrap();
        let text = detail(&problem);
        assert!(code == "in_progress" || text.contains("releases the key or its record expires"), "{text}");
        assert_eq!(problem["retryable"], code == "in_progress");
    }
}
