//! What a client is told whose key another request has used: by the state of that request.

use std::{sync::Arc, time::Duration};

use http::{Request, Response};
use http_body_util::Full;
use lambda_once::{AfterUnknown, http::ResponseAction};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::setup::{App, Got, LAPSE, numbered};

fn members(got: &Got) -> Value {
    assert_eq!((got.status, got.code()), (422, "key_reused".to_owned()));
    serde_json::from_slice(&got.body).unwrap()
}

/// The text of a refusal. Whoever sends the same operation with another key has it carried out twice.
fn detail(problem: &Value) -> &str {
    let detail = problem["detail"].as_str().unwrap();
    for advice in ["new key", "another key", "different key", "other key"] {
        assert!(!detail.contains(advice), "{detail}");
    }
    detail
}

/// A response that keeps the key.
async fn keep(_: u32, _: Request<Full<bytes::Bytes>>) -> Response<Full<bytes::Bytes>> {
    let mut response = Response::new(Full::from("it may have taken effect"));
    response.extensions_mut().insert(ResponseAction::Keep);
    response
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_request_that_is_done_is_refused_as_its_outcome_stands() {
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
    // So it did.
    assert_eq!((app.post("k", "[]").await.status, app.runs()), (201, 2));
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_request_without_an_outcome_is_not_told_to_be_final() {
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
