//! One event per covered request, without its key, caller or body.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lambda_once::store::fault::{Call, Fault};
use tracing::Level;

use crate::{
    setup::{App, in_lambda, post},
    support::collector::{Collector, Line},
};

/// The outcome that one request logs.
async fn logged(app: &App, body: &'static str) -> String {
    told(app, post("key-8e03978e", body)).await.0
}

/// The outcome that one request logs, and its level.
async fn told(app: &App, mut request: Request<Full<Bytes>>) -> (String, Level) {
    let (collector, guard) = Collector::install();
    request.headers_mut().insert("x-caller", "caller-alice".parse().unwrap());
    app.send(request).await;
    drop(guard);
    let lines = collector.lines();
    let text = format!("{lines:?}");
    assert!(["8e03978e", "alice", "secret"].iter().all(|plain| !text.contains(plain)), "{text}");
    // All bodies in these tests are compared as a whole, and the requests differ in nothing else.
    let differs = |line: &Line| if line.get("outcome") == "mismatch" { "body" } else { "" };
    assert!(lines.iter().all(|line| line.get("differs") == differs(line)), "{text}");
    let mut outcomes = lines.iter().filter(|line| !line.get("outcome").is_empty());
    let line = outcomes.next().expect("an event with the outcome");
    assert!(outcomes.next().is_none(), "one event for each request");
    assert_eq!((line.get("operation"), line.get("key").len()), ("http", 64));
    (line.get("outcome").to_owned(), line.level)
}

/// A server has its own log of requests. In Lambda no other log shows that a request was a duplicate.
#[tokio::test(start_paused = true)]
async fn in_lambda_each_outcome_is_logged_at_info() {
    let app = App::new();
    for outcome in ["executed", "replayed"] {
        assert_eq!(told(&app, in_lambda(post("in-lambda", "{}"))).await, (outcome.to_owned(), Level::INFO));
        assert_eq!(told(&app, post("elsewhere", "{}")).await, (outcome.to_owned(), Level::DEBUG));
    }
}

#[tokio::test(start_paused = true)]
async fn every_request_logs_its_outcome_under_the_hash_of_its_key() {
    let app = App::new();
    assert_eq!(logged(&app, "secret").await, "executed");
    assert_eq!(logged(&app, "secret").await, "replayed");
    assert_eq!(logged(&app, "another secret").await, "mismatch");
    app.store.always(Call::Claim, Fault::AccessDenied);
    assert_eq!(logged(&app, "secret").await, "access_denied");
}

/// The body of a stream is never kept, which needs no warning.
#[tokio::test(start_paused = true)]
async fn only_a_response_too_large_to_be_replayed_is_warned_about() {
    for (content_type, warnings) in [("application/json", 1), ("text/event-stream", 0)] {
        let handler = move |_, _| async move {
            Response::builder().header("content-type", content_type).body(Full::from("12345")).unwrap()
        };
        let app = App::with(|engine| engine, |layer| layer.max_response(4), handler);
        let lines = async || {
            let (collector, guard) = Collector::install();
            app.post("k", "{}").await;
            drop(guard);
            collector.lines()
        };
        let first = lines().await;
        let warned = first.iter().filter(|line| line.get("message").contains("too large to be replayed"));
        assert_eq!(warned.count(), warnings, "{content_type}: {first:?}");
        let again = lines().await;
        let outcomes: Vec<_> = again.iter().map(|line| line.get("outcome")).filter(|name| !name.is_empty()).collect();
        assert_eq!(outcomes, ["replayed_without_result"], "{content_type}");
    }
}
