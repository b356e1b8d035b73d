//! Round trips of batches, counted on the wire.

use lambda_once::{
    Failure, Key,
    clock::{Clock, ManualClock},
    store::dynamodb::Calls,
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};

use super::{Backend, World};
use crate::support::stores::on_each_proxied_store;

/// Delivers 100 messages twice to a handler that returns immediately, and returns the round trips of each delivery. The
/// clock does not advance, because outcomes that have been due for some milliseconds are sent early, which would add
/// round trips on a slow machine.
async fn round_trips(backend: Backend) -> [usize; 2] {
    let world = World::new(backend).await;
    let clock = ManualClock::at(world.clock.now());
    let store = world.records.store_at(&world.url).await;
    store.warm_up().await.unwrap();
    let once = lambda_once::Idempotency::builder(store).clock(clock).scope("tests").disabled(false).build().unwrap();
    let service = once.sqs(Key::pointer("/id"), |_: Value| async { Ok::<_, Failure>(()) });
    let batch = sqs::batch((0..100).map(|id| testing::record(&json!({ "id": id }))));
    let mut counts = [0; 2];
    for count in &mut counts {
        world.proxy.reset();
        let processed = service.process(LambdaEvent::new(batch.delivery(1), Context::default())).await;
        assert!(processed.reported().is_empty());
        *count = world.proxy.round_trips();
    }
    counts
}

async fn of_a_batch_of_100_new_messages_and_of_its_duplicates(backend: Backend) {
    // On one thread, because a client that writes on another may send the first of two statements before it gets the
    // second.
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let counted = tokio::task::spawn_blocking(move || runtime().block_on(round_trips(backend)));
    let expected = match backend {
        // 25 keys share a request, and a second request reads duplicates.
        Backend::DynamoDb(Calls::Batched) => [8, 8],
        Backend::DynamoDb(_) => [200, 100],
        _ => [2, 1],
    };
    assert_eq!(counted.await.unwrap(), expected);
}

on_each_proxied_store!(of_a_batch_of_100_new_messages_and_of_its_duplicates);
