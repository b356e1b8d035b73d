//! Operations inside handlers: their deadlines and their tenants. After an invocation with a tenant, every operation of
//! the process must specify one, as those here do.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_once::{
    Error, ErrorKind, Failure, Idempotency, Interruption, Key, Outcome, OutcomeKind, RecordContext,
    clock::{Clock, Timestamp},
    invocation::InvocationLayer,
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use crate::world::{START, World, batch, invoke, millis, order, seconds};

/// The outcome of the operation within the handler, its time, and the end of its lease.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Option<(String, Timestamp, Timestamp)>>>);

/// Delivers a message with 10 s left, whose handler runs a hanging operation.
async fn hang_inside(world: &World, is_spawned: bool) -> (Vec<String>, (String, Timestamp, Timestamp)) {
    let seen = Seen::default();
    let (once, clock, told) = (world.once.clone(), world.clock.clone(), seen.clone());
    let service = world.once.sqs(Key::pointer("/order_id"), move |_: Value| {
        let (once, clock, told) = (once.clone(), clock.clone(), told.clone());
        async move {
            let inner = async move {
                let mut lease_until = Timestamp::EPOCH;
                let operation = once.operation("charge", "order 7").all_tenants().heartbeat(None);
                let ended = operation.run_with(|claim| {
                    lease_until = claim.unwrap().lease_until();
                    std::future::pending::<Result<u32, Failure>>()
                });
                let outcome = format!("{:?}", ended.await.unwrap());
                *told.0.lock().unwrap() = Some((outcome, clock.now(), lease_until));
            };
            if is_spawned {
                tokio::spawn(inner).await.unwrap()
            } else {
                inner.await
            }
            Ok::<_, Failure>(())
        }
    });
    let reported =
        invoke(&service, batch([order("A")]), world.left(seconds(if is_spawned { 60 } else { 10 }))).await.unwrap();
    let seen = seen.0.lock().unwrap().take().unwrap();
    (reported, seen)
}

#[tokio::test(start_paused = true)]
async fn an_operation_in_a_handler_has_the_deadline_of_its_invocation() {
    let (reported, (outcome, ended, lease_until)) = hang_inside(&World::new(), false).await;
    assert!(reported.is_empty(), "the handler sees how it ends, and succeeds");
    assert_eq!(outcome, format!("{:?}", Outcome::<u32>::Interrupted(Interruption::Cancelled)));
    // The handler deadline, at 9.5 s, minus the operation's own reserve.
    assert_eq!(ended, START.after(seconds(9)));
    assert_eq!(lease_until, START.after(seconds(11)));
}

/// Returns the outcome of the operation inside a handler, and its duration.
async fn with_heartbeat(
    world: &World,
    longest: u64,
    takes: u64,
    context: lambda_runtime::Context,
) -> (String, Duration) {
    let told = Arc::new(Mutex::new(None));
    let (once, clock, seen) = (world.once.clone(), world.clock.clone(), Arc::clone(&told));
    let service = world.once.sqs(Key::pointer("/order_id"), move |_: Value| {
        let (once, clock, seen) = (once.clone(), clock.clone(), Arc::clone(&seen));
        async move {
            let begun = clock.now();
            let operation = once.operation("charge", "order 7").all_tenants().heartbeat(seconds(longest));
            let outcome = operation.run(|| async {
                tokio::time::sleep(seconds(takes)).await;
                Ok::<_, Failure>(())
            });
            let outcome = outcome.await.map(|outcome| outcome.kind());
            *seen.lock().unwrap() = Some((format!("{outcome:?}"), clock.now().since(begun)));
            Ok::<_, Failure>(())
        }
    });
    assert!(invoke(&service, batch([order("A")]), context).await.unwrap().is_empty());
    told.lock().unwrap().take().unwrap()
}

/// Under `cargo lambda watch`, and in services outside Lambda, there is no deadline to inherit.
#[tokio::test(start_paused = true)]
async fn an_operation_in_a_handler_may_have_a_heartbeat_with_any_deadline() {
    let cancelled = format!("{:?}", Ok::<_, Error>(OutcomeKind::Interrupted(Interruption::Cancelled)));
    let executed = format!("{:?}", Ok::<_, Error>(OutcomeKind::Executed));
    for has_deadline in [true, false] {
        for (longest, takes, ends) in [(10, 5, &executed), (10, 15, &cancelled)] {
            let world = World::new();
            let context = if has_deadline { world.left(seconds(60)) } else { lambda_runtime::Context::default() };
            let (outcome, took) = with_heartbeat(&world, longest, takes, context).await;
            assert_eq!((&outcome, took), (ends, seconds(longest.min(takes))), "has a deadline: {has_deadline}");
        }
    }
    // The handler deadline comes first, at 9.5 s.
    let world = World::new();
    let (outcome, took) = with_heartbeat(&world, 100, 50, world.left(seconds(10))).await;
    assert_eq!((outcome, took), (cancelled, seconds(9)));
}

