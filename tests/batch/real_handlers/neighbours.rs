//! Records beside one with an error. None of them waits, is cancelled or is lost because of it (B1).

use std::time::Duration;

use lambda_once::{
    AfterUnknown, ErrorKind, Failure, Interruption, Key, OutcomeKind,
    batch::bulk,
    clock::Clock,
    record::Status,
    store::fault::{Call, Fault},
};
use lambda_runtime::LambdaEvent;
use serde_json::Value;

use crate::{
    sqs::dead_letters::Letters,
    world::{START, World, batch, fifo, ids, millis, order, orders, reported, seconds},
};

const CUT_OFF: OutcomeKind = OutcomeKind::Interrupted(Interruption::Cancelled);

/// Applies these faults to all claims and reads after the calls that have begun.
async fn trouble(world: &World, claims: Fault, reads: Fault) {
    world.store.always(Call::Claim, claims);
    world.store.always(Call::Read, reads);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_results_are_lost_does_not_stop_the_others_of_its_call() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        for reads in [Fault::Throttled, Fault::Silence] {
            let world = World::with(|builder| builder.after_unknown(policy));
            // The first key is applied without a response. The claim is repeated, and read, without success.
            world.store.next(Call::Claim, Fault::ErrorAfter);
            let service = world.service();
            let event = LambdaEvent::new(batch(orders(5, "succeed", 10)), world.left(seconds(20)));
            let processed = service.process(event);
            let (processed, ()) = tokio::join!(processed, trouble(&world, Fault::ErrorAfter, reads));
            let lost = Err(ErrorKind::Unavailable);
            // Under `Refuse`, the first claim is made for a single record.
            let done = processed.outcomes().iter().filter(|outcome| **outcome == Ok(OutcomeKind::Executed)).count();
            let expected = if policy == AfterUnknown::Rerun { 4 } else { 0 };
            assert_eq!((processed.outcomes()[0], done), (lost, expected), "{policy:?} {reads:?}");
            assert!(world.clock.now() < START.after(seconds(20)), "{policy:?} {reads:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_known_to_stand_is_released_although_others_cannot_be_read() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Probe));
    for _ in 0..2 {
        world.store.next(Call::Claim, Fault::ErrorAfter);
    }
    // The first read finds the first claim. The second read fails.
    world.store.next(Call::Read, Fault::Delay(Duration::ZERO));
    let probe = |_: Value, _| async { Ok::<_, Failure>(lambda_once::ProbeResult::<()>::NotDone) };
    let service = world.once.sqs(
        Key::pointer("/order_id"),
        bulk(2, |jobs: Vec<Value>| async move { jobs.iter().map(|_| Ok::<_, Failure>(())).collect() }),
    );
    let event = LambdaEvent::new(batch(orders(2, "succeed", 0)), world.left(seconds(20)));
    let service = service.probe(probe);
    let after_a_while = async {
        trouble(&world, Fault::ErrorAfter, Fault::Throttled).await;
        tokio::time::sleep(seconds(5)).await;
        assert!(world.record("order-0").await.is_none() && world.record("order-1").await.is_some());
    };
    let (processed, ()) = tokio::join!(service.process(event), after_a_while);
    assert_eq!(reported(&processed), ids(0..2));
}

struct Unfinished(bool);

impl Drop for Unfinished {
    fn drop(&mut self) {
        assert!(self.0, "dropped before it was done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bulk_handler_that_panics_when_cancelled_fails_only_its_own_records() {
    let world = World::new();
    let handle = |jobs: Vec<Value>| async move {
        let mut work = Unfinished(false);
        if jobs.iter().any(|job| job["order_id"] == "order-0") {
            std::future::pending::<()>().await;
        }
        work.0 = true;
        jobs.iter().map(|_| Ok::<_, Failure>(())).collect()
    };
    let service = world.once.sqs(Key::pointer("/order_id"), bulk(1, handle));
    let event = LambdaEvent::new(batch(orders(3, "succeed", 0)), world.left(seconds(5)));
    let processed = service.process(event).await;
    assert_eq!(reported(&processed), ids(0..1));
    let service = world.once.named("together").sqs(Key::pointer("/order_id"), bulk(2, handle));
    let event = LambdaEvent::new(batch(orders(4, "succeed", 0)), world.left(seconds(5)));
    let processed = service.process(event).await;
    assert_eq!(reported(&processed), ids(0..2), "it panicked in the drop, and no other is touched");
}

#[tokio::test(start_paused = true)]
async fn a_head_cancelled_early_cancels_no_other_group_of_its_bulk_call() {
    let (world, letters) = (World::new(), Letters::new());
    let handle = |jobs: Vec<Value>| async move {
        tokio::time::sleep(seconds(30)).await;
        jobs.iter().map(|_| Ok::<_, Failure>(())).collect()
    };
    let service = world.once.sqs(Key::pointer("/order_id"), bulk(10, handle));
    let service = service.dead_letters(letters).max_receive_count(3).last_attempt_timeout(seconds(20));
    let mut event = fifo([("a", order("A")), ("a", order("A2")), ("b", order("B")), ("c", order("C"))]);
    event.records[0].attributes.insert("ApproximateReceiveCount".to_owned(), "3".to_owned());
    let processed = service.process(LambdaEvent::new(event, world.left(seconds(300)))).await;
    let executed = Ok(OutcomeKind::Executed);
    assert_eq!(processed.outcomes(), [Ok(CUT_OFF), executed, executed, executed]);
    assert_eq!(world.status("A").await, Some(Status::InProgress));
}

#[tokio::test(start_paused = true)]
async fn a_key_without_a_known_lease_is_not_awaited_past_the_handler_deadline() {
    let world = World::new();
    world.put("A", Status::InProgress, "");
    let hash = world.hash("A");
    let foreign = async {
        // A library without leases rewrites its record.
        tokio::time::sleep(millis(20)).await;
        let mut record = world.memory.remove(&hash).unwrap();
        record.lease_until = None;
        world.memory.insert(hash, record);
    };
    let service = world.service();
    let event = LambdaEvent::new(fifo([("a", order("A"))]), world.left(seconds(14)));
    let (processed, ()) = tokio::join!(service.process(event), foreign);
    assert_eq!(processed.outcomes(), [Ok(OutcomeKind::InProgress)]);
    assert!(world.clock.now() < START.after(seconds(14)), "{:?}", world.clock.now().since(START));
}

#[tokio::test(start_paused = true)]
async fn a_last_attempt_timeout_of_no_time_is_refused() {
    for none in [Duration::ZERO, Duration::from_micros(999)] {
        let error = World::new().service().last_attempt_timeout(none).validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
    }
    assert!(World::new().service().last_attempt_timeout(millis(1)).validate().is_ok());
}
