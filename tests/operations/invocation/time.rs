//! Panics, deadlines, and claims that are left behind.

use std::{env, future, process::Command, time::Duration};

use lambda_once::{
    BoxError, Builder, ErrorKind, Idempotency, Key, MemoryStore, OnPanic, clock::Clock, invocation::InvocationLayer,
    store::fault::Call,
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::Value;
use tokio::time::sleep;

use crate::invocation::setup::{Function, LAPSE, numbered, order, refusal};

/// Returns the default event, in an invocation that ends after this time.
fn within(function: &Function, time: Duration) -> LambdaEvent<serde_json::Value> {
    let mut context = Context::default();
    context.deadline = function.clock.now().after(time).as_millis();
    LambdaEvent::new(order(), context)
}

async fn panics_first(run: u32, _: serde_json::Value) -> Result<u32, BoxError> {
    assert!(run > 1, "the first run panics");
    Ok(run)
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_and_keeps_the_claim_until_its_lease_ends() {
    let function = Function::of(panics_first);
    assert_eq!(function.refusal().await, ("panicked", true));
    assert_eq!(function.refusal().await, ("in_progress", true));
    tokio::time::advance(LAPSE).await;
    assert_eq!(function.invoke(order()).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_may_be_set_to_release_the_claim() {
    let function = Function::with(|engine| engine.on_panic(OnPanic::Transient), |layer| layer, panics_first);
    assert_eq!(function.refusal().await, ("panicked", true));
    assert_eq!(function.invoke(order()).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_making_the_handlers_future_is_caught_too() {
    let function = Function::<u32>::of(|run, event| {
        assert!(run > 1, "the first run panics");
        numbered(run, event)
    });
    assert_eq!(function.refusal().await, ("panicked", true));
    assert_eq!(function.refusal().await, ("in_progress", true));
}

// Tests L7, P7.
#[tokio::test(start_paused = true)]
async fn a_hung_handler_is_cancelled_before_the_deadline_keeping_its_claim() {
    let function = Function::<u32>::of(|_, _| future::pending());
    let began = tokio::time::Instant::now();
    let answer = function.send(within(&function, Duration::from_secs(10))).await;
    assert_eq!(refusal(answer), ("cancelled", true));
    assert_eq!(began.elapsed().as_millis() / 100, 95);
    assert_eq!(function.refusal().await, ("in_progress", true));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_not_known_gives_the_configured_lease() {
    for of in [|_| 0, |_| 600_000, |now: u64| now + 910_001, |now: u64| now * 1_000] {
        let hangs = |_, _| future::pending::<Result<u32, BoxError>>();
        let function = Function::with(|builder| builder.heartbeat(None), |layer| layer, hangs);
        let deadline = of(function.clock.now().as_millis());
        let mut context = Context::default();
        context.deadline = deadline;
        let began = tokio::time::Instant::now();
        assert_eq!(refusal(function.send(LambdaEvent::new(order(), context)).await).0, "cancelled");
        assert_eq!(began.elapsed().as_millis() / 100, 285, "{deadline}");
        tokio::time::advance(LAPSE).await;
        assert_eq!(refusal(function.invoke(order()).await).0, "cancelled", "it runs again");
    }
}

// Tests L5.
#[tokio::test(start_paused = true)]
async fn without_a_known_deadline_long_work_keeps_its_claim() {
    let function = Function::of(|run, event| async move {
        sleep(Duration::from_secs(150)).await;
        numbered(run, event).await
    });
    let repeated = async {
        sleep(Duration::from_secs(149)).await;
        function.refusal().await
    };
    let (first, second) = tokio::join!(function.invoke(order()), repeated);
    assert_eq!((first.unwrap(), second), (1, ("in_progress", true)));
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn with_an_unknown_deadline_a_hung_handler_has_the_longest_duration() {
    for (layer, longest) in [
        ((|layer| layer) as fn(InvocationLayer<Value>) -> InvocationLayer<Value>, 900),
        (|layer| layer.heartbeat(Duration::from_secs(60)), 60),
    ] {
        let hangs = |_, _| future::pending::<Result<u32, BoxError>>();
        let function = Function::with(|engine| engine, layer, hangs);
        let began = tokio::time::Instant::now();
        assert_eq!(function.refusal().await, ("cancelled", true));
        assert_eq!(began.elapsed().as_secs(), longest);
    }
}

#[tokio::test(start_paused = true)]
async fn in_an_invocation_with_a_deadline_nothing_is_renewed() {
    let slow = |run, event| async move {
        sleep(Duration::from_secs(100)).await;
        numbered(run, event).await
    };
    let function = Function::with(|engine| engine.heartbeat(Duration::from_secs(900)), |layer| layer, slow);
    assert_eq!(function.send(within(&function, Duration::from_secs(120))).await.unwrap(), 1);
    assert_eq!(function.calls(), [Call::Claim, Call::Settle]);
}

#[tokio::test(start_paused = true)]
async fn a_layers_heartbeat_is_refused_in_an_invocation_with_a_deadline() {
    let function = Function::with(|engine| engine, |layer| layer.heartbeat(Duration::from_secs(60)), numbered);
    let answer = function.send(within(&function, Duration::from_secs(10))).await;
    assert_eq!(refusal(answer), ("config", false));
    assert_eq!((function.runs(), function.calls()), (0, vec![]));
}

#[test]
fn a_heartbeat_in_which_nothing_could_run_is_refused_in_init() {
    let layer = InvocationLayer::<Value>::new(Idempotency::new(MemoryStore::new()), Key::pointer("/id"));
    assert_eq!(layer.heartbeat(Duration::ZERO).validate().unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test(start_paused = true)]
async fn without_time_left_nothing_starts_and_nothing_is_claimed() {
    let function = Function::new();
    let answer = function.send(within(&function, Duration::from_millis(400))).await;
    assert_eq!(refusal(answer), ("not_started", true));
    assert_eq!((function.runs(), function.calls().len()), (0, 0));
    assert_eq!(function.invoke(order()).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unprotected_run_is_cancelled_too() {
    let hangs = |_, _| future::pending::<Result<u32, BoxError>>();
    let function = Function::with(|engine| engine.disabled(true), |layer| layer, hangs);
    assert_eq!(function.refusal().await, ("cancelled", true));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_spawned_that_outlives_an_invocation() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let function = Function::of(|run, event| async move {
        if run == 1 {
            future::pending::<()>().await;
        }
        numbered(run, event).await
    });
    assert_eq!(function.refusal().await.0, "cancelled");
    assert_eq!(tasks(), before);
    tokio::time::advance(LAPSE).await;
    function.invoke(order()).await.unwrap();
    assert_eq!(tasks(), before);
}

/// Runs itself in a process that Lambda seems to have started.
#[test]
fn in_lambda_a_layers_heartbeat_is_refused_in_init() {
    const IN_LAMBDA: &str = "AWS_LAMBDA_INITIALIZATION_TYPE";
    let layer = |engine: fn(Builder) -> Builder| {
        let once = engine(Idempotency::builder(MemoryStore::new())).build().unwrap();
        InvocationLayer::<Value>::new(once, Key::pointer("/id"))
    };
    let minute = Duration::from_secs(60);
    let chosen = layer(|engine| engine).heartbeat(minute).validate();
    if env::var_os(IN_LAMBDA).is_none() {
        assert!(chosen.is_ok(), "under `cargo lambda watch` the layer accepts it");
        let test = "invocation::time::in_lambda_a_layers_heartbeat_is_refused_in_init";
        let mut again = Command::new(env::current_exe().unwrap());
        let output = again.args(["--exact", test]).env(IN_LAMBDA, "on-demand").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let error = chosen.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("a heartbeat is set in Lambda"), "{error}");
    assert!(layer(|engine| engine.heartbeat(Duration::from_secs(60))).validate().is_ok(), "the engine's has no effect");
    assert!(layer(|engine| engine).heartbeat(None).validate().is_ok());
}
