//! A store that stops responding, or loses its responses, during a batch.

use lambda_once::{
    AfterUnknown, Failure, Key, OutcomeKind,
    batch::{BatchService, Handler, sqs::Sqs},
    clock::Clock,
    record::Status,
    store::fault::{Call, Fault},
};
use lambda_runtime::LambdaEvent;
use serde_json::Value;

use crate::{
    support::clock::block,
    world::{START, World, batch, fifo, ids, millis, order, orders, reported, seconds},
};

/// Returns a service whose handlers block their thread for this many milliseconds.
fn blocking(world: &World, time: u64) -> BatchService<Sqs, impl Handler<Value, (Value,)> + use<>, Value, (Value,)> {
    world.once.sqs(Key::pointer("/order_id"), move |_: Value| async move {
        block(millis(time));
        Ok::<_, Failure>(())
    })
}

#[tokio::test(start_paused = true)]
async fn with_a_late_block_and_a_silent_store_the_deadline_is_still_kept() {
    for time in [9_600, 9_800, 9_910] {
        let world = World::new();
        world.store.always(Call::Settle, Fault::Silence);
        let event = LambdaEvent::new(batch([order("A")]), world.left(seconds(10)));
        let processed = blocking(&world, time).process(event).await;
        let answered = world.clock.now().since(START);
        assert!(answered < seconds(10), "blocked for {time} ms: answered at {answered:?}");
        assert_eq!(processed.outcomes(), [Ok(OutcomeKind::Unrecorded)]);
        assert!(reported(&processed).is_empty(), "it is done");
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_shortest_reserve_a_response_comes_before_the_deadline() {
    for time in [9_750, 9_850, 9_910] {
        let world = World::with(|builder| builder.reserve(millis(200)));
        world.store.always(Call::Settle, Fault::Silence);
        let event = LambdaEvent::new(batch([order("A")]), world.left(seconds(10)));
        let processed = blocking(&world, time).process(event).await;
        let answered = world.clock.now().since(START);
        assert!(answered < seconds(10), "blocked for {time} ms: answered at {answered:?}");
        assert!(reported(&processed).is_empty(), "it is done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_call_that_never_returns_does_not_keep_a_batch_from_running() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        for event in [batch(orders(5, "succeed", 10)), fifo([("a", order("A")), ("a", order("B"))])] {
            let world = World::with(|builder| builder.after_unknown(policy));
            world.store.next(Call::Claim, Fault::Silence);
            let processed = world.process(&world.service(), event).await;
            assert!(reported(&processed).is_empty(), "{policy:?}: {:?}", processed.outcomes());
            assert!(processed.outcomes().into_iter().all(|outcome| outcome == Ok(OutcomeKind::Executed)));
            assert!(world.clock.now() < START.after(seconds(5)), "{:?}", world.clock.now().since(START));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_settle_call_that_never_returns_does_not_leave_a_batch_unrecorded() {
    for event in [batch(orders(5, "succeed", 10)), fifo([("a", order("A")), ("a", order("B"))])] {
        let world = World::new();
        world.store.next(Call::Settle, Fault::Silence);
        let processed = world.process(&world.service(), event).await;
        assert!(processed.outcomes().into_iter().all(|outcome| outcome == Ok(OutcomeKind::Executed)));
        assert!(world.clock.now() < START.after(seconds(5)), "{:?}", world.clock.now().since(START));
        let records = world.records().await;
        assert!(records.iter().all(|record| record.status == Status::Completed));
    }
}

#[tokio::test(start_paused = true)]
async fn claims_with_lost_results_are_withdrawn_despite_store_errors() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        for fault in [Fault::Throttled, Fault::Silence] {
            let world = World::with(|builder| builder.after_unknown(policy));
            world.store.always(Call::Claim, Fault::ErrorAfter);
            world.store.next(Call::Read, fault);
            let processed = world.process(&world.service(), batch(orders(3, "succeed", 0))).await;
            assert_eq!(reported(&processed), ids(0..3));
            assert!(world.journal.keys().is_empty());
            assert!(world.records().await.is_empty(), "{policy:?}, {fault:?}: nothing ran, and the keys are free");
        }
    }
}
