//! Releases and withdrawals are optional, because leases end. A failing store does not delay the response for long.

use std::time::Duration;

use lambda_once::{
    AfterUnknown, Failure, Outcome, ProbeResult,
    record::Status,
    store::fault::{Call, Fault},
};
use tokio::time::Instant;
use tracing::Level;

use super::{
    CHARGE, KEY, LEASE, World, assert_outcome,
    support::collector::{Collector, Line},
};

const POLICIES: [AfterUnknown; 2] = [AfterUnknown::Rerun, AfterUnknown::Refuse];
const SECOND: Duration = Duration::from_secs(1);

impl World {
    async fn heal_after(&self, time: Duration) {
        tokio::time::sleep(time).await;
        self.store.heal();
    }
}

/// The role may lack the permission to delete.
// Tests S4.
#[tokio::test(start_paused = true)]
async fn a_permanently_refused_release_delays_the_outcome_by_a_second() {
    let world = World::new();
    world.store.always(Call::Settle, Fault::AccessDenied);
    let begun = Instant::now();
    assert_outcome!(world.run_to(Err(Failure::transient("closed"))).await, Ok(Outcome::Failed(_)));
    assert!(begun.elapsed() <= SECOND, "{:?}", begun.elapsed());
    assert!((2..=10).contains(&world.count(Call::Settle)), "{:?}", world.calls());
    assert_eq!(world.record().await.unwrap().status, Status::InProgress);
}

/// Without it, the operation would stay abandoned.
#[tokio::test(start_paused = true)]
async fn a_refused_release_is_retried_if_nothing_else_frees_the_key() {
    for policy in [AfterUnknown::Refuse, AfterUnknown::Probe] {
        let world = World::with(|builder| builder.after_unknown(policy));
        world.store.always(Call::Settle, Fault::AccessDenied);
        let run = async {
            let operation = world.once.operation(CHARGE, KEY);
            let work = || async { Err::<u32, _>(Failure::transient("closed")) };
            match policy {
                AfterUnknown::Probe => {
                    operation.probe(|_| async { Ok::<_, Failure>(ProbeResult::NotDone) }).run(work).await
                }
                _ => operation.run(work).await,
            }
        };
        let (outcome, ()) = tokio::join!(run, world.heal_after(10 * SECOND));
        assert_outcome!(outcome, Ok(Outcome::Failed(_)));
        assert_eq!(world.record().await, None, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_for_a_moment_is_applied() {
    for policy in POLICIES {
        let world = World::with(|builder| builder.after_unknown(policy));
        (0..2).for_each(|_| world.store.next(Call::Settle, Fault::AccessDenied));
        assert_outcome!(world.run_to(Err(Failure::transient("closed"))).await, Ok(Outcome::Failed(_)));
        assert_eq!(world.record().await, None, "{policy:?}");
    }
}

/// Temporary errors are retried for longer if the operation would otherwise be abandoned.
// Tests S4.
#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_for_long_only_if_nothing_else_frees_the_key() {
    for (policy, least, most) in
        [(AfterUnknown::Rerun, 3 * SECOND, 7 * SECOND), (AfterUnknown::Refuse, 25 * SECOND, LEASE)]
    {
        let world = World::with(|builder| builder.after_unknown(policy));
        world.store.always(Call::Settle, Fault::Throttled);
        let begun = Instant::now();
        assert_outcome!(world.run_to(Err(Failure::transient("closed"))).await, Ok(Outcome::Failed(_)));
        assert!((least..=most).contains(&begun.elapsed()), "{policy:?}: {:?}", begun.elapsed());
    }
}

/// The first request was applied, and its response lost.
#[tokio::test(start_paused = true)]
async fn a_permanently_refused_withdrawal_delays_the_error_by_seconds() {
    for call in [Call::Read, Call::Settle] {
        let world = World::new();
        world.store.always(Call::Claim, Fault::ErrorAfter);
        world.store.always(call, Fault::AccessDenied);
        let begun = Instant::now();
        assert_outcome!(world.run().await, Err(_));
        assert!(begun.elapsed() <= 2 * SECOND, "{call:?}: {:?}", begun.elapsed());
        assert!((2..=10).contains(&world.count(call)), "{call:?}: {:?}", world.calls());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_withdrawal_is_retried_if_nothing_else_frees_the_key() {
    for call in [Call::Read, Call::Settle] {
        let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
        world.store.always(Call::Claim, Fault::ErrorAfter);
        world.store.always(call, Fault::AccessDenied);
        let (outcome, ()) = tokio::join!(world.run(), world.heal_after(10 * SECOND));
        assert_outcome!(outcome, Err(_));
        assert_eq!(world.record().await, None, "{call:?}");
    }
}

/// The release has as much time as after a read that succeeds immediately.
#[tokio::test(start_paused = true)]
async fn a_refused_read_of_a_withdrawal_does_not_shorten_its_release() {
    for policy in POLICIES {
        let world = World::with(|builder| builder.after_unknown(policy));
        world.store.always(Call::Claim, Fault::ErrorAfter);
        world.store.next(Call::Read, Fault::AccessDenied);
        world.store.always(Call::Settle, Fault::Throttled);
        let (outcome, ()) = tokio::join!(world.run(), world.heal_after(3 * SECOND));
        assert_outcome!(outcome, Err(_));
        assert_eq!(world.record().await, None, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanently_refused_outcome_is_retried_until_its_limit() {
    for (end, expects_unrecorded, says) in [
        (Ok(1), true, "the operation is done but could not be recorded"),
        (Err(Failure::permanent("no such card")), false, "the permanent failure could not be recorded"),
    ] {
        let world = World::new();
        world.store.always(Call::Settle, Fault::AccessDenied);
        let begun = Instant::now();
        let (collector, guard) = Collector::install();
        let outcome = world.run_to(end).await.unwrap();
        drop(guard);
        assert_eq!(matches!(outcome, Outcome::Unrecorded(1)), expects_unrecorded, "{outcome:?}");
        assert!((25 * SECOND..LEASE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        let lines = collector.lines();
        let is_told = |line: &Line| line.level == Level::ERROR && line.get("message").starts_with(says);
        assert!(lines.iter().any(is_told), "{lines:?}");
    }
}
