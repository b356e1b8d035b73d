//! The store calls that a local cache avoids.

use lambda_once::{
    CachedStore, Idempotency,
    store::fault::{Call, Fault},
};

use crate::world::{World, ids, order, orders, seconds, work};

fn cached() -> World {
    let mut world = World::new();
    let store = CachedStore::new(world.store.clone()).with_clock(world.clock.clone());
    let builder = Idempotency::builder(store).clock(world.clock.clone()).scope("tests").named("tests").disabled(false);
    world.once = builder.build().unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn cached_duplicates_need_no_store_call() {
    let world = cached();
    // The second delivery gets the outcomes of the first.
    for _ in 0..2 {
        assert_eq!(world.deliver(orders(10, "succeed", 5)).await, [""; 0]);
    }
    let calls = world.store.calls();
    for _ in 0..3 {
        assert_eq!(world.deliver(orders(10, "succeed", 5)).await, [""; 0]);
    }
    assert_eq!(world.store.calls(), calls);
    assert_eq!(world.journal.runs().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn cached_failures_and_mismatches_need_no_store_call() {
    let world = cached();
    for _ in 0..2 {
        assert_eq!(world.deliver([work("a", "permanent", 0), order("b")]).await, ["m0"]);
    }
    let calls = world.store.calls();
    assert_eq!(world.deliver([work("a", "permanent", 0), work("b", "succeed", 1)]).await, ["m0", "m1"]);
    assert_eq!(world.store.calls(), calls);
    assert_eq!(world.journal.runs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn cached_outcomes_are_replayed_while_the_store_is_down() {
    let world = cached();
    for _ in 0..2 {
        world.deliver(orders(3, "succeed", 0)).await;
    }
    world.store.always(Call::Claim, Fault::ErrorBefore);
    assert_eq!(world.deliver(orders(5, "succeed", 0)).await, ids(3..5));
    tokio::time::advance(seconds(61)).await;
    assert_eq!(world.deliver(orders(3, "succeed", 0)).await, ids(0..3), "an entry is too old after a minute");
}
