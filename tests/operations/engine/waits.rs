//! Waits for an operation that another worker is running.

use std::{ops::RangeInclusive, time::Duration};

use futures_util::future::{join_all, pending};
use lambda_once::{
    AfterUnknown, Claim, Error, ErrorKind, Failure, Idempotency, Mismatch, MismatchState, Outcome, ProbeResult,
    clock::{Clock, Timestamp},
    record::{RECORD_VERSION, Status},
    store::fault::{Call, Fault},
};
use tokio::time::{Instant, sleep};
use tracing::Level;

use super::{
    CHARGE, KEY, LEASE, MARGIN, MILLISECOND, UNTIL_STOP, World, assert_outcome,
    results::RejectingStore,
    support::{FUTURE, collector::Collector},
};

const SECOND: Duration = Duration::from_secs(1);
/// The part of a wait that remains for its last poll.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// The number of polls after pauses that double from 50 milliseconds to two seconds, each reduced by at most half.
const LOOKS_IN_3_SECONDS: RangeInclusive<usize> = 6..=8;
const LOOKS_IN_10_SECONDS: RangeInclusive<usize> = 9..=15;

impl World {
    /// Runs the operation with enough time to outlast any lease here, waiting for this long while it is in progress.
    async fn wait(&self, time: Duration) -> Result<Outcome<u32>, Error> {
        let operation = self.once.operation(CHARGE, KEY).payload("995 cents").deadline(FUTURE.after(100 * SECOND));
        operation.wait_up_to(time).run(|| self.work()).await
    }

    /// Runs the operation for this long, with this end.
    async fn hold(&self, time: Duration, end: Result<u32, Failure>) -> Result<Outcome<u32>, Error> {
        let held = || async {
            sleep(time).await;
            end
        };
        self.once.operation(CHARGE, KEY).payload("995 cents").run(held).await
    }

    /// Changes the record while the operation is waited for, and returns the duration.
    async fn wait_while(
        &self,
        time: Duration,
        meanwhile: impl Future<Output = ()>,
    ) -> (Result<Outcome<u32>, Error>, Duration) {
        let begun = Instant::now();
        let waited = async { (self.wait(time).await, begun.elapsed()) };
        tokio::join!(waited, meanwhile).0
    }

