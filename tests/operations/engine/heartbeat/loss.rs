//! A lease that its holder loses. The handler is dropped, and a successor's outcome counts.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lambda_once::{
    Failure, Interruption, Outcome,
    record::{Owner, Record, Status, StoredData, StoredResult},
    store::fault::{Call, Fault},
};
use tokio::time::{Instant, sleep};

use super::{CHARGE, KEY, LEASE, MARGIN, SECOND, THIRD, UNTIL_STOP, World, assert_outcome};

impl World {
    /// Runs a handler that hangs while the record is changed after one second, and asserts when it was dropped.
    async fn hang_and_change(&self, change: impl FnOnce(&mut Record)) -> Outcome<u32> {
        let changed = async {
            sleep(SECOND).await;
            self.alter(change).await;
        };
        let ((outcome, took), ()) = tokio::join!(self.hang_with_heartbeat(), changed);
        assert_eq!(took, THIRD, "the next renewal finds it out, and the handler is dropped");
        outcome
    }
}

fn taken_over(record: &mut Record) {
    record.owner = Some(Owner::from_bytes([7; 16]));
    record.attempt += 1;
    record.prior_status = Some(Status::InProgress);
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_successor_runs_has_lost_its_lease_and_settles_nothing() {
    let world = World::new();
    assert_outcome!(world.hang_and_change(taken_over).await, Outcome::LeaseLost);
    let record = world.record().await.unwrap();
    assert_eq!((record.status, record.owner), (Status::InProgress, Some(Owner::from_bytes([7; 16]))));
    assert_eq!(world.calls(), [Call::Claim, Call::Settle], "nothing is settled");
}

// Tests S8.
#[tokio::test(start_paused = true)]
async fn a_holder_whose_successor_is_done_gives_that_result() {
    let world = World::new();
    let outcome = world.hang_and_change(|record: &mut Record| {
        taken_over(record);
        record.status = Status::Completed;
        record.result = StoredResult { data: Some(StoredData::Json("42".to_owned())), ..StoredResult::default() };
    });
    assert_outcome!(outcome.await, Outcome::Replayed(42));
}

#[tokio::test(start_paused = true)]
async fn a_holder_of_a_deleted_record_loses_its_lease_and_recreates_nothing() {
    let world = World::new();
    let deleted = async {
        sleep(SECOND).await;
        world.records.remove(&world.once.key_hash(CHARGE, KEY).unwrap());
    };
    let ((outcome, took), ()) = tokio::join!(world.hang_with_heartbeat(), deleted);
    assert_outcome!(outcome, Outcome::LeaseLost);
    assert_eq!((took, world.record().await), (THIRD, None));
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_lease_is_lost_is_dropped_before_its_run_returns() {
    struct Witness(Arc<AtomicBool>);
    impl Drop for Witness {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (world, dropped) = (World::new(), Arc::new(AtomicBool::new(false)));
    let witness = Witness(Arc::clone(&dropped));
    let run = world.once.operation(CHARGE, KEY).run(|| async move {
        let _witness = witness;
        pending::<Result<u32, Failure>>().await
    });
    let (outcome, ()) = tokio::join!(run, async {
        sleep(SECOND).await;
        world.alter(taken_over).await;
    });
    assert_outcome!(outcome, Ok(Outcome::LeaseLost));
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_process_thawed_after_the_handler_deadline_neither_runs_nor_renews() {
    // Frozen before its first renewal, and after some of them.
    for (renewals, frozen_at) in [(0, SECOND), (9, 3 * LEASE + SECOND)] {
        for frozen_for in [LEASE, LEASE + MARGIN, 10 * LEASE] {
            let world = World::new();
            world.freeze(frozen_at, frozen_for).await;
            assert_eq!(world.count(Call::Settle), renewals);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_timer_of_a_renewal_that_fires_after_a_thaw_renews_nothing() {
    let world = World::new();
    let clock = world.clock.clone();
    // In a separate task, so that the next event of the run is its timer.
    let freeze = tokio::spawn(async move {
        sleep(SECOND).await;
        clock.jump(UNTIL_STOP);
    });
    let (outcome, took) = world.hang_with_heartbeat().await;
    freeze.await.unwrap();
    assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
    assert_eq!((took, world.calls()), (THIRD, vec![Call::Claim]));
}

/// Freezes for this long during a renewal that was sent after ten seconds and gets its response a second later.
async fn frozen_in_a_renewal(frozen_for: std::time::Duration) -> (Outcome<u32>, bool) {
    let (world, went_on) = (World::new(), AtomicBool::new(false));
    world.store.next(Call::Settle, Fault::Delay(SECOND));
    let handler = || async {
        sleep(THIRD + SECOND).await;
        went_on.store(true, Ordering::SeqCst);
        world.work().await
    };
    let freeze = async {
        sleep(THIRD + SECOND / 2).await;
        world.clock.jump(frozen_for);
    };
    let (outcome, ()) = tokio::join!(world.once.operation(CHARGE, KEY).run(handler), freeze);
    (outcome.unwrap(), went_on.load(Ordering::SeqCst))
}

#[tokio::test(start_paused = true)]
async fn a_process_thawed_within_a_granted_renewal_continues() {
    let (outcome, went_on) = frozen_in_a_renewal(UNTIL_STOP - SECOND - SECOND / 2).await;
    assert_outcome!(outcome, Outcome::Executed(1));
    assert!(went_on);
}

#[tokio::test(start_paused = true)]
async fn a_process_thawed_too_late_after_a_granted_renewal_is_cancelled() {
    let (outcome, went_on) = frozen_in_a_renewal(UNTIL_STOP).await;
    assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
    assert!(!went_on);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_starves_its_heartbeat_gives_way_to_its_successor() {
    let world = World::new();
    let blocks = || async {
        world.clock.jump(LEASE + MARGIN + SECOND);
        assert_outcome!(
            world.another(|builder| builder).operation(CHARGE, KEY).run(|| world.work()).await,
            Ok(Outcome::TookOver(1))
        );
        Ok::<u32, Failure>(99)
    };
    let begun = Instant::now();
    assert_outcome!(world.once.operation(CHARGE, KEY).run(blocks).await, Ok(Outcome::Replayed(1)));
    assert!(begun.elapsed() < THIRD);
}
