//! Messages of an SQS queue, including a whole batch.

use lambda_once::{
    Failure, Key, OutcomeKind, Verdict,
    batch::{BatchService, Handler, sqs::Sqs},
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};

use super::{Layer, World};
use crate::support::stores::{Backend, on_each_store};

struct Queue<H, Args>(BatchService<Sqs, H, Value, Args>);

impl<H: Handler<Value, Args>, Args: 'static> Queue<H, Args> {
    async fn outcomes(&self, orders: impl IntoIterator<Item = Value>) -> Vec<OutcomeKind> {
        let batch = sqs::batch(orders.into_iter().map(|order| testing::record(&order)));
        // The deadline is unknown, so the claims have the default lease.
        let processed = self.0.process(LambdaEvent::new(batch.delivery(1), Context::default())).await;
        let outcomes = processed.outcomes();
        let unfinished = outcomes.iter().filter(|outcome| !outcome.is_ok_and(OutcomeKind::is_done)).count();
        assert_eq!(processed.reported().len(), unfinished, "what is not done is reported");
        outcomes.into_iter().map(Result::unwrap).collect()
    }
}

impl<H: Handler<Value, Args>, Args: 'static> Layer for Queue<H, Args> {
    const LAPSED: OutcomeKind = OutcomeKind::Abandoned;

    async fn deliver(&self, id: &str, cents: u32) -> OutcomeKind {
        self.outcomes([json!({ "id": id, "cents": cents })]).await[0]
    }
}

async fn messages(backend: Backend) {
    let world = World::new(backend).await;
    let handler = world.handler.clone();
    let handle = move |_: Value| {
        let handler = handler.clone();
        async move { handler.run().await }
    };
    world.assert_promises(&Queue(world.engine().sqs(Key::pointer("/id"), handle))).await;
}

async fn a_batch_of_new_done_failing_and_abused_keys(backend: Backend) {
    use OutcomeKind::{Executed, Failed, Mismatch, Replayed};
    let world = World::new(backend).await;
    let handler = world.handler.clone();
    let handle = move |order: Value| {
        let handler = handler.clone();
        async move {
            if order["cents"] == 0 {
                return Err(Failure::transient("nothing to pay"));
            }
            handler.run().await
        }
    };
    let queue = Queue(world.engine().sqs(Key::pointer("/id"), handle));
    let order = |id: u32, cents: u32| json!({ "id": id, "cents": cents });
    assert_eq!(queue.outcomes((0..20).map(|id| order(id, 1))).await, [Executed; 20]);
    let mixed = (10..40).map(|id| order(id, if id % 10 == 3 { 0 } else { 1 }));
    let expected = (10..40).map(|id| match id {
        13 => Mismatch,
        23 | 33 => Failed(Verdict::Transient),
        ..20 => Replayed,
        _ => Executed,
    });
    assert_eq!(queue.outcomes(mixed).await, expected.collect::<Vec<_>>());
    assert_eq!(world.handler.runs(), 38);
}

on_each_store!(messages, a_batch_of_new_done_failing_and_abused_keys);
