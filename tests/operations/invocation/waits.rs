//! Invocations that wait for the result of one in progress elsewhere.

use std::{future, time::Duration};

use lambda_once::{
    BoxError, Failure,
    clock::Clock,
    invocation::HandlerError,
    store::fault::{Call, Fault},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::invocation::setup::{Function, numbered, order, refusal};

const SECOND: Duration = Duration::from_secs(1);

/// Creates a function whose first run takes this long and ends in this way, and which waits for up to `patience`.
fn function(takes: Duration, end: fn() -> Result<(), Failure>, patience: Duration) -> Function<u32, Failure> {
    let handler = move |run, _: Value| async move {
        if run == 1 {
            sleep(takes).await;
            end()?;
        }
        Ok::<_, Failure>(run)
    };
    Function::with(|engine| engine, |layer| layer.wait_up_to(patience), handler)
}

/// Invokes it, and a moment later a second time, and returns the response of the second invocation and its time.
async fn twice<E: HandlerError + Send + 'static>(
    function: &Function<u32, E>,
) -> (Result<u32, (&'static str, bool)>, Duration) {
    let began = Instant::now();
    let second = async {
        tokio::task::yield_now().await;
        let answer = function.invoke(order()).await;
        let elapsed = began.elapsed();
        match answer {
            Ok(run) => (Ok(run), elapsed),
            error => (Err(refusal(error)), elapsed),
        }
    };
    let (_, second) = tokio::join!(function.invoke(order()), second);
    second
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_waits_for_the_first_ones_result() {
    let function = function(3 * SECOND, || Ok(()), 10 * SECOND);
    let (answer, after) = twice(&function).await;
    assert_eq!((answer, function.runs()), (Ok(1), 1));
    // The pauses between two polls are at most two seconds.
    assert!((3 * SECOND..=5 * SECOND).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_when_its_time_is_over() {
    let function = function(10 * SECOND, || Ok(()), 4 * SECOND);
    let (answer, after) = twice(&function).await;
    assert_eq!((answer, function.runs()), (Err(("in_progress", true)), 1));
    assert!((3 * SECOND..=4 * SECOND).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_the_response_comes_immediately() {
    let handler = |run, _| async move {
        sleep(3 * SECOND).await;
        Ok::<u32, BoxError>(run)
    };
    let function = Function::of(handler);
    assert_eq!(twice(&function).await, (Err(("in_progress", true)), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_before_the_handler_deadline() {
    let function = function(60 * SECOND, || Ok(()), 60 * SECOND);
    let mut context = Context::default();
    context.deadline = function.clock.now().after(10 * SECOND).as_millis();
    let began = Instant::now();
    let waits = async {
        tokio::task::yield_now().await;
        let answer = function.send(LambdaEvent::new(order(), context)).await;
        (refusal(answer), began.elapsed())
    };
    let first = async {
        let _ = tokio::time::timeout(20 * SECOND, function.invoke(order())).await;
    };
    let ((), (answer, after)) = tokio::join!(first, waits);
    assert_eq!(answer, ("in_progress", true));
    assert!(after <= Duration::from_millis(9_500), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_invocation_runs_after_the_first_one_fails() {
    let function = function(3 * SECOND, || Err(Failure::transient("try again")), 10 * SECOND);
    assert_eq!(twice(&function).await.0, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_waited_for_too() {
    let function = function(3 * SECOND, || Err(Failure::permanent("no such account")), 10 * SECOND);
    let (answer, _) = twice(&function).await;
    assert!(matches!(answer, Err(("replayed_failure", false))), "{answer:?}");
    assert_eq!(function.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_lapses_meanwhile_is_taken_over() {
    let function = Function::<u32, Failure>::with(
        |engine| engine.lease(5 * SECOND),
        |layer| layer.wait_up_to(8 * SECOND),
        |run, _| async move { if run == 1 { Err(Failure::unknown("no answer")) } else { Ok(run) } },
    );
    function.invoke(order()).await.unwrap_err();
    let began = Instant::now();
    let mut context = Context::default();
    context.deadline = function.clock.now().after(20 * SECOND).as_millis();
    assert_eq!(function.send(LambdaEvent::new(order(), context)).await.unwrap(), 2);
    assert_eq!(began.elapsed(), Duration::from_millis(6_001), "the lease, the margin and a moment");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_not_running_is_not_waited_for() {
    let function = function(Duration::ZERO, || Ok(()), 10 * SECOND);
    let began = Instant::now();
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
    let other = function.invoke(json!({ "id": "A", "cents": 996 })).await;
    assert_eq!(refusal(other).0, "mismatch");
    function.store.always(Call::Claim, Fault::AccessDenied);
    assert_eq!(function.refusal().await.0, "access_denied");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_bounded_when_the_holder_never_ends() {
    let hangs = |run, event| async move {
        if run == 1 {
            future::pending::<()>().await;
        }
        numbered(run, event).await
    };
    let function = Function::with(|engine| engine, |layer| layer.wait_up_to(Duration::MAX), hangs);
    let (answer, after) = twice(&function).await;
    assert_eq!(answer, Err(("in_progress", true)));
    assert!(after <= Duration::from_millis(28_500), "{after:?}");
}
