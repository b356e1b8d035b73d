//! One event per covered request, without its key, caller or body.

use lambda_once::store::fault::{Call, Fault};

use crate::{
    setup::{App, post},
    support::collector::Collector,
};

/// The outcome that one request logs.
async fn logged(app: &App, body: &'static str) -> String {
    let (collector, guard) = Collector::install();
    let mut request = post("key-8e03978e", body);
    request.headers_mut().insert("x-caller", "caller-alice".parse().unwrap());
    app.send(request).await;
    drop(guard);
    let lines = collector.lines();
    let text = format!("{lines:?}");
    assert!(["8e03978e", "alice", "secret"].iter().all(|plain| !text.contains(plain)), "{text}");
    let mut outcomes = lines.iter().filter(|line| !line.get("outcome").is_empty());
    let line = outcomes.next().expect("an event with the outcome");
    assert!(outcomes.next().is_none(), "one event for each request");
    assert_eq!((line.get("operation"), line.get("key").len()), ("http", 64));
    line.get("outcome").to_owned()
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
