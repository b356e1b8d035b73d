//! Several invocations of one service, or of its clones.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_once::{Failure, Idempotency, Key, MemoryStore, record::Status, store::fault::Call};
use lambda_runtime::LambdaEvent;
use serde_json::Value;
use tower_service::Service;

use crate::world::{World, batch, ids, invoke, order, orders, seconds, work};

#[tokio::test(start_paused = true)]
async fn how_long_handlers_ran_in_one_invocation_holds_nothing_up_in_the_next() {
    let world = World::new();
    let service = world.service();
    assert!(world.deliver_to(&service, [work("A", "succeed", 20_000)]).await.is_empty());
    let reported = invoke(&service, batch([order("B")]), world.left(seconds(2))).await.unwrap();
    assert!(reported.is_empty());
}

// Tests B10.
#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_between_invocations_but_by_the_store() {
    let world = World::new();
    let service = world.service();
    world.deliver_to(&service, [order("A"), work("B", "permanent", 0)]).await;
    world.memory.remove(&world.hash("A"));
    world.memory.remove(&world.hash("B"));
    assert_eq!(world.deliver_to(&service, [order("A"), work("B", "permanent", 0)]).await, ["m1"]);
    assert_eq!(world.journal.keys(), ["A", "B", "A", "B"]);
}

#[tokio::test(start_paused = true)]
async fn two_invocations_at_once_share_nothing() {
    let world = World::new();
    let mut service = world.service().concurrency(1);
    let fails = LambdaEvent::new(batch([work("A", "transient", 900), order("B")]), world.left(seconds(1)));
    let works = LambdaEvent::new(batch([work("C", "succeed", 300), work("D", "succeed", 300)]), world.left(seconds(9)));
    // Both calls are made before either is awaited.
    let (fails, works) = (service.call(fails), service.clone().call(works));
    let (fails, works) = tokio::join!(fails, works);
    let ids = |answer: SqsBatchResponse| -> Vec<String> {
        answer.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect()
    };
    assert_eq!(ids(fails.unwrap()), ["m0", "m1"]);
    assert_eq!(ids(works.unwrap()), [""; 0]);
    assert_eq!(world.journal.most_at_once(), 2);
}

#[tokio::test(start_paused = true)]
async fn of_two_invocations_one_runs_the_same_messages_and_one_reports_them() {
    let world = World::new();
    let service = world.service();
    let bodies = || batch(orders(5, "succeed", 100));
    let first = invoke(&service, bodies(), world.left(seconds(60)));
    let second = invoke(&service, bodies(), world.left(seconds(60)));
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.unwrap(), second.unwrap()), (vec![], ids(0..5)));
    assert_eq!(world.journal.keys().len(), 5);
}

// Tests B10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_invocations_on_several_threads_run_each_message_once() {
    let once = Idempotency::builder(MemoryStore::new()).scope("tests").disabled(false).build().unwrap();
    let runs = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&runs);
    let service = once.sqs(Key::pointer("/order_id"), move |body: Value| {
        let seen = std::sync::Arc::clone(&seen);
        async move {
            tokio::task::yield_now().await;
            seen.lock().unwrap().push(body["order_id"].to_string());
            Ok::<_, Failure>(())
        }
    });
    let invocations = (0..8).map(|_| {
        let service = service.clone();
        tokio::spawn(async move {
            invoke(&service, batch(orders(30, "succeed", 0)), lambda_runtime::Context::default()).await.unwrap()
        })
    });
    let mut acknowledged = std::collections::HashSet::new();
    for invocation in invocations.collect::<Vec<_>>() {
        let reported = invocation.await.unwrap();
        acknowledged.extend(ids(0..30).into_iter().filter(|id| !reported.contains(id)));
    }
    assert_eq!(acknowledged.len(), 30);
    let mut runs = runs.lock().unwrap().clone();
    assert_eq!(runs.len(), 30);
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 30);
}

