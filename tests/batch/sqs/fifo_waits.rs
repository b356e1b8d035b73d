//! Waits in a FIFO queue: for a turn, another's outcome, a lease, or a free handler.

use std::sync::{Arc, Mutex};

use lambda_once::{
    AfterUnknown, ErrorKind, Failure, Idempotency, Key, MemoryStore, MissingKey, OutcomeKind, Verdict,
    batch::{OnFailure, bulk},
    clock::{Clock, ManualClock, Timestamp},
    record::{Record, Status},
    store::fault::{Call, Fault},
};
use lambda_runtime::{Context, LambdaEvent};

use crate::world::{START, World, fifo, invoke, millis, order, seconds, work};

#[tokio::test(start_paused = true)]
async fn a_duplicate_of_a_held_back_message_is_held_back_too() {
    for store_batch in [1, 100] {
        let world = World::on(store_batch, |builder| builder);
        let failing = ("a", work("A", "transient", 50));
        let mut messages = vec![failing, ("a", order("K")), ("b", order("B")), ("b", order("K"))];
        messages.extend(["W", "X", "Y", "Z"].map(|key| ("b", order(key))));
        let reported = invoke(&world.service(), fifo(messages), world.left(seconds(60))).await.unwrap();
        assert_eq!(reported, ["m0", "m1", "m3", "m4", "m5", "m6", "m7"]);
        for key in ["K", "W", "X", "Y", "Z"] {
            assert_eq!(world.record(key).await, None, "the claim of {key} is released");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn messages_blocked_by_a_failure_do_not_wait_for_a_lease() {
    for (group, on_failure) in [("a", OnFailure::StopGroup), ("b", OnFailure::StopBatch)] {
        let world = World::new();
        world.put("H", Status::InProgress, "");
        let began = tokio::time::Instant::now();
        let event = fifo([("a", work("A", "transient", 10)), (group, order("H"))]);
        let service = world.service().on_failure(on_failure);
        let processed = world.process(&service, event).await;
        assert_eq!(processed.reported(), ["m0", "m1"]);
        let failed = OutcomeKind::Failed(Verdict::Transient);
        assert_eq!(processed.outcomes(), [Ok(failed), Ok(OutcomeKind::Skipped)], "{on_failure:?}");
        assert!(began.elapsed() < seconds(1), "{:?}", began.elapsed());
        assert_eq!(world.calls(Call::Claim).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_waited_for_once_no_time_is_left_to_run() {
    let world = World::new();
    world.put("H", Status::InProgress, "");
    let began = tokio::time::Instant::now();
    let event = fifo([("a", order("H")), ("b", work("B", "succeed", 9_000)), ("b", order("C"))]);
    let reported = invoke(&world.service(), event, world.left(seconds(15))).await.unwrap();
    assert_eq!((reported, began.elapsed()), (vec!["m0".to_owned(), "m2".to_owned()], millis(9_000)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_past_the_handler_deadline_after_a_wait() {
    let world = World::new();
    world.put("H", Status::InProgress, "");
    let clock = world.clock.clone();
    let service = world.service();
    let freeze = async {
        tokio::time::sleep(seconds(5)).await;
        clock.jump(seconds(30));
    };
    let invocation = invoke(&service, fifo([("a", order("H"))]), world.left(seconds(20)));
    let (reported, ()) = tokio::join!(invocation, freeze);
    assert_eq!(reported.unwrap(), ["m0"]);
    assert_eq!(world.calls(Call::Claim), [1]);
}

#[tokio::test(start_paused = true)]
async fn claims_behind_an_unrecorded_outcome_are_released_in_the_reserve() {
    let world = World::new();
    // Each silent call takes three seconds, and the last one takes the rest.
    (0..4).for_each(|_| world.store.next(Call::Settle, Fault::Silence));
    // At the handler deadline there is time to repeat the release. When the first call times out, no time is left.
    world.store.next(Call::Settle, Fault::Throttled);
    let event = fifo([("a", order("A")), ("a", order("B"))]);
    assert_eq!(invoke(&world.service(), event, world.left(seconds(10))).await.unwrap(), ["m1"]);
    assert_eq!(world.record("B").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_key_does_not_block_a_second_claim_before_it() {
    let world =
        World::with(|builder| builder.after_unknown(AfterUnknown::Refuse).missing_key(MissingKey::RunUnprotected));
    world.put("H", Status::InProgress, "");
    let service = world.service().concurrency(1);
    let event = fifo([("a", order("H")), ("a", order(""))]);
    let completed_by_its_holder = async {
        tokio::time::sleep(seconds(5)).await;
        world.put("H", Status::Completed, "1");
    };
    let (reported, ()) = tokio::join!(invoke(&service, event, world.left(seconds(60))), completed_by_its_holder);
    assert!(reported.unwrap().is_empty());
    assert_eq!(world.journal.keys(), [""]);
}

#[tokio::test(start_paused = true)]
async fn a_held_up_message_still_counts_as_the_first_with_its_key() {
    for failing in [serde_json::json!("not an order"), work("A", "transient", 50)] {
        let world = World::new();
        let event = fifo([("a", failing), ("a", order("K")), ("b", order("K"))]);
        assert_eq!(invoke(&world.service(), event, world.left(seconds(60))).await.unwrap(), ["m0", "m1", "m2"]);
    }
}

#[tokio::test(start_paused = true)]
async fn under_refuse_groups_run_side_by_side() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
    let slow = ["a0", "a1", "a2"].map(|key| ("a", work(key, "succeed", 1_000)));
    let fast = ["b0", "b1", "b2"].map(|key| ("b", work(key, "succeed", 10)));
    let event = fifo(slow.into_iter().chain(fast));
    assert!(invoke(&world.service(), event, world.left(seconds(60))).await.unwrap().is_empty());
    assert_eq!(world.journal.keys(), ["a0", "b0", "b1", "b2", "a1", "a2"]);
}

#[tokio::test(start_paused = true)]
async fn under_refuse_a_claim_after_a_wait_waits_for_a_free_handler() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
    world.put("H", Status::InProgress, "");
    let service = world.service().concurrency(1);
    let event = fifo([("a", order("H")), ("b", work("B", "succeed", 20_000))]);
    let released_by_its_holder = async {
        tokio::time::sleep(seconds(5)).await;
        world.memory.remove(&world.hash("H"));
    };
    let (reported, ()) = tokio::join!(invoke(&service, event, world.left(seconds(60))), released_by_its_holder);
    assert!(reported.unwrap().is_empty());
    assert!(world.journal.most_open() <= 1, "{} open", world.journal.most_open());
    assert_eq!(world.journal.keys(), ["B", "H"]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_the_batch_leaves_later_records_unclaimed() {
    let world = World::new();
    let service = world.service().on_failure(OnFailure::StopBatch);
    let event = fifo([("a", serde_json::json!("not an order")), ("b", order("B"))]);
    let processed = service.process(LambdaEvent::new(event, world.left(seconds(60)))).await;
    assert_eq!(processed.reported(), ["m0", "m1"]);
    assert_eq!(processed.outcomes(), [Err(ErrorKind::Payload), Ok(OutcomeKind::Skipped)], "there was time for it");
    assert!(world.store.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn records_due_beside_one_that_stops_the_batch_at_once_do_not_begin() {
    for most in [1, 3] {
        let (world, begun) = (World::new(), Arc::new(Mutex::new(Vec::new())));
        let notes = Arc::clone(&begun);
        let handle = move |jobs: Vec<serde_json::Value>| {
            notes.lock().unwrap().extend(jobs.iter().map(|job| job["order_id"].as_str().unwrap().to_owned()));
            std::future::ready(jobs.iter().map(|_| Err::<(), _>(Failure::transient("no"))).collect::<Vec<_>>())
        };
        let service = world.once.sqs(Key::pointer("/order_id"), bulk(most, handle)).on_failure(OnFailure::StopBatch);
        let event = fifo(["a", "b", "c", "d"].map(|group| (group, order(group))));
        let processed = service.concurrency(4).process(LambdaEvent::new(event, world.left(seconds(60)))).await;
        assert_eq!(begun.lock().unwrap().len(), most, "of those that were to begin at the same time");
        let skipped = processed.outcomes().into_iter().filter(|outcome| *outcome == Ok(OutcomeKind::Skipped)).count();
        assert_eq!((skipped, processed.reported().len(), world.journal.held()), (4 - most, 4, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_due_beside_a_failure_that_stops_the_batch_does_not_begin() {
    // Two end at the same time. If the first one is recorded immediately, that must not let the third one begin.
    for acts in [["succeed", "transient"], ["transient", "succeed"]] {
        let world = World::on(1, |builder| builder);
        let service = world.service().on_failure(OnFailure::StopBatch).concurrency(2);
        let event = fifo([("a", work("A", acts[0], 10)), ("b", work("B", acts[1], 10)), ("c", order("C"))]);
        let processed = world.process(&service, event).await;
        assert_eq!(processed.outcomes()[2], Ok(OutcomeKind::Skipped), "{acts:?}");
        assert_eq!(world.journal.keys(), ["A", "B"], "{acts:?}");
    }
}

/// A clock that advances by a millisecond on each read, so that no two times are the same.
#[derive(Clone, Debug)]
struct Ticking(ManualClock);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        self.0.advance(millis(1));
        self.0.now()
    }
}

// Tests L6.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_between_two_readings_of_the_clock_is_not_missed() {
    for lease in 0..40 {
        let clock = Ticking(ManualClock::at(START));
        let store = MemoryStore::with_clock(clock.0.clone());
        let builder = Idempotency::builder(store.clone()).clock(clock.clone()).skew_margin(millis(0));
        let once = builder.named("tests").disabled(false).build().unwrap();
        let record = Record {
            attempt: 1,
            lease_until: Some(START.after(millis(lease))),
            expiration: Some(START.after(seconds(3_600)).seconds_rounded_up()),
            ..Record::new(Status::InProgress)
        };
        store.insert(once.key_hash("sqs", "H").unwrap(), record);
        let service = once.sqs(Key::pointer("/order_id"), |_: serde_json::Value| async { Ok::<_, Failure>(()) });
        let reported = invoke(&service, fifo([("a", order("H"))]), Context::default()).await.unwrap();
        assert!(reported.is_empty(), "a lease that ends after {lease} ms");
    }
}