    fn remove(&self) {
        self.records.remove(&self.once.key_hash(CHARGE, KEY).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_outcome_of_the_running_operation() {
    let world = World::new();
    let begun = Instant::now();
    let (held, waited) = tokio::join!(world.hold(3 * SECOND, Ok(7)), world.wait(20 * SECOND));
    assert_outcome!(held, Ok(Outcome::Executed(7)));
    assert_outcome!(waited, Ok(Outcome::Replayed(7)));
    assert!(begun.elapsed() < 5 * SECOND);
    assert_eq!((world.count(Call::Claim), world.count(Call::Settle), world.runs()), (2, 1, 0));
    assert!(LOOKS_IN_3_SECONDS.contains(&world.count(Call::Read)), "{:?}", world.calls());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_failure_of_the_running_operation() {
    let world = World::new();
    let failure = Failure::permanent("no such card");
    let (_, waited) = tokio::join!(world.hold(SECOND, Err(failure)), world.wait(20 * SECOND));
    assert_outcome!(
        waited,
        Ok(Outcome::ReplayedFailure(failure)) if failure.message.as_deref() == Some("no such card")
    );
    assert_eq!((world.count(Call::Claim), world.runs()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_unless_a_time_is_set() {
    let world = World::new();
    let begun = Instant::now();
    let (_, at_once) = tokio::join!(world.hold(3 * SECOND, Ok(7)), async { (world.run().await, begun.elapsed()) });
    assert_outcome!(at_once, (Ok(Outcome::InProgress { attempt: 1, .. }), took) if took.is_zero());
    assert_eq!(world.count(Call::Read), 0);
}

#[tokio::test(start_paused = true)]
async fn an_operation_not_in_progress_is_not_waited_for() {
    let world = World::new();
    let begun = Instant::now();
    assert_outcome!(world.wait(20 * SECOND).await, Ok(Outcome::Executed(1)));
    assert_outcome!(world.wait(20 * SECOND).await, Ok(Outcome::Replayed(1)));
    let other = world.once.operation(CHARGE, KEY).payload("996 cents").wait_up_to(20 * SECOND).run(|| world.work());
    assert_outcome!(other.await, Ok(Outcome::Mismatch(Mismatch { state: MismatchState::Final, .. })));
    assert_eq!(world.calls(), [Call::Claim, Call::Settle, Call::Claim, Call::Claim]);
    assert!(begun.elapsed().is_zero());
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_released_is_claimed_once_more_and_runs() {
    let world = World::new();
    let (_, waited) = tokio::join!(world.hold(SECOND, Err(Failure::transient("again"))), world.wait(20 * SECOND));
    assert_outcome!(waited, Ok(Outcome::Executed(1)));
    assert_eq!((world.count(Call::Claim), world.count(Call::Settle)), (3, 2));
    let record = world.record().await.unwrap();
    assert_eq!((record.attempt, record.prior_status), (1, None));
}

#[tokio::test(start_paused = true)]
async fn an_operation_whose_record_is_deleted_or_expires_is_claimed_once_more() {
    let world = World::new();
    world.abandon().await;
    let deletion = async { world.remove() };
    assert_outcome!(world.wait_while(20 * SECOND, deletion).await.0, Ok(Outcome::Executed(1)));
    assert_eq!(world.count(Call::Claim), 3);

    let world = World::new();
    world.abandon().await;
    let expiry = world.alter(|record| record.expiration = Some(1));
    assert_outcome!(world.wait_while(20 * SECOND, expiry).await.0, Ok(Outcome::Executed(1)));
    assert_eq!(world.count(Call::Claim), 3);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_waited_for_to_its_end_and_claimed_then_without_a_look() {
    let world = World::new();
    world.abandon().await;
    let (waited, took) = world.wait_while(50 * SECOND, async {}).await;
    assert_outcome!(waited, Ok(Outcome::TookOver(1)));
    assert_eq!(took, LEASE + MARGIN + MILLISECOND);
    let calls = world.calls();
    let (looks, rest) = calls[2..].split_at(calls.len() - 4);
    assert!((18..=36).contains(&looks.len()) && looks.iter().all(|call| *call == Call::Read), "{calls:?}");
    assert_eq!((&calls[..2], rest), (&[Call::Claim; 2][..], &[Call::Claim, Call::Settle][..]));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lasts_as_long_as_the_wait_is_not_taken_over() {
    let world = World::new();
    world.abandon().await;
    let lapse = LEASE + MARGIN + MILLISECOND;
    let (waited, took) = world.wait_while(lapse + LAST_LOOK, async {}).await;
    assert_outcome!(waited, Ok(Outcome::InProgress { .. }));
    assert_eq!((took, world.runs()), (lapse, 0));
}

/// By the store's clock it may not have ended yet.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_as_its_refusal_arrives_is_claimed_after_a_pause() {
    let world = World::new();
    world.abandon().await;
    tokio::time::advance(LEASE + MILLISECOND).await;
    world.store.next(Call::Claim, Fault::Delay(MARGIN));
    let (waited, took) = world.wait_while(20 * SECOND, async {}).await;
    assert_outcome!(waited, Ok(Outcome::TookOver(1)));
    assert!(took > MARGIN, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn where_takeover_is_refused_a_wait_ends_as_abandoned_with_the_lease() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
    world.abandon().await;
    let (waited, took) = world.wait_while(50 * SECOND, async {}).await;
    assert_outcome!(waited, Ok(Outcome::Abandoned { attempt: 1 }));
    assert_eq!((took, world.runs()), (LEASE + MARGIN + MILLISECOND, 0));
}

#[tokio::test(start_paused = true)]
async fn a_takeover_after_a_wait_is_probed() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Probe));
    let operation = || world.once.operation(CHARGE, KEY).deadline(FUTURE.after(100 * SECOND)).wait_up_to(50 * SECOND);
    let found = |_| async { Ok::<_, Failure>(ProbeResult::Done(7)) };
    let lost = || async { Err::<u32, _>(Failure::unknown("timed out")) };
    let held = world.once.operation(CHARGE, KEY).probe(found).run(lost);
    assert_outcome!(held.await, Ok(Outcome::Failed(_)));
    assert_outcome!(operation().probe(found).run(|| world.work()).await, Ok(Outcome::Recovered(7)));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_handed_back_is_taken_over_by_who_waits_for_it() {
    let world = World::new();
    world.abandon().await;
    world.lapse().await;
    let (_, waited) = tokio::join!(world.hold(SECOND, Err(Failure::transient("again"))), world.wait(20 * SECOND));
    assert_outcome!(waited, Ok(Outcome::TookOver(1)));
    assert_eq!(world.record().await.unwrap().attempt, 3);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_is_waited_for_to_its_new_end() {
    let world = World::new();
    world.abandon().await;
    let renewal = async {
        sleep(20 * SECOND).await;
        world.alter(|record| record.lease_until = Some(FUTURE.after(60 * SECOND))).await;
    };
    let (waited, took) = world.wait_while(90 * SECOND, renewal).await;
    assert_outcome!(waited, Ok(Outcome::TookOver(1)));
    assert_eq!((took, world.count(Call::Claim)), (60 * SECOND + MARGIN + MILLISECOND, 3));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_returns_the_last_state() {
    let world = World::new();
    world.abandon().await;
    let lease_until = FUTURE.after(60 * SECOND);
    let renewal = async {
        sleep(5 * SECOND).await;
        world.alter(|record| (record.attempt, record.lease_until) = (2, Some(lease_until))).await;
    };
    let (waited, took) = world.wait_while(10 * SECOND, renewal).await;
    assert_outcome!(waited, Ok(Outcome::InProgress { lease_until: Some(until), attempt: 2 }) if until == lease_until);
    assert_eq!((took, world.count(Call::Claim), world.runs()), (10 * SECOND - LAST_LOOK, 2, 0));
    assert!(LOOKS_IN_10_SECONDS.contains(&world.count(Call::Read)), "{:?}", world.calls());
    assert_eq!(world.calls().last(), Some(&Call::Read), "the last look is at the end");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_before_the_handler_deadline() {
    let world = World::new();
    let begun = Instant::now();
    let hanging = world.another(|builder| builder);
    let held = hanging.operation(CHARGE, KEY).deadline(FUTURE.after(100 * SECOND)).run(pending::<Result<u32, Failure>>);
    let waited = async {
        tokio::task::yield_now().await;
        let outcome = world.once.operation(CHARGE, KEY).wait_up_to(Duration::MAX).run(|| world.work()).await;
        (outcome, begun.elapsed())
    };
    let (_, (outcome, took)) = tokio::join!(held, waited);
    assert_outcome!(outcome, Ok(Outcome::InProgress { .. }));
    assert_eq!((took, world.runs()), (UNTIL_STOP - LAST_LOOK, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_after_a_wait_ends_at_its_invocations_handler_deadline() {
    let world = World::new();
    let begun = Instant::now();
    let hangs = world.once.operation(CHARGE, KEY).wait_up_to(20 * SECOND).heartbeat(None);
    let hangs = hangs.run(pending::<Result<u32, Failure>>);
    let (_, waited) = tokio::join!(world.hold(10 * SECOND, Err(Failure::transient("again"))), hangs);
    assert_outcome!(waited, Ok(Outcome::Interrupted(_)));
    assert_eq!(begun.elapsed(), UNTIL_STOP);
}

/// Otherwise a renewal might not return before the handler deadline.
#[tokio::test(start_paused = true)]
async fn without_a_deadline_a_run_after_a_wait_has_a_whole_lease() {
    let world = World::new();
    let time_left = |claim: Option<Claim>| {
        let left = claim.unwrap().handler_deadline().since(world.clock.now());
        async move { Ok::<_, Failure>(left) }
    };
    let waits = world.once.operation(CHARGE, KEY).payload("995 cents").wait_up_to(60 * SECOND);
    let held = world.hold(20 * SECOND, Err(Failure::transient("again")));
    let (_, waited) = tokio::join!(held, waits.run_with(time_left));
    assert_outcome!(waited, Ok(Outcome::Executed(left)) if left == Duration::from_millis(28_500));
}

#[tokio::test(start_paused = true)]
async fn store_errors_decide_nothing_during_a_wait() {
    for fault in [Fault::Throttled, Fault::ErrorBefore, Fault::ErrorAfter, Fault::AccessDenied] {
        let world = World::new();
        (0..4).for_each(|_| world.store.next(Call::Read, fault));
        let (_, waited) = tokio::join!(world.hold(SECOND, Ok(7)), world.wait(20 * SECOND));
        assert_outcome!(waited, Ok(Outcome::Replayed(7)));
    }
}

#[tokio::test(start_paused = true)]
async fn store_errors_and_silence_do_not_prolong_a_wait() {
    for fault in [Fault::Throttled, Fault::AccessDenied, Fault::Silence, Fault::Delay(60 * SECOND)] {
        let world = World::new();
        world.abandon().await;
        world.store.always(Call::Read, fault);
        let (collector, guard) = Collector::install();
        let (waited, took) = world.wait_while(10 * SECOND, async {}).await;
        drop(guard);
        assert_outcome!(waited, Ok(Outcome::InProgress { lease_until: Some(_), attempt: 1 }));
        assert!((10 * SECOND - LAST_LOOK..=10 * SECOND).contains(&took), "{fault:?} {took:?}");
        assert!(world.count(Call::Read) <= *LOOKS_IN_10_SECONDS.end(), "{fault:?} {:?}", world.calls());
        let lines = collector.lines();
        let warnings: Vec<_> = lines.iter().filter(|line| line.level == Level::WARN).collect();
        assert!(warnings.len() == 1 && !warnings[0].get("error").is_empty(), "{fault:?} {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_is_claimed_although_it_could_not_be_watched() {
    let world = World::new();
    world.abandon().await;
    world.store.always(Call::Read, Fault::AccessDenied);
    let (waited, took) = world.wait_while(50 * SECOND, async {}).await;
    assert_outcome!(waited, Ok(Outcome::TookOver(1)));
    assert_eq!(took, LEASE + MARGIN + MILLISECOND);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_gets_another_payload_during_a_wait_is_a_mismatch() {
    for is_done in [true, false] {
        let world = World::new();
        assert_outcome!(world.hold(Duration::ZERO, Err(Failure::unknown("timed out"))).await, Ok(Outcome::Failed(_)));
        let another = async {
            sleep(SECOND).await;
            world.remove();
            let end = if is_done { Ok(1) } else { Err(Failure::unknown("timed out")) };
            let _ = world.once.operation(CHARGE, KEY).payload("996 cents").run(|| async { end }).await.unwrap();
        };
        let (waited, took) = world.wait_while(20 * SECOND, another).await;
        let Ok(Outcome::Mismatch(Mismatch { state, .. })) = waited else { panic!("not a mismatch: {waited:?}") };
        assert_eq!(matches!(state, MismatchState::InProgress { .. }), !is_done, "{state:?}");
        assert!(took < 4 * SECOND, "{took:?}");
        assert_eq!((world.count(Call::Claim), world.runs()), (3, 0));
    }
}

/// It does not become readable while it is waited for.
#[tokio::test]
async fn an_unreadable_record_ends_a_wait_with_an_error() {
    let once = Idempotency::builder(RejectingStore::new(ErrorKind::Format)).disabled(false).build().unwrap();
    let lost = || async { Err::<u32, _>(Failure::unknown("timed out")) };
    assert_outcome!(once.operation(CHARGE, KEY).run(lost).await, Ok(Outcome::Failed(_)));
    let waited = once.operation(CHARGE, KEY).wait_up_to(20 * SECOND).run(lost).await;
    assert_outcome!(waited, Err(error) if error.kind() == ErrorKind::Format);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_an_unknown_version_ends_a_wait_with_an_error() {
    let world = World::new();
    world.abandon().await;
    let newer = async { world.alter(|record| record.version = RECORD_VERSION + 2).await };
    let (waited, _) = world.wait_while(20 * SECOND, newer).await;
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Format);
    assert_eq!((world.count(Call::Claim), world.runs()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_record_without_a_lease_is_watched() {
    let world = World::new();
    world.abandon().await;
    world.alter(|record| (record.owner, record.lease_until) = (None, None)).await;
    let completion = async {
        sleep(SECOND).await;
        world.alter(|record| record.status = Status::Completed).await;
    };
    assert_outcome!(world.wait_while(20 * SECOND, completion).await.0, Ok(Outcome::ReplayedWithoutResult));
}

#[tokio::test(start_paused = true)]
async fn a_lease_over_by_the_engines_clock_alone_is_claimed_at_the_usual_pauses() {
    // The store's clock is behind by more than the margin.
    let world = World::new();
    world.abandon().await;
    let ahead = world.another(|builder| builder.clock(Ahead(world.clock.clone())));
    // Without pauses the test would hang, because no time would pass.
    (0..*LOOKS_IN_10_SECONDS.end() + 1).for_each(|_| world.store.next(Call::Claim, Fault::Delay(Duration::ZERO)));
    world.store.always(Call::Claim, Fault::AccessDenied);
    let begun = Instant::now();
    let deadline = FUTURE.after(200 * SECOND);
    let outcome = ahead.operation(CHARGE, KEY).deadline(deadline).wait_up_to(10 * SECOND).run(|| world.work()).await;
    assert_outcome!(outcome, Ok(Outcome::InProgress { .. }));
    assert_eq!((begun.elapsed(), world.count(Call::Read)), (10 * SECOND - LAST_LOOK, 0));
    // The first one made it abandoned.
    assert!(LOOKS_IN_10_SECONDS.contains(&(world.count(Call::Claim) - 1)), "{:?}", world.calls());
}

/// A clock that is ahead of the one that it follows.
#[derive(Clone, Debug)]
struct Ahead(super::support::clock::TokioClock);

impl lambda_once::clock::Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.0.now().after(60 * SECOND)
    }
}

#[tokio::test(start_paused = true)]
async fn of_64_that_wait_for_a_release_one_runs_and_the_others_get_its_result() {
    let world = World::new();
    let slow = || async {
        sleep(SECOND).await;
        world.work().await
    };
    let waiting = (0..64).map(|_| world.once.operation(CHARGE, KEY).wait_up_to(20 * SECOND).run(slow));
    let held = world.once.operation(CHARGE, KEY).run(|| async {
        sleep(SECOND).await;
        Err::<u32, _>(Failure::transient("again"))
    });
    let (_, outcomes) = tokio::join!(held, join_all(waiting));
    let count = |name| outcomes.iter().filter(|outcome| outcome.as_ref().unwrap().as_str() == name).count();
    assert_eq!((count("executed"), count("replayed"), world.runs()), (1, 63, 1));
}
