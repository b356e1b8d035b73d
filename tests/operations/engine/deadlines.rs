//! An outcome is recorded before the deadline or not at all, because a later response is lost with the invocation.

use std::time::Duration;

use lambda_once::{
    AfterUnknown, Builder, Deadline, ErrorKind, Failure, Idempotency, MemoryStore, Outcome,
    store::fault::{Call, Fault},
};
use tokio::time::{Instant, sleep};

use super::{
    CHARGE, KEY, World, assert_outcome,
    support::{FUTURE, clock::block},
};

/// The time that the invocations have. The default reserve is a second, half of which is for settles.
const LEFT: Duration = Duration::from_secs(20);
const HALF_OF_THE_RESERVE: Duration = Duration::from_millis(19_500);
/// The end of late settles.
const LATEST: Duration = Duration::from_millis(19_950);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The way in which a handler spends its time.
#[derive(Clone, Copy, Debug)]
enum Spends {
    /// It waits, and yields.
    Waiting(u64),
    /// It blocks its thread.
    Blocking(u64),
}

impl World {
    /// Runs a handler that spends this many milliseconds and ends as given, and returns its outcome and the time until
    /// then.
    async fn spend(&self, time: Spends, deadline: Deadline, end: Result<u32, Failure>) -> (Outcome<u32>, Duration) {
        let begun = Instant::now();
        let handler = || async move {
            match time {
                Spends::Waiting(time) => sleep(millis(time)).await,
                Spends::Blocking(time) => block(millis(time)),
            }
            end
        };
        let outcome = self.once.operation(CHARGE, KEY).deadline(deadline).run(handler).await.unwrap();
        (outcome, begun.elapsed())
    }
}

fn deadline() -> Deadline {
    Deadline::at(FUTURE.after(LEFT))
}

/// Creates a world whose settles have this fault.
fn settles_meet(fault: Fault, settings: impl FnOnce(Builder) -> Builder) -> World {
    let world = World::with(settings);
    world.store.always(Call::Settle, fault);
    world
}

#[tokio::test(start_paused = true)]
async fn settles_end_at_half_of_the_reserve() {
    for fault in [Fault::Silence, Fault::Throttled, Fault::ErrorBefore] {
        // A tenth of a second is still left after the longest.
        for time in [Spends::Waiting(0), Spends::Waiting(18_990), Spends::Blocking(19_200), Spends::Blocking(19_400)] {
            let world = settles_meet(fault, |builder| builder);
            let (outcome, known) = world.spend(time, deadline(), Ok(7)).await;
            assert_outcome!(outcome, Outcome::Unrecorded(7));
            assert!(known <= HALF_OF_THE_RESERVE, "{fault:?}, {time:?}: {known:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn settles_that_begin_later_end_before_the_deadline() {
    for time in [19_510, 19_700, 19_860, 19_910, 19_970] {
        for end in [Ok(7), Err("no such card"), Err("transient")] {
            for fault in [Fault::Silence, Fault::Throttled] {
                let world = settles_meet(fault, |builder| builder);
                let failure =
                    |text| if text == "transient" { Failure::transient(text) } else { Failure::permanent(text) };
                let (_, known) = world.spend(Spends::Blocking(time), deadline(), end.map_err(failure)).await;
                let latest = if millis(time) < LATEST { LATEST } else { LEFT - millis(1) };
                assert!(known <= latest, "{fault:?}, blocked for {time} ms, {end:?}: known at {known:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_begins_later_has_until_shortly_before_the_deadline() {
    let world = World::new();
    world.store.next(Call::Settle, Fault::Delay(millis(240)));
    let (outcome, known) = world.spend(Spends::Blocking(19_700), deadline(), Ok(7)).await;
    assert_outcome!(outcome, Outcome::Executed(7));
    assert_eq!(known, millis(19_940));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(7)));
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_begins_later_is_sent_again_while_there_is_time() {
    let world = World::new();
    world.store.next(Call::Settle, Fault::Throttled);
    let (outcome, _) = world.spend(Spends::Blocking(19_700), deadline(), Ok(7)).await;
    assert_outcome!(outcome, Outcome::Executed(7));
    assert_eq!(world.count(Call::Settle), 2);
}

#[tokio::test(start_paused = true)]
async fn with_the_shortest_reserve_settles_end_before_the_deadline() {
    for (time, latest) in [
        (Spends::Waiting(0), 19_900),
        (Spends::Waiting(19_790), 19_900),
        (Spends::Blocking(19_850), 19_950),
        (Spends::Blocking(19_920), 19_950),
    ] {
        let world = settles_meet(Fault::Silence, |builder| builder.reserve(millis(200)));
        let (outcome, known) = world.spend(time, deadline(), Ok(7)).await;
        assert_outcome!(outcome, Outcome::Unrecorded(7));
        assert!(known <= millis(latest), "{time:?}: {known:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_comes_after_the_deadline_or_without_one_has_a_second() {
    for (time, deadline) in [(20_500, deadline()), (29_500, Deadline::UNKNOWN), (31_000, Deadline::UNKNOWN)] {
        let world = World::new();
        world.store.next(Call::Settle, Fault::Delay(millis(900)));
        let (outcome, known) = world.spend(Spends::Blocking(time), deadline, Ok(7)).await;
        assert_outcome!(outcome, Outcome::Executed(7));
        assert_eq!(known, millis(time + 900));

        let world = settles_meet(Fault::Silence, |builder| builder);
        let (outcome, known) = world.spend(Spends::Blocking(time), deadline, Ok(7)).await;
        assert_outcome!(outcome, Outcome::Unrecorded(7));
        assert!(known <= millis(time + 1_000), "{known:?}");
    }
}

/// Nothing else would free it.
#[tokio::test(start_paused = true)]
async fn under_refuse_a_late_transient_failure_frees_the_key() {
    for (time, deadline) in [(19_600, deadline()), (29_500, Deadline::UNKNOWN)] {
        let world = World::distant(millis(60), |builder| builder.after_unknown(AfterUnknown::Refuse));
        let (outcome, _) = world.spend(Spends::Blocking(time), deadline, Err(Failure::transient("busy"))).await;
        assert_outcome!(outcome, Outcome::Failed(_));
        assert_eq!(world.record().await, None, "after {time} ms");
    }
}

#[test]
fn a_reserve_in_which_nothing_could_be_settled_is_refused() {
    let built = |reserve| Idempotency::builder(MemoryStore::new()).reserve(millis(reserve)).build();
    for reserve in [0, 100, 199] {
        let refused = built(reserve).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Config);
    }
    assert!(built(200).is_ok());
}
