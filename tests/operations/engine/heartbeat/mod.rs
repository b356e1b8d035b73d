//! Work that outlasts its lease without a known deadline. The lease is renewed while it runs.

mod loss;
mod time;
mod trouble;

use std::{
    future::pending,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use lambda_once::{AfterUnknown, Builder, Claim, Failure, Outcome, ProbeResult, store::fault::Call};
use tokio::time::{Instant, sleep};

use super::{CHARGE, KEY, LEASE, MARGIN, MILLISECOND, UNTIL_STOP, World, assert_outcome, support};

const SECOND: Duration = Duration::from_secs(1);
const THIRD: Duration = Duration::from_secs(10);
/// The default maximum duration of a handler.
const LONGEST: Duration = Duration::from_secs(900);

impl World {
    /// Works for this long, and then succeeds.
    async fn work_for(&self, time: Duration) -> Result<u32, Failure> {
        sleep(time).await;
        self.work().await
    }

    /// Runs the operation with work that takes this long.
    async fn run_for(&self, time: Duration) -> Outcome<u32> {
        self.once.operation(CHARGE, KEY).run(|| self.work_for(time)).await.unwrap()
    }

    /// Runs the operation with hanging work, and returns its outcome and the time after which it was dropped.
    async fn hang_with_heartbeat(&self) -> (Outcome<u32>, Duration) {
        let begun = Instant::now();
        let run = self.once.operation(CHARGE, KEY).run(pending::<Result<u32, Failure>>);
        // Without this timeout, the test would hang if the engine did not cancel the handler.
        let outcome = tokio::time::timeout(4 * LONGEST, run).await.expect("the handler is cancelled");
        (outcome.unwrap(), begun.elapsed())
    }

    /// Tries to run the operation every half second for this time, and asserts that it is refused.
    async fn nobody_else_runs_it_for(&self, time: Duration) {
        let rival = self.another(|builder| builder);
        let until = Instant::now() + time;
        while Instant::now() < until {
            assert_outcome!(rival.operation(CHARGE, KEY).run(|| self.work()).await, Ok(Outcome::InProgress { .. }));
            sleep(SECOND / 2).await;
        }
    }
}

// Tests L5, P5.
#[tokio::test(start_paused = true)]
async fn work_of_five_leases_keeps_its_claim_beyond_its_records_expiry() {
    for settings in [|builder| builder, |builder: Builder| builder.retention(LEASE + MARGIN)] {
        let world = World::with(settings);
        let (outcome, ()) =
            tokio::join!(world.run_for(5 * LEASE), world.nobody_else_runs_it_for(5 * LEASE - MILLISECOND));
        assert_outcome!(outcome, Outcome::Executed(1));
        assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    }
}

// Tests L5.
#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_at_each_third_and_shorter_work_costs_no_call() {
    for (time, renewals) in [
        (Duration::ZERO, 0),
        (THIRD - MILLISECOND, 0),
        (THIRD + SECOND, 1),
        (2 * THIRD - MILLISECOND, 1),
        (5 * LEASE - SECOND, 14),
    ] {
        let world = World::new();
        assert_outcome!(world.run_for(time).await, Outcome::Executed(1));
        // The last settle is the completion.
        assert_eq!((world.count(Call::Claim), world.count(Call::Settle)), (1, renewals + 1), "{time:?}");
        assert_eq!(world.count(Call::Read), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_is_renewed_in_time() {
    let world = World::with(|builder| builder.lease(SECOND));
    assert_outcome!(world.run_for(5 * SECOND).await, Outcome::Executed(1));
    let world = World::with(|builder| builder.lease(LEASE).reserve(29 * SECOND));
    assert_outcome!(world.run_for(2 * LEASE).await, Outcome::Executed(1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_after_a_wait_too() {
    let world = World::new();
    let first = world.once.operation(CHARGE, KEY).run(|| async {
        sleep(25 * SECOND).await;
        Err::<u32, _>(Failure::transient("again"))
    });
    let second = async {
        sleep(SECOND).await;
        let waiting = world.once.operation(CHARGE, KEY).wait_up_to(LEASE);
        waiting.run(|| world.work_for(2 * LEASE)).await
    };
    let (_, second) = tokio::join!(first, second);
    assert_outcome!(second, Ok(Outcome::Executed(1)));
}

#[tokio::test(start_paused = true)]
async fn after_renewals_a_failure_frees_the_key_and_an_unknown_one_keeps_it() {
    let world = World::new();
    let failing = world.once.operation(CHARGE, KEY).run(|| async {
        sleep(5 * LEASE).await;
        Err::<u32, _>(Failure::transient("again"))
    });
    assert_outcome!(failing.await, Ok(Outcome::Failed(_)));
    let doubtful = world.once.operation(CHARGE, KEY).run(|| async {
        sleep(5 * LEASE).await;
        Err::<u32, _>(Failure::unknown("timed out"))
    });
    assert_outcome!(doubtful.await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse().await;
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

#[tokio::test(start_paused = true)]
async fn a_panic_after_many_renewals_keeps_the_claim_for_a_lease() {
    let world = World::new();
    let panics = world.once.operation(CHARGE, KEY).run(|| async {
        sleep(5 * LEASE).await;
        panic!("oh") as Result<u32, Failure>
    });
    assert_outcome!(panics.await, Ok(Outcome::Interrupted(_)));
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse().await;
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

#[tokio::test(start_paused = true)]
async fn a_claim_shows_its_current_lease_and_handler_deadline() {
    let world = World::new();
    let outcome = world.once.operation(CHARGE, KEY).heartbeat(2 * LEASE).run_with(|claim| async move {
        let claim: Claim = claim.unwrap();
        let shown = |claim: &Claim| [claim.lease_until(), claim.handler_deadline()].map(|at| at.since(support::FUTURE));
        let kept = claim.clone();
        assert_eq!(shown(&claim), [LEASE, UNTIL_STOP]);
        sleep(THIRD + SECOND).await;
        assert_eq!(shown(&claim), [THIRD + LEASE, THIRD + UNTIL_STOP]);
        sleep(LEASE).await;
        assert_eq!(shown(&claim), [4 * THIRD + LEASE, 2 * LEASE], "not beyond the longest duration");
        assert_eq!(shown(&kept), shown(&claim));
        Ok::<_, Failure>(())
    });
    assert_outcome!(outcome.await, Ok(Outcome::Executed(())));
}

#[tokio::test(start_paused = true)]
async fn a_probe_may_take_as_long_as_the_work() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Probe));
    let asked = AtomicU32::new(0);
    let run = |end: Result<u32, Failure>| {
        let operation = world.once.operation(CHARGE, KEY).probe(|_| async {
            asked.fetch_add(1, Ordering::SeqCst);
            sleep(3 * LEASE).await;
            Ok::<_, Failure>(ProbeResult::Done(7))
        });
        operation.run(|| async { end })
    };
    assert_outcome!(run(Err(Failure::unknown("timed out"))).await, Ok(Outcome::Failed(_)));
    world.lapse().await;
    assert_outcome!(run(Ok(1)).await, Ok(Outcome::Recovered(7)));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
