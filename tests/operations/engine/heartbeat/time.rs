//! The maximum duration of work: the configured one, or a known deadline.

use std::{future::pending, time::Duration};

use lambda_once::{
    Builder, Deadline, ErrorKind, Failure, Idempotency, Interruption, MemoryStore, Outcome, clock::Timestamp,
    store::fault::Call,
};
use lambda_runtime::Context;
use tokio::time::{Instant, timeout};

use super::{
    CHARGE, KEY, LEASE, LONGEST, MARGIN, SECOND, UNTIL_STOP, World, assert_outcome,
    support::{FUTURE, future_clock},
};

#[tokio::test(start_paused = true)]
async fn a_hung_handler_is_cancelled_at_the_maximum_and_keeps_its_claim() {
    for (world, longest) in [
        (World::new(), LONGEST),
        (World::with(|builder| builder.heartbeat(100 * SECOND)), 100 * SECOND),
        (World::with(|builder| builder.heartbeat(11 * SECOND)), 11 * SECOND),
    ] {
        let (outcome, took) = world.hang_with_heartbeat().await;
        assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
        assert_eq!(took, longest);
        assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
        tokio::time::advance(LEASE + MARGIN).await;
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_handler_is_cancelled_even_if_the_clock_stops_or_is_set_back() {
    for back in [Duration::ZERO, SECOND, 10 * LONGEST] {
        let clock = future_clock();
        let store = MemoryStore::with_clock(clock.clone());
        let once = Idempotency::builder(store).clock(clock.clone()).build().unwrap();
        let set_back = async {
            tokio::time::sleep(LEASE).await;
            clock.set(FUTURE.before(back));
        };
        let begun = Instant::now();
        let hangs = once.operation(CHARGE, KEY).run(pending::<Result<u32, Failure>>);
        let (outcome, ()) = tokio::join!(timeout(4 * LONGEST, hangs), set_back);
        assert_outcome!(outcome.expect("the handler is cancelled"), Ok(Outcome::Interrupted(Interruption::Cancelled)));
        assert_eq!(begun.elapsed(), LONGEST);
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_has_its_own_longest_duration() {
    let world = World::new();
    let begun = Instant::now();
    let hangs = world.once.operation(CHARGE, KEY).heartbeat(2 * LONGEST).run(pending::<Result<u32, Failure>>);
    assert_outcome!(hangs.await, Ok(Outcome::Interrupted(Interruption::Cancelled)));
    assert_eq!(begun.elapsed(), 2 * LONGEST);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_covers_the_longest_duration_is_not_renewed() {
    let world = World::with(|builder| builder.heartbeat(UNTIL_STOP));
    let (outcome, took) = world.hang_with_heartbeat().await;
    assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
    assert_eq!((took, world.calls()), (UNTIL_STOP, vec![Call::Claim]));
}

#[tokio::test(start_paused = true)]
async fn no_longest_duration_is_too_long() {
    let world = World::with(|builder| builder.heartbeat(Duration::MAX));
    assert_outcome!(world.run_for(10 * LEASE).await, Outcome::Executed(1));
}

#[tokio::test(start_paused = true)]
async fn without_a_heartbeat_the_lease_is_the_limit() {
    let world = World::with(|builder| builder.heartbeat(None));
    let (outcome, took) = world.hang_with_heartbeat().await;
    assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
    assert_eq!((took, world.calls()), (UNTIL_STOP, vec![Call::Claim]));

    let world = World::new();
    let begun = Instant::now();
    let hangs = world.once.operation(CHARGE, KEY).heartbeat(None).run(pending::<Result<u32, Failure>>);
    assert_outcome!(hangs.await, Ok(Outcome::Interrupted(Interruption::Cancelled)));
    assert_eq!((begun.elapsed(), world.calls()), (UNTIL_STOP, vec![Call::Claim]));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lasts_until_a_known_deadline_is_not_renewed() {
    let deadline = FUTURE.after(300 * SECOND);
    let mut context = Context::default();
    context.deadline = deadline.as_millis();
    for known in [Deadline::at(deadline), Deadline::from(&context)] {
        // The engine's setting has no effect, even if it is shorter.
        for heartbeat in [LONGEST, 11 * SECOND] {
            let world = World::with(|builder| builder.heartbeat(heartbeat));
            let operation = world.once.operation(CHARGE, KEY).deadline(known);
            assert_outcome!(operation.run(|| world.work_for(290 * SECOND)).await, Ok(Outcome::Executed(1)));
            assert_eq!(world.calls(), [Call::Claim, Call::Settle]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_with_a_known_deadline_is_refused_before_any_claim() {
    let deadline = FUTURE.after(300 * SECOND);
    let mut context = Context::default();
    context.deadline = deadline.as_millis();
    for known in [Deadline::at(deadline), Deadline::from(&context)] {
        let world = World::new();
        let refused = world.once.operation(CHARGE, KEY).deadline(known).heartbeat(LONGEST).run(|| world.work()).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
        assert_eq!((world.runs(), world.calls()), (0, vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_no_invocation_has_does_not_end_the_heartbeat() {
    let mut watched = Context::default();
    watched.deadline = 600_000;
    for unknown in [Deadline::UNKNOWN, Deadline::at(Timestamp::EPOCH), Deadline::from(&watched)] {
        let world = World::new();
        let operation = world.once.operation(CHARGE, KEY).deadline(unknown).heartbeat(LONGEST);
        assert_outcome!(operation.run(|| world.work_for(5 * LEASE)).await, Ok(Outcome::Executed(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_in_which_nothing_could_run_is_refused() {
    let built = Idempotency::builder(MemoryStore::new()).heartbeat(Duration::ZERO).build();
    assert_eq!(built.map(drop).unwrap_err().kind(), ErrorKind::Config);
    let world = World::new();
    let refused = world.once.operation(CHARGE, KEY).heartbeat(Duration::ZERO).run(|| world.work()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test(start_paused = true)]
async fn an_unprotected_run_has_the_same_longest_duration_and_no_heartbeat() {
    for (settings, longest) in [
        ((|builder| builder) as fn(Builder) -> Builder, LONGEST),
        (|builder| builder.heartbeat(100 * SECOND), 100 * SECOND),
        (|builder| builder.heartbeat(None), UNTIL_STOP),
    ] {
        let world = World::with(|builder| settings(builder).disabled(true));
        let (outcome, took) = world.hang_with_heartbeat().await;
        assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
        assert_eq!((took, world.calls()), (longest, vec![]));
    }
}
