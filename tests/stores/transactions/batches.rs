//! Messages whose effect is committed together with their outcome.

use std::sync::Arc;

use lambda_once::{
    AfterUnknown, BoxFuture, Failure, Key, OutcomeKind, ProbeResult, RecordContext, Verdict,
    batch::{Handler, in_transaction},
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};

use crate::{purpose::Purpose, support::wire::Request};

use super::{Database, Ledger, World, build, engine, on_each_database};

/// Enters a row for an order, and then fails if the order has no amount.
async fn enter<D: Database>(
    ledger: Arc<Ledger<D>>,
    order: Value,
    transaction: D::Transaction,
) -> Result<String, Failure> {
    let id = ledger.enter(&transaction, order["id"].as_str().unwrap_or_default()).await?;
    if order["cents"] == 0 {
        return Err(Failure::transient("nothing to pay"));
    }
    Ok(id)
}

impl<D: Database> World<D> {
    /// Delivers messages through the proxy, and returns the outcome of each.
    async fn receive(&self, ledger: &Arc<Ledger<D>>, orders: &[(&str, u32)]) -> Vec<OutcomeKind> {
        let ledger = Arc::clone(ledger);
        let handle = move |order: Value, _: RecordContext, transaction: D::Transaction| {
            enter::<D>(Arc::clone(&ledger), order, transaction)
        };
        let service = self.once.named("payouts").sqs(Key::pointer("/id"), in_transaction(&self.store, handle));
        let messages = orders.iter().map(|(id, cents)| testing::record(&json!({ "id": id, "cents": cents })));
        let batch = sqs::batch(messages);
        let processed = service.process(LambdaEvent::new(batch.delivery(1), Context::default())).await;
        let outcomes: Vec<OutcomeKind> = processed.outcomes().into_iter().map(Result::unwrap).collect();
        let unfinished = outcomes.iter().filter(|outcome| !outcome.is_done()).count();
        assert_eq!(processed.reported().len(), unfinished, "what is not committed is reported");
        outcomes
    }
}

async fn each_message_commits_its_own_writes<D: Database>() {
    use OutcomeKind::{Executed, Failed, Replayed};
    let world = World::<D>::new().await;
    let ledger = Arc::new(Ledger::create().await);
    let orders = [("a", 1), ("b", 0), ("c", 1), ("a", 1)];
    let failed = Failed(Verdict::Transient);
    assert_eq!(world.receive(&ledger, &orders).await, [Executed, failed, Executed, Replayed]);
    let orders = [("a", 1), ("c", 1), ("d", 1)];
    assert_eq!(world.receive(&ledger, &orders).await, [Replayed, Replayed, Executed]);
    let mut keys: Vec<String> = ledger.all_rows().await.into_iter().map(|(_, key)| key).collect();
    keys.sort();
    assert_eq!(keys, ["a", "c", "d"]);
}

/// In other handlers, a success that cannot be recorded is acknowledged, because the work is done. Here that is
/// unknown.
// Tests B8.
async fn a_success_that_is_not_recorded_is_reported<D: Database>() {
    let world = World::<D>::new().await;
    let ledger = Arc::new(Ledger::create().await);
    let decides = |request: &Request| matches!(Purpose::of(request), Purpose::Release | Purpose::Read);
    world.proxy.on(move |request| D::settles(request) || decides(request)).times(usize::MAX).drop_request();
    let unknown = OutcomeKind::Failed(Verdict::Unknown);
    assert_eq!(world.receive(&ledger, &[("a", 1)]).await, [unknown]);
    assert_eq!(ledger.all_rows().await, []);
}

