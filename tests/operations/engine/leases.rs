//! The maximum duration of a handler, and the claim of a cancelled one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    Deadline, Failure, Interruption, Outcome,
    clock::{Clock, Timestamp},
    store::fault::Call,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::{CHARGE, KEY, LEASE, MARGIN, UNTIL_STOP, World, assert_outcome, support::FUTURE};

async fn hangs() -> Result<u32, Failure> {
    std::future::pending().await
}

impl World {
    /// Runs a hanging handler, and returns its duration and the end of its claim's lease.
    async fn hang(&self, deadline: Deadline) -> (Duration, Timestamp) {
        let begun = Instant::now();
        let run = self.once.operation(CHARGE, KEY).deadline(deadline).run(hangs);
        // Without this timeout, the test would hang if the engine did not cancel the handler.
        let outcome = tokio::time::timeout(LEASE * 2, run).await.expect("the handler is cancelled");
        assert_outcome!(outcome, Ok(Outcome::Interrupted(Interruption::Cancelled)));
        assert_eq!(self.calls(), [Call::Claim], "the claim is kept");
        (begun.elapsed(), self.record().await.unwrap().lease_until.unwrap())
    }

    /// Runs a handler whose process is frozen from this time on, for longer than it may run. When it thaws it is ready
    /// to continue, but is cancelled.
    pub(super) async fn freeze(&self, frozen_at: Duration, frozen_for: Duration) {
        let (thaw, went_on) = (Notify::new(), AtomicBool::new(false));
        let handler = || async {
            thaw.notified().await;
            went_on.store(true, Ordering::SeqCst);
            self.work().await
        };
        let freeze = async {
            sleep(frozen_at).await;
            self.clock.jump(frozen_for);
            thaw.notify_one();
        };
        let (outcome, ()) = tokio::join!(self.once.operation(CHARGE, KEY).run(handler), freeze);
        assert_outcome!(outcome, Ok(Outcome::Interrupted(Interruption::Cancelled)));
        assert!(!went_on.load(Ordering::SeqCst));
    }
}

