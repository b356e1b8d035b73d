//! Events whose operation does not run, or whose run does not count.

use std::{
    future,
    sync::{Arc, OnceLock},
};

use futures_util::FutureExt;
use lambda_once::{
    AfterUnknown, BoxError, Failure,
    store::fault::{Call, Fault},
};
use lambda_runtime::Diagnostic;
use serde_json::json;

use crate::invocation::setup::{Function, LAPSE, numbered, order, refusal};

#[tokio::test(start_paused = true)]
async fn of_two_invocations_at_once_one_runs_and_the_other_may_be_retried() {
    let function = Function::of(|run, _| async move {
        tokio::task::yield_now().await;
        Ok::<_, BoxError>(run)
    });
    let (first, second) = tokio::join!(function.invoke(order()), function.invoke(order()));
    assert_eq!(first.unwrap(), 1);
    let error = second.unwrap_err();
    assert_eq!(Diagnostic::from(error).error_type, "lambda_once.in_progress");
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
    assert_eq!(function.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_invocations_on_several_threads_one_runs() {
    let function = Arc::new(Function::of(|run, _| async move {
        tokio::task::yield_now().await;
        Ok::<_, BoxError>(run)
    }));
    let invocations: Vec<_> = (0..16)
        .map(|_| {
            let function = Arc::clone(&function);
            tokio::spawn(async move { function.invoke(order()).await })
        })
        .collect();
    let mut done = 0;
    for invocation in invocations {
        match invocation.await.unwrap() {
            Ok(run) => {
                assert_eq!(run, 1);
                done += 1;
            }
            error => assert_eq!(refusal(error), ("in_progress", true)),
        }
    }
    assert!(done >= 1);
    assert_eq!(function.runs(), 1);
}

#[tokio::test]
async fn a_key_with_another_payload_is_refused_permanently() {
    let function = Function::new();
    function.invoke(order()).await.unwrap();
    let other = function.invoke(json!({"id": "A", "cents": 996})).await;
    assert_eq!(refusal(other), ("mismatch", false));
    assert_eq!(function.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_another_payload_is_running_under_may_be_free_later() {
    let function = Function::of(|run, _| async move {
        tokio::task::yield_now().await;
        if run == 1 { Err(BoxError::from("the bank is busy")) } else { Ok(run) }
    });
    let other = || json!({"id": "A", "cents": 996});
    let (first, second) = tokio::join!(function.invoke(order()), function.invoke(other()));
    assert_eq!((first.is_err(), refusal(second)), (true, ("mismatch", true)));
    assert_eq!(function.invoke(other()).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn under_refuse_an_unknown_outcome_stays_unknown() {
    let fails = |_, _| async { Err::<u32, _>(Failure::unknown("timed out")) };
    let function = Function::with(|engine| engine.after_unknown(AfterUnknown::Refuse), |layer| layer, fails);
    function.invoke(order()).await.unwrap_err();
    tokio::time::advance(LAPSE).await;
    assert_eq!(function.refusal().await, ("abandoned", false));
    assert_eq!(function.runs(), 1);
}

#[tokio::test]
async fn a_stored_result_that_no_longer_decodes_is_a_permanent_error_and_no_run() {
    let function = Function::new();
    function.invoke(order()).await.unwrap();
    let (clock, records) = (function.clock.clone(), function.records.clone());
    // A newer deployment takes its place.
    drop(function);
    let text = |_, _| async { Ok::<_, BoxError>(String::new()) };
    let texts = Function::on(clock, records, |engine| engine, |layer| layer, text);
    assert_eq!(texts.refusal().await, ("stored_result", false));
    assert_eq!(texts.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_the_store_nothing_runs() {
    for (fault, kind) in
        [(Fault::AccessDenied, "access_denied"), (Fault::Throttled, "throttled"), (Fault::ErrorBefore, "unavailable")]
    {
        let function = Function::new();
        function.store.always(Call::Claim, fault);
        assert_eq!(function.refusal().await, (kind, true));
        assert_eq!(function.runs(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_could_not_be_recorded_is_given_and_does_not_run_again() {
    let function = Function::new();
    function.store.always(Call::Settle, Fault::Throttled);
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
    function.store.heal();
    assert_eq!(function.refusal().await, ("in_progress", true), "kept, not released");
    assert_eq!(function.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn lost_store_responses_are_invisible_to_the_caller() {
    let function = Function::new();
    function.store.next(Call::Claim, Fault::ErrorAfter);
    function.store.next(Call::Settle, Fault::ErrorAfter);
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
}

/// Blocks the thread of the first run until its lease has passed, while another invocation takes over and possibly
/// completes.
async fn overtaken(successor_finishes: bool) -> Result<u32, (&'static str, bool)> {
    let function: Arc<OnceLock<Function>> = Arc::default();
    let itself = Arc::clone(&function);
    let handler = move |run, event| {
        let itself = Arc::clone(&itself);
        async move {
            if run == 1 {
                let function = itself.get().unwrap();
                function.clock.jump(LAPSE);
                let successor = function.invoke(order()).now_or_never();
                assert_eq!(successor.is_some(), successor_finishes);
            } else if !successor_finishes {
                future::pending::<()>().await;
            }
            numbered(run, event).await
        }
    };
    function.set(Function::of(handler)).ok().unwrap();
    match function.get().unwrap().invoke(order()).await {
        Ok(run) => Ok(run),
        error => Err(refusal(error)),
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_holder_gives_its_successors_result() {
    assert_eq!(overtaken(true).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_late_holder_whose_successor_is_not_done_has_no_result() {
    assert_eq!(overtaken(false).await, Err(("lease_lost", true)));
}