async fn a_service_on_another_store_is_refused<D: Database>() {
    let (world, other) = (World::<D>::new().await, World::<D>::new().await);
    let handle = |_: Value, _: D::Transaction| async { Ok::<_, Failure>(()) };
    let service = world.once.sqs(Key::pointer("/id"), in_transaction(&other.store, handle));
    assert!(service.validate().is_err());
    let with_context = |_: Value, _: RecordContext, _: D::Transaction| async { Ok::<_, Failure>(()) };
    let service = world.once.named("payouts").sqs(Key::pointer("/id"), in_transaction(&other.store, with_context));
    assert!(service.validate().is_err(), "also with a context");
    let once = build(engine(&world.store, &world.clock).after_unknown(AfterUnknown::Refuse));
    assert!(once.sqs(Key::pointer("/id"), in_transaction(&world.store, handle)).validate().is_ok());
    let once = build(engine(&world.store, &world.clock).after_unknown(AfterUnknown::Probe));
    let probe = |_: Value, _: RecordContext| async { Ok::<_, Failure>(ProbeResult::NotDone) };
    for (store, is_valid) in [(&world.store, true), (&other.store, false)] {
        let service = once.sqs(Key::pointer("/id"), in_transaction(store, handle)).probe(probe);
        assert_eq!(service.validate().is_ok(), is_valid, "also with a probe");
    }
}

/// A handler that wraps another handler.
#[derive(Clone)]
struct Wrapper<H>(H);

impl<H: Handler<Value, A>, A> Handler<Value, A> for Wrapper<H> {
    type Output = H::Output;

    async fn call(&self, payload: Value, context: RecordContext) -> Result<Self::Output, Failure> {
        self.0.call(payload, context).await
    }
}

/// The outer handler cannot provide a transaction.
async fn a_transaction_inside_another_handler_does_not_run<D: Database>() {
    let world = World::<D>::new().await;
    let handle = |_: Value, _: D::Transaction| async { Err::<(), _>(Failure::permanent("it runs")) };
    let service = world.once.sqs(Key::pointer("/id"), Wrapper(in_transaction(&world.store, handle)));
    let batch = sqs::batch([testing::record(&json!({ "id": "a" }))]);
    let processed = service.process(LambdaEvent::new(batch.delivery(1), Context::default())).await;
    assert_eq!(processed.outcomes(), [Ok(OutcomeKind::Failed(Verdict::Transient))]);
    assert_eq!(processed.reported().len(), 1);
}

/// Calls a handler that must not run, and returns its failure.
fn refused<H, A>(handler: H, order: Value, context: RecordContext) -> BoxFuture<'static, Failure>
where
    H: Handler<Value, A>,
    A: 'static,
{
    Box::pin(async move { handler.call(order, context).await.map(drop).expect_err("it is refused") })
}

/// The outer transaction continues, and is committed.
async fn a_transaction_inside_another_transaction_does_not_run<D: Database>() {
    let world = World::<D>::new().await;
    let ledger = Arc::new(Ledger::<D>::create().await);
    let inner = in_transaction(&world.store, |_: Value, _: D::Transaction| async { Ok::<_, Failure>("it runs") });
    let entered = Arc::clone(&ledger);
    let outer = move |order: Value, context: RecordContext, transaction: D::Transaction| {
        let (inner, ledger) = (inner.clone(), Arc::clone(&entered));
        async move {
            ledger.enter(&transaction, "before").await?;
            let failure = refused::<_, (Value, D::Transaction)>(inner, order, context).await;
            assert_eq!(failure.verdict(), Verdict::Transient);
            assert!(failure.to_string().contains("must be the outermost"), "{failure}");
            ledger.enter(&transaction, "after").await
        }
    };
    let service = world.once.sqs(Key::pointer("/id"), in_transaction(&world.store, outer));
    let batch = sqs::batch([testing::record(&json!({ "id": "a" }))]);
    let processed = service.process(LambdaEvent::new(batch.delivery(1), Context::default())).await;
    assert_eq!(processed.outcomes(), [Ok(OutcomeKind::Executed)]);
    let mut keys: Vec<String> = ledger.all_rows().await.into_iter().map(|(_, key)| key).collect();
    keys.sort();
    assert_eq!(keys, ["after", "before"]);
}

on_each_database!(
    a_transaction_inside_another_handler_does_not_run,
    a_transaction_inside_another_transaction_does_not_run,
    each_message_commits_its_own_writes,
    a_success_that_is_not_recorded_is_reported,
    a_service_on_another_store_is_refused,
);