#[tokio::test(start_paused = true)]
async fn an_operation_in_a_spawned_task_inherits_nothing() {
    let (_, (_, ended, lease_until)) = hang_inside(&World::new(), true).await;
    assert_eq!((ended, lease_until), (START.after(millis(28_500)), START.after(seconds(30))));
}

/// The way in which the handler specifies the tenant of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Nothing,
    Context,
    ContextInATask,
    Blue,
    All,
}

/// Runs an operation for a tenant in a handler, and returns the tenant that it ran for.
async fn invoice(world: &World, tenant: &str, says: Says) -> Result<String, ErrorKind> {
    let (once, told) = (world.once.clone(), Arc::new(Mutex::new(None)));
    let seen = Arc::clone(&told);
    let service = world.once.sqs(Key::pointer("/says"), move |_: Value, context: RecordContext| {
        let (once, seen) = (once.clone(), Arc::clone(&seen));
        async move {
            let tenant = context.lambda().tenant_id.clone().unwrap();
            let answer = async move {
                let operation = once.operation("invoice", "order 7");
                let operation = match says {
                    Says::Nothing => operation,
                    Says::Context | Says::ContextInATask => operation.deadline(context.lambda()),
                    Says::Blue => operation.deadline(context.lambda()).tenant("blue"),
                    Says::All => operation.all_tenants().deadline(context.lambda()),
                };
                operation.run(async || Ok::<_, Failure>(tenant)).await
            };
            let answer: Result<Outcome<String>, Error> =
                if says == Says::ContextInATask { tokio::spawn(answer).await.unwrap() } else { answer.await };
            *seen.lock().unwrap() =
                Some(answer.map(|outcome| outcome.into_value().unwrap()).map_err(|error| error.kind()));
            Ok::<_, Failure>(())
        }
    });
    let mut context = world.left(seconds(60));
    context.tenant_id = Some(tenant.to_owned());
    assert!(invoke(&service, batch([json!({ "says": format!("{says:?}") })]), context).await.unwrap().is_empty());
    told.lock().unwrap().take().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_operation_in_a_handler_specifies_its_tenant_or_is_refused() {
    let of = |tenant: &str| Ok(tenant.to_owned());
    for (says, blue, green) in [
        (Says::Nothing, Err(ErrorKind::Config), Err(ErrorKind::Config)),
        (Says::Context, of("blue"), of("green")),
        (Says::Blue, of("blue"), of("blue")),
        (Says::All, of("blue"), of("blue")),
    ] {
        let world = World::new();
        assert_eq!(invoice(&world, "blue", says).await, blue, "{says:?}");
        assert_eq!(invoice(&world, "green", says).await, green, "{says:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_spawned_task_does_not_change_the_key_of_an_operation() {
    let world = World::new();
    assert_eq!(invoice(&world, "blue", Says::Context).await, Ok("blue".to_owned()));
    assert_eq!(invoice(&world, "blue", Says::ContextInATask).await, Ok("blue".to_owned()));
    assert_eq!(world.journal.claimed().len(), 3, "two messages, one invoice");
}

#[tokio::test]
async fn the_keys_of_two_tenants_of_an_invoked_function_do_not_meet() {
    let once = Idempotency::builder(lambda_once::MemoryStore::new()).disabled(false).build().unwrap();
    let runs = Arc::new(Mutex::new(0));
    let handler = service_fn(move |_: LambdaEvent<Value>| {
        let runs = Arc::clone(&runs);
        async move {
            let mut runs = runs.lock().unwrap();
            *runs += 1;
            Ok::<_, lambda_once::BoxError>(*runs)
        }
    });
    let service = InvocationLayer::new(once, Key::pointer("/id")).layer(handler);
    for (tenant, run) in [(None, 1), (Some(""), 2), (Some("blue"), 3), (Some("green"), 4), (Some("blue"), 3)] {
        let mut context = lambda_runtime::Context::default();
        context.tenant_id = tenant.map(str::to_owned);
        let event = serde_json::value::to_raw_value(&json!({ "id": "A" })).unwrap();
        assert_eq!(service.clone().oneshot(LambdaEvent::new(event, context)).await.unwrap(), run);
    }
}
