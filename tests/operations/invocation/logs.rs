//! One log event per invocation, without its key or payload.

use std::sync::{Arc, Mutex};

use lambda_once::{
    ErrorKind, MissingKey, OutcomeKind,
    store::fault::{Call, Fault},
    telemetry::OperationEvent,
};
use serde_json::{Value, json};
use tracing::Level;

use crate::invocation::{
    setup::{Function, numbered},
    support::collector::{Collector, Line},
};

/// Returns the log line of an invocation's outcome, and its other lines.
async fn logged(function: &Function, event: Value) -> (Line, Vec<Line>) {
    let (collector, guard) = Collector::install();
    function.invoke(event).await.ok();
    drop(guard);
    let lines = collector.lines();
    assert!(!format!("{lines:?}").contains("secret"), "{lines:?}");
    let (mut outcomes, others): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| !line.get("outcome").is_empty());
    assert_eq!(outcomes.len(), 1, "one event for each invocation");
    let line = outcomes.remove(0);
    assert_eq!(line.get("operation"), "invocation");
    (line, others)
}

#[tokio::test(start_paused = true)]
async fn every_invocation_logs_its_outcome_under_the_hash_of_its_key() {
    let function = Function::new();
    let event = |cents: u32| json!({"id": "secret", "cents": cents, "note": "secret"});
    for (cents, outcome, level) in
        [(1, "executed", Level::INFO), (1, "replayed", Level::INFO), (2, "mismatch", Level::WARN)]
    {
        let line = logged(&function, event(cents)).await.0;
        assert_eq!((line.get("outcome"), line.get("key").len(), line.level), (outcome, 64, level));
    }
    function.store.always(Call::Claim, Fault::AccessDenied);
    assert_eq!(logged(&function, event(1)).await.0.get("outcome"), "access_denied");
}

#[tokio::test]
async fn an_event_without_a_key_is_logged_as_a_warning() {
    let line = logged(&Function::new(), json!({"secret": "secret"})).await.0;
    assert_eq!((line.get("outcome"), line.get("key"), line.level), ("key_missing", "", Level::WARN));

    let unprotected = Function::with(|engine| engine.missing_key(MissingKey::RunUnprotected), |layer| layer, numbered);
    let (line, others) = logged(&unprotected, json!({"secret": "secret"})).await;
    assert_eq!((line.get("outcome"), line.get("key")), ("executed", ""));
    assert_eq!(others.len(), 1);
    assert_eq!(others[0].level, Level::WARN);
}

#[tokio::test]
async fn a_replay_whose_hook_fails_is_not_reported_as_a_replay() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&told);
    let observer = move |event: &OperationEvent<'_>| observed.lock().unwrap().push(event.outcome);
    let hook = |_: &mut Value| panic!("in a hook");
    let function = Function::with(|engine| engine.observer(observer), |layer| layer.before_replay(hook), numbered);
    let event = json!({"id": "secret", "cents": 1});
    assert_eq!(logged(&function, event.clone()).await.0.get("outcome"), "executed");
    let line = logged(&function, event).await.0;
    assert_eq!((line.get("outcome"), line.level, line.get("key").len()), ("stored_result", Level::ERROR, 64));
    assert_eq!(*told.lock().unwrap(), [Ok(OutcomeKind::Executed), Err(ErrorKind::StoredResult)]);
}
