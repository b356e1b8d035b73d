//! New, done and running operations, and which responses are stored.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, header::IF_MATCH};
use http_body_util::Full;
use lambda_once::http::{IdempotencyKeyLayer, ResponseAction};
use tokio::sync::Notify;

use crate::setup::{App, numbered, post};

// Tests P25, IKH-2.5.2-5, IKH-2.6-1, IKH-2.6-2.
#[tokio::test(start_paused = true)]
async fn a_retry_gets_the_first_response_byte_for_byte() {
    let app = App::new();
    let first = app.post("k", "{}").await;
    assert_eq!((first.status, &first.body[..]), (201, &b"{\"run\": 1}\n"[..]));
    assert!(!first.is_replay());

    let mut second = app.post("k", "{}").await;
    assert!(second.is_replay());
    second.headers.remove("idempotency-replayed");
    assert_eq!(second, first);
    assert_eq!(app.runs(), 1);
}

// Tests IKH-2.6-1.
#[tokio::test(start_paused = true)]
async fn another_key_is_another_operation() {
    let app = App::new();
    app.post("a", "{}").await;
    assert_eq!(app.post("b", "{}").await.header("x-run"), Some("2"));
}

// Tests IKH-2.5.2-5, IKH-2.6-3, IKH-2.7-3.
#[tokio::test(start_paused = true)]
async fn a_request_while_the_first_one_runs_is_refused_with_retry_after() {
    let go = Arc::new(Notify::new());
    let gate = Arc::clone(&go);
    let app = App::with(
        |engine| engine,
        |layer| layer,
        move |run, request| {
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                numbered(run, request).await
            }
        },
    );
    let meanwhile = async {
        let got = app.post("k", "{}").await;
        assert_eq!((got.status, got.code()), (409, "in_progress".to_owned()));
        assert_eq!(got.header("retry-after"), Some("2"));
        go.notify_one();
    };
    let (first, ()) = tokio::join!(biased; app.post("k", "{}"), meanwhile);
    assert_eq!(first.status, 201);
    assert!(app.post("k", "{}").await.is_replay());
    assert_eq!(app.runs(), 1);
}