// Tests B10.
#[tokio::test(start_paused = true)]
async fn nothing_that_was_spawned_outlives_the_invocation() {
    let world = World::new();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let acts = ["succeed", "transient", "permanent", "unknown", "panic", "hang"];
    let bodies = (0..60).map(|i: usize| work(&format!("order-{i}"), acts[i % acts.len()], 10));
    let reported = invoke(&world.service(), batch(bodies), world.left(seconds(5))).await.unwrap();
    assert!(!reported.is_empty());
    assert_eq!(tasks(), before);
    let at_end = (world.store.calls().len(), world.journal.runs().len());
    tokio::time::sleep(seconds(600)).await;
    assert_eq!((world.store.calls().len(), world.journal.runs().len()), at_end);
    assert!(world.journal.runs().iter().all(|run| run.ended.is_some()));
}

#[tokio::test(start_paused = true)]
async fn an_invocation_that_is_dropped_keeps_its_claims_and_stops_its_handlers() {
    let world = World::new();
    let service = world.service();
    let invocation = invoke(&service, batch([work("A", "hang", 0)]), world.left(seconds(60)));
    assert!(tokio::time::timeout(seconds(1), invocation).await.is_err());
    assert_eq!(world.status("A").await, Some(Status::InProgress));
    assert!(world.journal.runs()[0].ended.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_two_tenants_do_not_meet() {
    let world = World::new();
    for tenant in [None, Some(""), Some("blue"), Some("green"), Some("blue")] {
        let mut context = world.left(seconds(60));
        context.tenant_id = tenant.map(str::to_owned);
        assert!(invoke(&world.service(), batch([order("A")]), context).await.unwrap().is_empty());
    }
    assert_eq!(world.journal.keys().len(), 4);
    assert_eq!(world.records().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_two_functions_or_two_names_do_not_meet() {
    let world = World::new();
    let handler = |_: Value| async { Ok::<_, Failure>(()) };
    for name in ["orders", "refunds", "orders"] {
        let service = world.once.named(name).sqs(Key::pointer("/order_id"), handler);
        assert!(world.deliver_to(&service, [order("A")]).await.is_empty());
    }
    assert_eq!(world.records().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_disabled_engine_runs_every_delivery_and_calls_no_store() {
    let world = World::with(|builder| builder.disabled(true));
    let bodies = || [order("A"), order("A"), work("B", "transient", 0), work("C", "panic", 0), work("D", "hang", 0)];
    for _ in 0..2 {
        assert_eq!(world.deliver(bodies()).await, ["m2", "m3", "m4"]);
    }
    assert_eq!(world.journal.times_run()["A"], 4);
    assert_eq!(world.journal.keys().len(), 10);
    assert!(world.store.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_disabled_engine_still_keeps_to_concurrency_and_deadline() {
    let world = World::with(|builder| builder.disabled(true));
    let service = world.service().concurrency(2);
    let reported = invoke(&service, batch(orders(6, "succeed", 300)), world.left(seconds(1))).await.unwrap();
    assert_eq!(reported, ids(2..6));
    assert_eq!(world.journal.most_at_once(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_new_messages_takes_one_call_to_claim_and_one_to_settle() {
    let world = World::new();
    world.deliver(orders(10, "succeed", 0)).await;
    assert_eq!(world.calls(Call::Claim), [10]);
    assert_eq!(world.calls(Call::Settle), [10]);
    assert_eq!(world.calls(Call::Read), [0; 0]);
}

fn is_a_service<S>(_: &S)
where
    S: Service<LambdaEvent<SqsEvent>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
}

/// Tests only that it compiles, and is never called.
#[expect(dead_code, reason = "it would wait for Lambda")]
async fn the_runtime_takes_the_service(once: Idempotency) -> Result<(), lambda_runtime::Error> {
    async fn handle(_: Value) -> Result<(), Failure> {
        Ok(())
    }
    let service = once.sqs(Key::message_id(), handle);
    is_a_service(&service);
    is_a_service(&once.sqs(Key::message_id(), |_: Value, _: lambda_once::RecordContext| async { anyhow::Ok(()) }));
    lambda_runtime::run_concurrent(service.clone()).await?;
    lambda_runtime::run(service).await
}
