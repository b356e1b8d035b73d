//! No handler starts that cannot end in time, and none runs past the handler deadline.

use lambda_once::{
    AfterUnknown, Failure, Key, OutcomeKind,
    clock::{Clock, Timestamp},
    record::Status,
    store::fault::{Call, Fault},
};
use lambda_runtime::Context;
use serde_json::{Value, json};

use crate::world::{START, World, batch, ids, invoke, millis, order, orders, reported, seconds, work};

/// The handler deadline: with one second left, the reserve is half of it.
const STOP: Timestamp = Timestamp::from_millis(START.as_millis() + 500);

// Tests B5.
#[tokio::test(start_paused = true)]
async fn with_a_second_left_nothing_is_started_that_cannot_finish() {
    for concurrency in [1, 2] {
        let world = World::new();
        let service = world.service().concurrency(concurrency);
        let reported = invoke(&service, batch(orders(6, "succeed", 300)), world.left(seconds(1))).await.unwrap();
        assert_eq!(reported, ids(concurrency..6));
        let runs = world.journal.runs();
        assert_eq!(runs.len(), concurrency);
        assert!(runs.iter().all(|run| run.succeeded && run.ended <= Some(STOP)));
        // The claims of records that were not started are released.
        assert_eq!(world.journal.held(), 0);
        for i in concurrency..6 {
            assert_eq!(world.status(&format!("order-{i}")).await, None);
        }
        assert!(world.clock.now() <= STOP);
    }
}

