//! The ends of operations, and how their claims are settled.

use std::time::Duration;

use lambda_once::{
    AfterUnknown, Classify, Failure, Interruption, OnPanic, Outcome, Verdict,
    record::Status,
    store::fault::{Call, Fault},
};

use tracing::Level;

use super::{CHARGE, KEY, LEASE, World, assert_outcome, support::collector::Collector};

// Tests S4.
#[tokio::test(start_paused = true)]
async fn a_completion_that_is_throttled_for_a_while_is_recorded() {
    let world = World::new();
    for _ in 0..5 {
        world.store.next(Call::Settle, Fault::Throttled);
    }
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_eq!(world.count(Call::Settle), 6);
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

// Tests S4.
#[tokio::test(start_paused = true)]
async fn a_completion_that_is_denied_for_a_while_is_recorded() {
    let world = World::new();
    (0..5).for_each(|_| world.store.next(Call::Settle, Fault::AccessDenied));
    let (collector, guard) = Collector::install();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    drop(guard);
    assert_eq!(world.count(Call::Settle), 6);
    let lines = collector.lines();
    let warnings: Vec<_> = lines.iter().filter(|line| line.level <= Level::WARN).collect();
    assert_eq!(warnings.len(), 1, "at the first only: {warnings:?}");
    assert_eq!(warnings[0].get("settle"), "complete");
    assert!(warnings[0].get("error").contains("access_denied"));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

// Tests S2.
#[tokio::test(start_paused = true)]
async fn a_completion_whose_response_was_lost_is_recorded() {
    let world = World::new();
    world.store.next(Call::Settle, Fault::ErrorAfter);
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

// Tests S4.
#[tokio::test(start_paused = true)]
async fn a_completion_that_fails_permanently_keeps_the_claim() {
    for fault in [Fault::Throttled, Fault::ErrorBefore, Fault::AccessDenied, Fault::TableMissing] {
        let world = World::new();
        world.store.always(Call::Settle, fault);
        assert_outcome!(world.run().await, Ok(Outcome::Unrecorded(1)));
        world.store.heal();
        if fault == Fault::TableMissing {
            assert_eq!(world.count(Call::Settle), 1, "neither retried nor released");
        }
        assert_eq!(world.record().await.unwrap().status, Status::InProgress, "{fault:?}");
        assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
        world.lapse().await;
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(2)));
    }
}

// Tests S4.
#[tokio::test(start_paused = true)]
async fn a_completion_is_tried_until_shortly_before_the_end_of_the_lease() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::Throttled);
    let begun = tokio::time::Instant::now();
    assert_outcome!(world.run().await, Ok(Outcome::Unrecorded(1)));
    assert!((Duration::from_secs(25)..LEASE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_silent_does_not_hold_a_run_beyond_its_time() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::Silence);
    let begun = tokio::time::Instant::now();
    assert_outcome!(world.run().await, Ok(Outcome::Unrecorded(1)));
    assert!(begun.elapsed() < LEASE);
    world.store.heal();
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn where_takeover_is_refused_an_unrecorded_operation_is_abandoned() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
    world.store.always(Call::Settle, Fault::Throttled);
    assert_outcome!(world.run().await, Ok(Outcome::Unrecorded(1)));
    world.store.heal();
    world.lapse().await;
    assert_outcome!(world.run().await, Ok(Outcome::Abandoned { .. }));
}

// Tests S9, P14.
#[tokio::test(start_paused = true)]
async fn a_transient_failure_frees_the_key_at_once() {
    let world = World::new();
    let plain = world.once.operation(CHARGE, KEY).run(|| async { Err::<u32, _>(std::io::Error::other("try again")) });
    assert_outcome!(plain.await, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
    assert_eq!((world.calls(), world.record().await), (vec![Call::Claim, Call::Settle], None));
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
}

// Tests P14.
#[tokio::test(start_paused = true)]
async fn under_refuse_a_transient_failure_frees_the_key_too() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
    let plain = world.once.operation(CHARGE, KEY).run(|| async { Err::<u32, _>(std::io::Error::other("try again")) });
    assert_outcome!(plain.await, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
    assert_eq!(world.record().await, None);
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_response_was_lost_frees_the_key() {
    let world = World::new();
    world.store.next(Call::Settle, Fault::ErrorAfter);
    assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_released_ends_with_its_lease() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::AccessDenied);
    assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
    world.store.heal();
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse().await;
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

// Tests S9.
#[tokio::test(start_paused = true)]
async fn a_failure_after_a_takeover_is_handed_back_and_the_next_run_takes_over() {
    let world = World::new();
    world.abandon().await;
    world.lapse().await;
    world.store.next(Call::Settle, Fault::ErrorAfter);
    assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
    assert_eq!(world.record().await.unwrap().owner, None);
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
    assert_eq!(world.record().await.unwrap().attempt, 3);
}

// Tests C4.
#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_remembered_and_replayed_with_its_message() {
    let world = World::new();
    let failing = world.once.operation(CHARGE, KEY).run(|| async { "x".parse::<u32>().permanent() });
    assert_outcome!(failing.await, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Permanent);
    let replayed = world.run().await;
    assert_outcome!(
        replayed,
        Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some("invalid digit found in string")
    );
    assert_eq!(world.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_whose_response_was_lost_is_remembered() {
    let world = World::new();
    world.store.next(Call::Settle, Fault::ErrorAfter);
    assert_outcome!(world.run_to(Err(Failure::permanent("no such card"))).await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.run().await, Ok(Outcome::ReplayedFailure(_)));
}

// Tests P10, P13.
#[tokio::test(start_paused = true)]
async fn an_unknown_failure_keeps_the_claim() {
    let world = World::new();
    world.abandon().await;
    assert_eq!(world.calls(), [Call::Claim]);
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse().await;
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

// Tests P13.
#[tokio::test(start_paused = true)]
async fn a_panic_keeps_the_claim() {
    let world = World::new();
    let panicking = world.once.operation(CHARGE, KEY).run(|| async { panic!("oh") as Result<u32, Failure> });
    assert_outcome!(panicking.await, Ok(Outcome::Interrupted(Interruption::Panicked)));
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse().await;
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_first_await_is_caught_too() {
    let world = World::new();
    #[expect(unreachable_code, reason = "the closure panics before it makes a future")]
    let panicking = world.once.operation(CHARGE, KEY).run(|| {
        panic!("oh");
        world.work()
    });
    assert_outcome!(panicking.await, Ok(Outcome::Interrupted(Interruption::Panicked)));
}

// Tests P13.
#[tokio::test(start_paused = true)]
async fn a_panic_that_is_set_to_transient_frees_the_key() {
    let world = World::with(|builder| builder.on_panic(OnPanic::Transient));
    let panicking = world.once.operation(CHARGE, KEY).run(|| async { panic!("oh") as Result<u32, Failure> });
    assert_outcome!(panicking.await, Ok(Outcome::Interrupted(Interruption::Panicked)));
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
}