// Tests L1, L7, P7.
#[tokio::test(start_paused = true)]
async fn a_hung_handler_is_cancelled_before_the_deadline() {
    let world = World::new();
    let deadline = FUTURE.after(Duration::from_secs(20));
    let (took, lease_until) = world.hang(Deadline::at(deadline)).await;
    assert_eq!(took, Duration::from_secs(19));
    assert_eq!(lease_until, deadline.after(Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn without_deadline_or_heartbeat_the_lease_cancels_a_hung_handler() {
    for unknown in [Deadline::UNKNOWN, Deadline::at(Timestamp::EPOCH), Deadline::at(Timestamp::from_millis(600_000))] {
        let world = World::with(|builder| builder.heartbeat(None));
        let (took, lease_until) = world.hang(unknown).await;
        assert_eq!((took, lease_until), (UNTIL_STOP, FUTURE.after(LEASE)), "{unknown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_claim_of_a_cancelled_handler_is_taken_over_after_its_lease() {
    let world = World::with(|builder| builder.heartbeat(None));
    world.hang(Deadline::UNKNOWN).await;
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse().await;
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_handler_is_dropped_before_its_run_returns() {
    struct Witness(Arc<AtomicBool>);
    impl Drop for Witness {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let world = World::new();
    let dropped = Arc::new(AtomicBool::new(false));
    let witness = Witness(Arc::clone(&dropped));
    let outcome = world.once.operation(CHARGE, KEY).run(|| async move {
        let _witness = witness;
        hangs().await
    });
    assert_outcome!(outcome.await, Ok(Outcome::Interrupted(Interruption::Cancelled)));
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_keeps_its_claim() {
    let world = World::new();
    let dropped = tokio::time::timeout(Duration::from_secs(1), world.once.operation(CHARGE, KEY).run(hangs)).await;
    assert!(dropped.is_err());
    assert_eq!(world.calls(), [Call::Claim]);
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    tokio::time::advance(LEASE + MARGIN).await;
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

// Tests L6, L7, P7.
#[tokio::test(start_paused = true)]
async fn a_handler_thawed_after_its_deadline_does_not_continue() {
    let world = World::new();
    world.freeze(Duration::ZERO, UNTIL_STOP).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_returns_just_before_its_deadline_is_recorded() {
    let world = World::new();
    let handler = || async {
        tokio::time::sleep(UNTIL_STOP - Duration::from_millis(1)).await;
        world.work().await
    };
    assert_outcome!(world.once.operation(CHARGE, KEY).run(handler).await, Ok(Outcome::Executed(1)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

// Tests L7.
#[tokio::test(start_paused = true)]
async fn a_handler_that_would_return_at_its_deadline_is_cancelled() {
    let world = World::with(|builder| builder.heartbeat(None));
    let handler = || async {
        tokio::time::sleep(UNTIL_STOP).await;
        world.work().await
    };
    let outcome = world.once.operation(CHARGE, KEY).run(handler).await;
    assert_outcome!(outcome, Ok(Outcome::Interrupted(Interruption::Cancelled)));
    assert_eq!(world.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_has_its_lease_end_and_its_handler_deadline() {
    let world = World::new();
    let outcome = world.once.operation(CHARGE, KEY).run_with(|claim| async move {
        let claim = claim.unwrap();
        assert_eq!(claim.lease_until(), FUTURE.after(LEASE));
        assert_eq!(claim.handler_deadline(), FUTURE.after(UNTIL_STOP));
        assert!(!claim.took_over());
        Ok::<_, Failure>(())
    });
    assert_outcome!(outcome.await, Ok(Outcome::Executed(())));
}

// Tests L4.
#[tokio::test(start_paused = true)]
async fn a_lease_longer_than_the_retention_does_not_let_the_claim_expire() {
    let world = World::with(|builder| builder.retention(LEASE + MARGIN));
    let deadline = FUTURE.after(Duration::from_secs(900));
    let handler = || async {
        tokio::time::sleep(Duration::from_secs(890)).await;
        assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
        Err::<u32, _>(Failure::unknown("timed out"))
    };
    assert_outcome!(world.once.operation(CHARGE, KEY).deadline(deadline).run(handler).await, Ok(Outcome::Failed(_)));
    tokio::time::advance(deadline.after(Duration::from_secs(2)).since(world.clock.now())).await;
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
}

// Tests L4.
#[tokio::test(start_paused = true)]
async fn at_the_last_instant_of_its_lease_a_claim_has_not_expired() {
    for fraction in [0, 1, 499, 999] {
        let world = World::with(|builder| builder.retention(LEASE + MARGIN));
        tokio::time::advance(Duration::from_millis(fraction)).await;
        world.abandon().await;
        tokio::time::advance(LEASE + MARGIN).await;
        assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    }
}

// Tests P2.
#[tokio::test(start_paused = true)]
async fn an_outcome_is_kept_for_its_whole_retention() {
    let world = World::with(|builder| builder.retention(LEASE + MARGIN));
    tokio::time::advance(Duration::from_millis(999)).await;
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    tokio::time::advance(LEASE + MARGIN).await;
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_record_has_its_own_retention() {
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let world =
        World::with(|builder| builder.retention(hours(1)).failed_retention(hours(2)).in_progress_retention(hours(3)));
    let expires_in = async || {
        let expiration = world.record().await.unwrap().expiration.unwrap();
        Duration::from_secs(expiration - world.clock.now().seconds_rounded_down())
    };
    world.abandon().await;
    assert_eq!(expires_in().await, hours(3));
    tokio::time::advance(hours(3)).await;
    assert_outcome!(world.run_to(Err(Failure::permanent("no such card"))).await, Ok(Outcome::Failed(_)));
    assert_eq!(expires_in().await, hours(2));
    tokio::time::advance(hours(2)).await;
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_eq!(expires_in().await, hours(1));
}