#[tokio::test(start_paused = true)]
async fn short_handlers_keep_starting_until_the_handler_deadline() {
    let world = World::new();
    let service = world.service().concurrency(1);
    let reported = invoke(&service, batch(orders(20, "succeed", 60)), world.left(seconds(1))).await.unwrap();
    assert_eq!(reported, ids(8..20), "480 ms are used, and 60 more are not left");
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_claimed_once_no_record_can_end_in_time() {
    let world = World::on(4, |builder| builder);
    let service = world.service().concurrency(1);
    let bodies = orders(12, "succeed", 60).into_iter().chain(vec![json!("no order"); 8]);
    let processed = world.process_within(&service, batch(bodies), seconds(1)).await;
    assert_eq!(reported(&processed), ids(8..20));
    assert_eq!(world.calls(Call::Claim), [4; 3], "the last call was made while the eighth ran");
    assert_eq!(processed.outcomes()[8..], [Ok(OutcomeKind::NotStarted); 12], "the last eight were not decoded");
}

// Tests L7, B5, P7.
#[tokio::test(start_paused = true)]
async fn a_record_hung_at_the_handler_deadline_is_reported_and_stays_claimed() {
    let world = World::new();
    let service = world.service().concurrency(2);
    let bodies = [work("A", "hang", 0), work("B", "succeed", 400), order("C"), work("D", "succeed", 0)];
    let reported = invoke(&service, batch(bodies), world.left(seconds(1))).await.unwrap();
    assert_eq!(reported, ["m0", "m2", "m3"]);
    assert_eq!(world.journal.keys(), ["A", "B"]);
    assert_eq!(world.journal.runs()[0].ended, Some(STOP));
    assert_eq!(world.status("A").await, Some(Status::InProgress));
    assert_eq!(world.status("B").await, Some(Status::Completed));
    assert_eq!(world.status("C").await, None);
    assert_eq!(world.status("D").await, None);
}

// Tests B5.
#[tokio::test(start_paused = true)]
async fn every_slot_taken_by_a_hang_leaves_the_rest_free() {
    let world = World::new();
    let service = world.service().concurrency(3);
    let reported = invoke(&service, batch(orders(20, "hang", 0)), world.left(seconds(9))).await.unwrap();
    assert_eq!(reported, ids(0..20));
    assert_eq!(world.journal.keys().len(), 3);
    assert_eq!(world.records().await.len(), 3);
}

// Tests B5.
#[tokio::test(start_paused = true)]
async fn an_expected_duration_counts_from_the_first_record_on() {
    let world = World::new();
    let once = world.service().expected_duration(millis(300)).concurrency(1);
    let reported = invoke(&once, batch(orders(3, "succeed", 201)), world.left(seconds(1))).await.unwrap();
    assert_eq!(reported, ids(1..3));
    assert_eq!(world.records().await.len(), 1);

    let world = World::new();
    let fits = world.service().expected_duration(millis(500));
    let bodies = batch(orders(3, "succeed", 10));
    let reported = invoke(&fits.concurrency(3), bodies, world.left(seconds(1))).await.unwrap();
    assert!(reported.is_empty(), "{reported:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expected_duration_overrules_a_slow_first_record() {
    let world = World::new();
    let service = world.service().concurrency(1).expected_duration(millis(50));
    let bodies = [work("A", "succeed", 300), work("B", "succeed", 50), work("C", "succeed", 50)];
    assert!(invoke(&service, batch(bodies), world.left(seconds(1))).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_invocation_in_which_no_record_could_begin_fails_and_claims_nothing() {
    let world = World::new();
    let too_long = world.service().expected_duration(millis(501));
    for (service, left) in [(world.service(), millis(500)), (too_long, seconds(1))] {
        let error = invoke(&service, batch(orders(3, "succeed", 0)), world.left(left)).await.unwrap_err();
        assert_eq!(error.kind(), lambda_once::ErrorKind::Config);
        assert!(world.store.calls().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_without_records_succeeds_although_no_record_could_begin() {
    let world = World::new();
    let too_long = world.service().expected_duration(millis(501));
    for (service, left) in [(world.service(), millis(500)), (too_long, seconds(1))] {
        let reported = invoke(&service, batch([""; 0]), world.left(left)).await.unwrap();
        assert_eq!(reported, [""; 0]);
        assert!(world.store.calls().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn claims_granted_after_the_handler_deadline_are_released() {
    let world = World::new();
    world.store.next(Call::Claim, Fault::Delay(millis(600)));
    let reported = invoke(&world.service(), batch(orders(3, "succeed", 0)), world.left(seconds(1))).await.unwrap();
    assert_eq!(reported, ids(0..3));
    assert!(world.journal.keys().is_empty());
    assert!(world.records().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_took_over_and_was_not_started_is_handed_back() {
    let world = World::new();
    world.abandon("B");
    let service = world.service().concurrency(1);
    let bodies = batch([work("A", "succeed", 300), order("B")]);
    assert_eq!(invoke(&service, bodies, world.left(seconds(1))).await.unwrap(), ["m1"]);
    let record = world.record("B").await.unwrap();
    assert_eq!((record.status, record.owner, record.attempt), (Status::InProgress, None, 2));
}

// Tests L2.
#[tokio::test(start_paused = true)]
async fn a_past_deadline_means_the_configured_lease_and_a_hang_is_cancelled() {
    for deadline in [0, 600_000] {
        for (lease, stop) in [(None, millis(28_500)), (Some(seconds(10)), millis(9_500))] {
            let world = World::with(|builder| match lease {
                Some(lease) => builder.lease(lease),
                None => builder,
            });
            let mut context = Context::default();
            context.deadline = deadline;
            let reported = invoke(&world.service(), batch([work("A", "hang", 0), order("B")]), context).await.unwrap();
            assert_eq!(reported, ["m0"]);
            let lease_until = world.record("A").await.unwrap().lease_until;
            assert_eq!(lease_until, Some(START.after(lease.unwrap_or(seconds(30)))));
            assert_eq!(world.journal.runs()[0].ended, Some(START.after(stop)));
        }
    }
}

// Tests L1.
#[tokio::test(start_paused = true)]
async fn the_lease_ends_a_second_after_the_deadline() {
    let world = World::new();
    let context = world.left(seconds(20));
    let deadline = context.deadline;
    invoke(&world.service(), batch([work("A", "unknown", 700)]), context).await.unwrap();
    assert_eq!(world.record("A").await.unwrap().lease_until.unwrap().as_millis(), deadline + 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_configured_reserve_moves_the_handler_deadline() {
    let world = World::with(|builder| builder.reserve(seconds(5)));
    invoke(&world.service(), batch([work("A", "hang", 0)]), world.left(seconds(20))).await.unwrap();
    assert_eq!(world.journal.runs()[0].ended, Some(START.after(seconds(15))));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ends_just_before_the_handler_deadline_is_recorded() {
    let world = World::new();
    world.store.next(Call::Settle, Fault::Throttled);
    let reported = invoke(&world.service(), batch([work("A", "succeed", 499)]), world.left(seconds(1))).await.unwrap();
    assert!(reported.is_empty());
    assert_eq!(world.status("A").await, Some(Status::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_blocks_past_its_deadline_leaves_unstarted_keys_free() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        let world = World::with(|builder| builder.after_unknown(policy));
        let clock = world.clock.clone();
        let service = world.once.sqs(Key::pointer("/order_id"), move |job: Value| {
            if job["order_id"] == "order-0" {
                clock.jump(seconds(10));
            }
            async { Ok::<_, Failure>(()) }
        });
        let reported = invoke(&service, batch(orders(5, "succeed", 0)), world.left(seconds(9))).await.unwrap();
        assert_eq!(reported, ids(1..5), "{policy:?}");
        for i in 1..5 {
            assert_eq!(world.status(&format!("order-{i}")).await, None, "{policy:?}: order {i} never began");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn claims_not_released_at_the_handler_deadline_delay_no_response() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::Silence);
    let service = world.service().concurrency(1);
    let left = seconds(10);
    let deadline = world.clock.now().after(left);
    let reported = invoke(&service, batch(orders(5, "hang", 0)), world.left(left)).await.unwrap();
    assert_eq!(reported, ids(0..5));
    assert!(world.clock.now() < deadline);
}
