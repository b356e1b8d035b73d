//! Renewals that are throttled, slow or never completed.

use std::time::Duration;

use lambda_once::{
    Failure, Interruption, Outcome,
    clock::Clock,
    record::Status,
    store::fault::{Call, Fault, FaultStore},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use tracing::Level;

use super::{
    CHARGE, KEY, LEASE, LONGEST, MILLISECOND, SECOND, THIRD, UNTIL_STOP, World, assert_outcome,
    support::collector::{Collector, Line},
};

#[tokio::test(start_paused = true)]
async fn despite_store_errors_work_of_five_leases_has_one_holder() {
    for seed in 0..50 {
        let mut world = World::new();
        world.store = FaultStore::new(world.records.clone(), seed)
            .with_rate(Fault::ErrorBefore, 0.1)
            .with_rate(Fault::ErrorAfter, 0.1)
            .with_rate(Fault::Throttled, 0.1)
            .with_rate(Fault::Silence, 0.05)
            .with_rate(Fault::Delay(2 * SECOND), 0.1);
        world.once = world.another(|builder| builder);
        let rival = world.another(|builder| builder);
        let begins = Notify::new();
        let rivals = async {
            begins.notified().await;
            loop {
                let outcome = rival.operation(CHARGE, KEY).run(|| world.work()).await;
                match outcome {
                    // Nothing was claimed.
                    Ok(Outcome::InProgress { .. }) | Err(_) => {}
                    other => return other,
                }
                sleep(SECOND).await;
            }
        };
        let holder = async {
            loop {
                let work = || {
                    begins.notify_one();
                    world.work_for(5 * LEASE)
                };
                // An error means that the claim was not granted.
                if let Ok(outcome) = world.once.operation(CHARGE, KEY).run(work).await {
                    return outcome;
                }
                world.lapse().await;
            }
        };
        let (outcome, rival) = tokio::join!(holder, rivals);
        // Without a rival, the sender of a claim whose responses were lost takes it over.
        assert_outcome!(outcome, Outcome::Executed(1) | Outcome::TookOver(1));
        assert_outcome!(rival, Ok(Outcome::Replayed(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn if_no_renewal_succeeds_the_old_handler_deadline_applies() {
    for fault in [Fault::Throttled, Fault::ErrorBefore, Fault::AccessDenied] {
        let world = World::new();
        world.store.always(Call::Settle, fault);
        let (collector, guard) = Collector::install();
        let (outcome, took) = world.hang_with_heartbeat().await;
        drop(guard);
        assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
        assert_eq!(took, UNTIL_STOP, "{fault:?}");
        match fault {
            Fault::AccessDenied => assert_eq!(world.count(Call::Settle), 2, "once more after a third of the lease"),
            _ => assert!(world.count(Call::Settle) > 2, "{fault:?}: it is tried again"),
        }
        let lines = collector.lines();
        let warned = |line: &&Line| line.level == Level::WARN && line.get("message").contains("could not be renewed");
        assert_eq!(lines.iter().filter(warned).count(), 1, "{fault:?}: at the first only: {lines:?}");
        world.store.heal();
        assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
        world.lapse().await;
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn no_renewal_is_sent_at_the_handler_deadline() {
    // The first renewal is refused after ten seconds, and would be repeated after twenty.
    let world = World::with(|builder| builder.reserve(THIRD));
    world.store.next(Call::Settle, Fault::AccessDenied);
    let (outcome, took) = world.hang_with_heartbeat().await;
    assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
    assert_eq!((took, world.count(Call::Settle)), (2 * THIRD, 1));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_a_response_moves_no_handler_deadline() {
    for fault in [Fault::Silence, Fault::ErrorAfter] {
        let world = World::new();
        world.store.always(Call::Settle, fault);
        let (outcome, took) = world.hang_with_heartbeat().await;
        assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
        assert_eq!(took, UNTIL_STOP, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_stays_silent_is_sent_again_also_under_a_short_lease() {
    for lease in [2 * SECOND, LEASE] {
        let world = World::with(|builder| builder.lease(lease));
        world.store.next(Call::Settle, Fault::Silence);
        assert_outcome!(world.run_for(2 * lease).await, Outcome::Executed(1));
    }
}

#[tokio::test(start_paused = true)]
async fn the_handler_deadline_counts_from_sending_a_renewal_not_its_result() {
    let world = World::new();
    world.store.next(Call::Settle, Fault::Delay(Duration::from_millis(2_900)));
    world.store.always(Call::Settle, Fault::Throttled);
    let (outcome, took) = world.hang_with_heartbeat().await;
    assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
    assert_eq!(took, THIRD + UNTIL_STOP);
}

#[tokio::test(start_paused = true)]
async fn the_handler_deadline_counts_from_the_first_send_not_the_retry() {
    let world = World::new();
    // The first renewal gets no response for three seconds. Its repetition succeeds, and nothing after it.
    world.store.next(Call::Settle, Fault::Silence);
    world.store.next(Call::Settle, Fault::Delay(Duration::ZERO));
    world.store.always(Call::Settle, Fault::Throttled);
    let (outcome, took) = world.hang_with_heartbeat().await;
    assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
    assert_eq!(took, THIRD + UNTIL_STOP);
}

#[tokio::test(start_paused = true)]
async fn a_handler_never_runs_past_the_lease_on_record() {
    for seed in 0..50 {
        let mut world = World::new();
        world.store = FaultStore::new(world.records.clone(), seed)
            .with_rate(Fault::ErrorAfter, 0.2)
            .with_rate(Fault::Throttled, 0.3)
            .with_rate(Fault::Silence, 0.2)
            .with_rate(Fault::Delay(Duration::from_millis(2_500)), 0.2);
        world.once = world.another(|builder| builder);
        let (runs, clock) = (world.once.operation(CHARGE, KEY), world.clock.clone());
        let held = || async {
            loop {
                sleep(SECOND / 4).await;
                let lease_until = world.record().await.unwrap().lease_until.unwrap();
                assert!(clock.now() < lease_until, "seed {seed}");
            }
            #[expect(unreachable_code, reason = "it runs until it is cancelled")]
            Ok::<u32, Failure>(0)
        };
        match runs.heartbeat(20 * LEASE).run(held).await {
            // No claim was made.
            Err(_) => {}
            outcome => assert_outcome!(outcome, Ok(Outcome::Interrupted(Interruption::Cancelled))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_does_not_wait_for_a_renewal_under_way() {
    let world = World::new();
    world.store.next(Call::Settle, Fault::Silence);
    let begun = Instant::now();
    assert_outcome!(world.run_for(THIRD + SECOND).await, Outcome::Executed(1));
    assert_eq!(begun.elapsed(), THIRD + SECOND);
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn after_a_renewal_a_completion_has_the_renewed_lease_to_be_recorded() {
    let world = World::new();
    let throttled = || async {
        sleep(5 * LEASE).await;
        world.store.always(Call::Settle, Fault::Throttled);
        world.work().await
    };
    let begun = Instant::now();
    let heals = async {
        sleep(5 * LEASE + 15 * SECOND).await;
        world.store.heal();
    };
    let (outcome, ()) = tokio::join!(world.once.operation(CHARGE, KEY).run(throttled), heals);
    assert_outcome!(outcome, Ok(Outcome::Executed(1)));
    assert!(begun.elapsed() >= 5 * LEASE + 15 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn after_renewals_an_unrecorded_completion_leaves_the_claim_for_a_lease() {
    let world = World::new();
    let unrecorded = || async {
        sleep(5 * LEASE).await;
        world.store.always(Call::Settle, Fault::Throttled);
        world.work().await
    };
    assert_outcome!(world.once.operation(CHARGE, KEY).run(unrecorded).await, Ok(Outcome::Unrecorded(1)));
    world.store.heal();
    assert_eq!(world.record().await.unwrap().status, Status::InProgress);
    world.lapse().await;
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(2)));
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_near_the_maximum_duration_does_not_prolong_it() {
    let world = World::new();
    let trouble = async {
        sleep(LONGEST - 4 * THIRD + MILLISECOND).await;
        world.store.always(Call::Settle, Fault::Delay(2 * SECOND));
    };
    let ((outcome, took), ()) = tokio::join!(world.hang_with_heartbeat(), trouble);
    assert_outcome!(outcome, Outcome::Interrupted(Interruption::Cancelled));
    assert_eq!(took, LONGEST);
}