// Tests IKH-2.4-1, IKH-2.4-2, IKH-2.5.2-4, IKH-2.7-2.
#[tokio::test(start_paused = true)]
async fn the_same_key_for_another_request_is_refused() {
    let app = App::new();
    app.post("k", r#"{"a":1}"#).await;
    let request = |method, uri: &str, body: &'static str| {
        Request::builder()
            .method(method)
            .uri(uri)
            .header("idempotency-key", "k")
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(body))
            .unwrap()
    };
    for other in [
        request(Method::POST, "/charges?x=1", r#"{"a":2}"#),
        request(Method::POST, "/charges?x=1", ""),
        request(Method::POST, "/charges?x=2", r#"{"a":1}"#),
        request(Method::POST, "/charges", r#"{"a":1}"#),
        request(Method::POST, "/refunds?x=1", r#"{"a":1}"#),
        request(Method::PATCH, "/charges?x=1", r#"{"a":1}"#),
    ] {
        let got = app.send(other).await;
        assert_eq!((got.status, got.code()), (422, "key_reused".to_owned()));
    }
    assert!(app.post("k", "{ \"a\" : 1 }").await.is_replay(), "the same JSON, spelled differently");
    assert_eq!(app.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn methods_that_are_not_covered_pass_through() {
    let app = App::new();
    for run in 1..=2 {
        let get = Request::get("/charges/1").header("idempotency-key", "k").body(Full::default()).unwrap();
        let got = app.send(get).await;
        assert_eq!((got.header("x-run").unwrap(), got.is_replay()), (run.to_string().as_str(), false));
    }
    assert!(app.store.calls().is_empty());

    let app = App::with(|engine| engine, |layer| layer.methods([Method::PUT]), numbered);
    app.post("k", "{}").await;
    app.post("k", "{}").await;
    assert_eq!(app.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_method_is_compared_with_its_case() {
    let post = |method: &str| {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        Request::builder().method(method).uri("/charges").header("idempotency-key", "k").body(Full::default()).unwrap()
    };
    let app = App::new();
    for name in ["post", "Post"] {
        assert_eq!(app.send(post(name)).await.status, 201);
    }
    assert!(app.store.calls().is_empty(), "they are not covered");

    let both = ["POST", "post"].map(|name| Method::from_bytes(name.as_bytes()).unwrap());
    let app = App::with(|engine| engine, |layer| layer.methods(both), numbered);
    assert_eq!(app.send(post("POST")).await.status, 201);
    assert_eq!(app.send(post("post")).await.code(), "key_reused", "another method is another request");
    assert_eq!(app.runs(), 1);
}

async fn answering(status: u16) -> App {
    let handler = move |run, _| async move {
        Response::builder().status(status).header("x-run", run).body(Full::default()).unwrap()
    };
    App::with(|engine| engine, |layer| layer, handler)
}

// Tests IKH-2.6-2.
#[tokio::test(start_paused = true)]
async fn responses_that_a_retry_may_change_release_the_key() {
    let by_credentials_or_request = [401, 403, 404, 405, 406, 407, 411, 412, 413, 415, 416, 417, 421, 426, 428, 431];
    let by_time_or_place = [307, 308, 409, 423, 425, 429, 500, 502, 503];
    for status in by_credentials_or_request.into_iter().chain(by_time_or_place) {
        let app = answering(status).await;
        assert_eq!(app.post("k", "{}").await.status, status);
        let again = app.post("k", "other").await;
        assert_eq!((again.status, again.header("x-run")), (status, Some("2")));
    }
}

// Tests IKH-2.6-2.
#[tokio::test(start_paused = true)]
async fn final_responses_are_replayed() {
    for status in [200, 204, 301, 302, 303, 400, 402, 410, 422, 451] {
        let app = answering(status).await;
        app.post("k", "{}").await;
        let again = app.post("k", "{}").await;
        assert_eq!((again.status, again.is_replay(), app.runs()), (status, true, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn responses_with_an_unknown_effect_keep_the_key() {
    for status in [408, 424, 499, 504] {
        let app = answering(status).await;
        assert_eq!(app.post("k", "{}").await.status, status);
        assert_eq!(app.post("k", "{}").await.code(), "in_progress", "{status}");
        tokio::time::advance(crate::setup::LAPSE).await;
        assert_eq!((app.post("k", "{}").await.status, app.runs()), (status, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_precondition_can_be_corrected_under_the_same_key() {
    let patch = |run: u32, request: Request<Full<Bytes>>| async move {
        let is_current = request.headers()["if-match"] == "\"v2\"";
        let status = if is_current { 200 } else { 412 };
        Response::builder().status(status).header("x-run", run).body(Full::default()).unwrap()
    };
    let with = |etag: &str| {
        let request = Request::patch("/charges/1").header("idempotency-key", "k").header("if-match", etag);
        request.body(Full::from("{}")).unwrap()
    };
    for compared in [false, true] {
        let set_up = |layer: IdempotencyKeyLayer| if compared { layer.compare_headers([IF_MATCH]) } else { layer };
        let app = App::with(|engine| engine, set_up, patch);
        assert_eq!(app.send(with("\"v1\"")).await.status, 412);
        assert_eq!(app.send(with("\"v2\"")).await.status, 200);
        assert!(app.send(with("\"v2\"")).await.is_replay());
        // When it is done, only its version makes it a different request, if the version is compared.
        let other = app.send(with("\"v1\"")).await;
        assert_eq!((other.status, other.is_replay()), if compared { (422, false) } else { (200, true) });
        assert_eq!(app.runs(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn headers_that_are_compared_tell_requests_apart() {
    let names = ["x-b", "x-a", "x-a"].map(http::HeaderName::from_static);
    let app = App::with(|engine| engine, |layer| layer.compare_headers(names), numbered);
    let with = |headers: &[(&'static str, &'static str)]| {
        let mut request = post("k", "{}");
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        request
    };
    app.send(with(&[("x-a", "1"), ("x-a", "2"), ("x-c", "1")])).await;
    assert!(app.send(with(&[("x-c", "2"), ("x-a", "1"), ("x-a", "2")])).await.is_replay());
    let others: [&[(&str, &str)]; 6] = [
        &[],
        &[("x-a", "1")],
        &[("x-a", "2"), ("x-a", "1")],
        &[("x-a", "1, 2")],
        &[("x-a", "1"), ("x-b", "2")],
        &[("x-a", "1"), ("x-a", "2"), ("x-b", "")],
    ];
    for other in others {
        assert_eq!(app.send(with(other)).await.code(), "key_reused", "{other:?}");
    }
    assert_eq!(app.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn which_responses_are_stored_is_configurable() {
    let refuse = |run, _| async move {
        Response::builder().status(if run == 1 { 400 } else { 201 }).body(Full::default()).unwrap()
    };
    let app = App::with(
        |engine| engine,
        |layer| {
            layer.classify_response(
                |status| if status.is_success() { ResponseAction::Store } else { ResponseAction::Release },
            )
        },
        refuse,
    );
    assert_eq!(app.post("k", "bad").await.status, 400);
    assert_eq!(app.post("k", "corrected").await.status, 201);
    assert_eq!(app.post("k", "bad").await.status, 422);
}

// Tests IKH-2.3-1, IKH-2.3-2.
#[tokio::test(start_paused = true)]
async fn records_live_for_a_day_unless_the_engine_is_configured_otherwise() {
    let day = Duration::from_secs(24 * 60 * 60);
    for (app, lives) in
        [(App::new(), day), (App::with(|engine| engine.retention(day / 2), |layer| layer, numbered), day / 2)]
    {
        app.post("k", "{}").await;
        app.clock.jump(lives - Duration::from_secs(1));
        assert!(app.post("k", "{}").await.is_replay());
        app.clock.jump(Duration::from_secs(2));
        assert!(!app.post("k", "{}").await.is_replay());
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_two_for_a_new_request_and_one_for_a_repeated_one() {
    let app = App::new();
    app.send(post("k", "{}")).await;
    assert_eq!(app.store.calls().len(), 2);
    app.send(post("k", "{}")).await;
    assert_eq!(app.store.calls().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_disabled_engine_lets_everything_through() {
    let app = App::with(|engine| engine.disabled(true), |layer| layer, numbered);
    app.post("k", "{}").await;
    assert!(!app.post("k", "{}").await.is_replay());
    assert_eq!(app.runs(), 2);
    assert!(app.store.calls().is_empty());
}
