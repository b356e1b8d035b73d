//! Claims and their refusals.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use lambda_once::{
    AfterUnknown, BoxFuture, Deadline, Difference, Error, ErrorKind, ErrorStatus, Failure, Idempotency, MemoryStore,
    Mismatch, MismatchState, OperationSettings, Outcome, PayloadPart, Store,
    clock::{Clock, ManualClock, Timestamp},
    record::{Fingerprint, RECORD_VERSION, Status},
    store::{
        Answers, ClaimRequest, Claimed,
        fault::{Call, Fault, FaultStore},
    },
};
use tokio::time::sleep;
use tracing::Level;

use super::{
    CHARGE, KEY, LEASE, MARGIN, MILLISECOND, World, assert_outcome,
    support::{FUTURE, clock::WrongClock, collector::Collector, delegate::delegate},
};

const SECOND: Duration = Duration::from_secs(1);
const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[tokio::test(start_paused = true)]
async fn a_new_operation_takes_two_calls_and_a_repeated_one_takes_one() {
    let world = World::new();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_eq!(world.calls(), [Call::Claim, Call::Settle]);
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    assert_eq!(world.calls(), [Call::Claim, Call::Settle, Call::Claim]);
}

// Tests P5.
#[tokio::test(start_paused = true)]
async fn of_64_concurrent_runs_one_executes() {
    let world = World::new();
    let slow = || async {
        tokio::time::sleep(LEASE / 2).await;
        world.work().await
    };
    let outcomes = join_all((0..64).map(|_| world.once.operation(CHARGE, KEY).run(slow))).await;
    let count = |name| outcomes.iter().filter(|outcome| outcome.as_ref().unwrap().as_str() == name).count();
    assert_eq!((count("executed"), count("in_progress"), world.runs()), (1, 63, 1));
}

// Tests C5.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_response_was_lost_is_recognized_and_counts_once() {
    let world = World::new();
    world.store.next(Call::Claim, Fault::ErrorAfter);
    let mut attempt = 0;
    let outcome = world.once.operation(CHARGE, KEY).run_with(|claim| {
        attempt = claim.unwrap().attempt();
        world.work()
    });
    assert_outcome!(outcome.await, Ok(Outcome::Executed(1)));
    assert_eq!(attempt, 1);
    let record = world.record().await.unwrap();
    assert_eq!((record.attempt, record.prior_status), (1, None));
}

// Tests C8, P10.
#[tokio::test(start_paused = true)]
async fn a_takeover_whose_response_was_lost_still_took_over() {
    let world = World::new();
    world.abandon().await;
    world.lapse().await;
    world.store.next(Call::Claim, Fault::ErrorAfter);
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
    assert_eq!(world.record().await.unwrap().attempt, 2);
}

/// Services that the handler calls get it as their idempotency key.
// Tests P15.
#[tokio::test(start_paused = true)]
async fn a_claim_has_the_same_key_in_every_run() {
    let world = World::new();
    let mut keys = Vec::new();
    let (transient, unknown) = (Failure::transient("try again"), Failure::unknown("timed out"));
    for (end, outcome) in [(Err(transient), "failed"), (Err(unknown), "failed"), (Ok(1), "took_over")] {
        let run = world.once.operation(CHARGE, KEY).run_with(|claim| {
            keys.push(claim.unwrap().key());
            async move { end }
        });
        assert_eq!(run.await.unwrap().as_str(), outcome);
        world.lapse().await;
    }
    assert_eq!(keys, [world.once.key_hash(CHARGE, KEY).unwrap(); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_claim_is_tried_again() {
    let world = World::new();
    world.store.next(Call::Claim, Fault::Throttled);
    world.store.next(Call::Claim, Fault::ErrorBefore);
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_eq!(world.count(Call::Claim), 3);
}

/// A handler that runs meanwhile blocks the thread, or the process is frozen.
#[tokio::test(start_paused = true)]
async fn a_claim_is_not_sent_again_after_a_pause_that_took_too_long() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        let world = World::with(|builder| builder.after_unknown(policy));
        world.store.next(Call::Claim, Fault::Throttled);
        let (outcome, ()) = tokio::join!(world.run(), async { world.clock.jump(LEASE) });
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Throttled);
        assert_eq!((world.count(Call::Claim), world.record().await), (1, None));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_claim_nothing_runs() {
    for (fault, kind, claims) in [
        (Fault::Throttled, ErrorKind::Throttled, 3),
        (Fault::ErrorBefore, ErrorKind::Unavailable, 3),
        (Fault::ErrorAfter, ErrorKind::Unavailable, 3),
        (Fault::AccessDenied, ErrorKind::AccessDenied, 1),
        (Fault::Silence, ErrorKind::Timeout, 3),
    ] {
        let world = World::new();
        world.store.always(Call::Claim, fault);
        let error = world.run().await.unwrap_err();
        assert_eq!((error.kind(), world.count(Call::Claim)), (kind, claims), "{fault:?}");
        assert!(error.is_retryable());
        // A claim that was applied without a response is released.
        let given_back = usize::from(matches!(fault, Fault::ErrorAfter | Fault::Silence));
        assert_eq!((world.runs(), world.count(Call::Settle)), (0, given_back), "{fault:?}");
        assert_eq!(world.record().await, None, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_applied_claim_is_released_whatever_came_after_its_lost_result() {
    let world = World::new();
    world.store.next(Call::Claim, Fault::ErrorAfter);
    world.store.always(Call::Claim, Fault::Throttled);
    assert_eq!(world.run().await.unwrap_err().kind(), ErrorKind::Throttled);
    assert_eq!((world.runs(), world.record().await), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_response_is_released_within_the_settle_time() {
    let world = World::new();
    world.store.always(Call::Claim, Fault::Silence);
    world.store.next(Call::Read, Fault::Delay(Duration::from_millis(50)));
    world.store.next(Call::Settle, Fault::Delay(Duration::from_millis(50)));
    assert_eq!(world.run().await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!((world.runs(), world.record().await), (0, None));
}

// Tests C2.
#[tokio::test(start_paused = true)]
async fn another_payload_is_a_mismatch_whatever_became_of_the_first() {
    let world = World::new();
    let running = world.once.operation(CHARGE, KEY).payload("995 cents").run(|| async {
        let standing = MismatchState::InProgress { lease_until: Some(world.clock.now().after(LEASE)), attempt: 1 };
        assert_outcome!(world.run_on("996 cents").await, Ok(Outcome::Mismatch(mismatch)) if mismatch.state == standing);
        Err::<u32, _>(lambda_once::Failure::unknown("timed out"))
    });
    assert_outcome!(running.await, Ok(Outcome::Failed(_)));
    world.lapse().await;
    assert_outcome!(
        world.run_on("996 cents").await,
        Ok(Outcome::Mismatch(Mismatch { state: MismatchState::Abandoned { attempt: 1 }, .. }))
    );
    assert_outcome!(world.run_on("995 cents").await, Ok(Outcome::TookOver(1)));
    assert_outcome!(
        world.run_on("996 cents").await,
        Ok(Outcome::Mismatch(Mismatch { state: MismatchState::Final, .. }))
    );
    assert_outcome!(world.run_on("995 cents").await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_names_the_differing_part() {
    let world = World::new();
    assert_outcome!(world.run_on("995 cents").await, Ok(Outcome::Executed(1)));
    let Ok(Outcome::Mismatch(mismatch)) = world.run_on("996 cents").await else { panic!("not a mismatch") };
    assert_eq!(mismatch.difference, Difference::of([PayloadPart::Body]));
    assert_eq!(mismatch.to_string(), "the key was used with another payload: the body differs");
}

/// Returns a fingerprint of a whole payload and of two of its parts. Zeros are for a part that it does not have.
fn fingerprint(whole: u8, headers: u8, body: u8) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes[..16].fill(whole);
    bytes[24..28].fill(headers);
    bytes[28..].fill(body);
    Fingerprint::from_bytes(bytes)
}

#[test]
fn headers_that_only_one_payload_has_are_the_differing_part() {
    let (body, both) = (fingerprint(1, 0, 3), fingerprint(2, 7, 3));
    for difference in [body.difference(&both), both.difference(&body)] {
        assert_eq!(difference, Difference::of([PayloadPart::Headers]));
    }
}

#[test]
fn a_fingerprint_is_printed_with_the_version_of_its_payload() {
    let fingerprint = Fingerprint::from_bytes([0xab; 32]).with_payload_version(2);
    assert_eq!(fingerprint.to_string(), format!("v2:{}", "ab".repeat(32)));
}

#[tokio::test(start_paused = true)]
async fn a_payload_of_another_version_is_replayed_without_comparison() {
    let world = World::new();
    let on = |payload: &'static str, version| {
        let settings = OperationSettings::new().payload_version(version);
        world.once.operation(CHARGE, KEY).payload(payload).with_settings(settings).run(|| world.work())
    };
    assert_outcome!(world.run_on("995 cents").await, Ok(Outcome::Executed(1)));
    assert_outcome!(on("995 cents", 1).await, Ok(Outcome::Replayed(1)));
    assert_outcome!(on("996 EUR", 2).await, Ok(Outcome::ReplayedOtherVersion(1)));
    assert_outcome!(on("996 EUR", 1).await, Ok(Outcome::Mismatch(_)));
}

#[tokio::test(start_paused = true)]
async fn a_payload_of_another_version_takes_over_and_is_compared_from_then_on() {
    let world = World::new();
    let on = |payload: &'static str, version| {
        let settings = OperationSettings::new().payload_version(version);
        world.once.operation(CHARGE, KEY).payload(payload).with_settings(settings)
    };
    let lost = on("995 cents", 1).run(|| async { Err::<u32, _>(lambda_once::Failure::unknown("timed out")) });
    assert_outcome!(lost.await, Ok(Outcome::Failed(_)));
    assert_outcome!(on("9.95 EUR", 2).run(|| world.work()).await, Ok(Outcome::InProgress { .. }));
    world.lapse().await;
    assert_outcome!(on("9.95 EUR", 2).run(|| world.work()).await, Ok(Outcome::TookOver(1)));
    assert_outcome!(on("9.96 EUR", 2).run(|| world.work()).await, Ok(Outcome::Mismatch(_)));
    // A worker of the old version is still running.
    assert_outcome!(on("995 cents", 1).run(|| world.work()).await, Ok(Outcome::ReplayedOtherVersion(1)));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_gives_no_payload_matches_any() {
    let world = World::new();
    assert_outcome!(world.run_on("995 cents").await, Ok(Outcome::Executed(1)));
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_payload_is_compared_in_canonical_form() {
    let world = World::new();
    let on = |json: &str| {
        let payload: serde_json::Value = serde_json::from_str(json).unwrap();
        world.once.operation(CHARGE, KEY).payload(&payload).run(|| world.work())
    };
    assert_outcome!(on(r#"{"a": 1, "b": 2.0}"#).await, Ok(Outcome::Executed(1)));
    assert_outcome!(on(r#"{"b": 2.0, "a": 1}"#).await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_release_forgets_the_payload() {
    let world = World::new();
    let failing = world.once.operation(CHARGE, KEY).payload("a").run(|| async { Err::<u32, _>("try again") });
    assert_outcome!(failing.await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.run_on("b").await, Ok(Outcome::Executed(1)));
}

// Tests C7, L3, P6, P10.
#[tokio::test(start_paused = true)]
async fn a_claim_is_taken_over_only_after_its_lease_and_the_margin() {
    let world = World::new();
    world.abandon().await;
    tokio::time::advance(LEASE + MARGIN).await;
    let lease_until = super::support::FUTURE.after(LEASE);
    assert_outcome!(
        world.run().await,
        Ok(Outcome::InProgress { lease_until: Some(until), attempt: 1 }) if until == lease_until
    );
    tokio::time::advance(MILLISECOND).await;
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

// Tests C7, P11.
#[tokio::test(start_paused = true)]
async fn under_refuse_a_lost_outcome_stays_abandoned_until_its_retention_ends() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse));
    world.abandon().await;
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { .. }));
    world.lapse().await;
    assert_outcome!(world.run().await, Ok(Outcome::Abandoned { attempt: 1 }));
    tokio::time::advance(MONTH / 3).await;
    assert_outcome!(world.run().await, Ok(Outcome::Abandoned { attempt: 1 }));
    tokio::time::advance(MONTH).await;
    // Nothing is taken over, so a failure without an effect frees the key.
    assert_outcome!(world.run_to(Err(Failure::transient("again"))).await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
}

// Tests C1, C8.
#[tokio::test(start_paused = true)]
async fn an_expired_outcome_counts_as_absent_and_is_not_taken_over() {
    let world = World::new();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    tokio::time::advance(MONTH / 2 - MILLISECOND).await;
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    tokio::time::advance(MILLISECOND + Duration::from_secs(1)).await;
    assert_outcome!(world.run().await, Ok(Outcome::Executed(2)));
    assert_eq!(world.record().await.unwrap().prior_status, Some(Status::Completed));
}

/// Runs the operation in an execution environment that is frozen for `time` during its claim, which takes two seconds.
async fn run_frozen_while_claiming(world: &World, time: Duration) -> Result<Outcome<u32>, Error> {
    world.store.next(Call::Claim, Fault::Delay(Duration::from_secs(2)));
    let freeze = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.clock.jump(time);
    };
    tokio::join!(world.run(), freeze).0
}

// Tests C9.
#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_after_its_own_lease_starts_nothing() {
    for time in [LEASE - Duration::from_secs(2), LEASE] {
        let world = World::new();
        let outcome = run_frozen_while_claiming(&world, time).await;
        assert_outcome!(outcome, Ok(Outcome::InProgress { attempt: 1, .. }));
        assert_eq!((world.runs(), world.record().await), (0, None), "it is given back");
    }
}

// Tests C9.
#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_after_the_handler_deadline_is_released() {
    let world = World::new();
    let outcome = run_frozen_while_claiming(&world, LEASE - Duration::from_secs(3)).await;
    assert_outcome!(outcome, Ok(Outcome::NotStarted));
    assert_eq!((world.runs(), world.record().await), (0, None));
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
}

// Tests S9.
#[tokio::test(start_paused = true)]
async fn a_takeover_that_is_not_started_is_handed_back() {
    let world = World::new();
    world.abandon().await;
    world.lapse().await;
    let outcome = run_frozen_while_claiming(&world, LEASE - Duration::from_secs(3)).await;
    assert_outcome!(outcome, Ok(Outcome::NotStarted));
    assert_eq!(world.record().await.unwrap().lease_until, Some(Timestamp::EPOCH));
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

#[tokio::test(start_paused = true)]
async fn with_no_time_left_nothing_is_claimed() {
    for is_disabled in [false, true] {
        // The shortest default reserve is half a second.
        for left in [400, 500] {
            let world = World::with(|builder| builder.disabled(is_disabled));
            let deadline = FUTURE.after(Duration::from_millis(left));
            let outcome = world.once.operation(CHARGE, KEY).deadline(deadline).run(|| world.work()).await;
            assert_outcome!(outcome, Ok(Outcome::NotStarted));
            assert_eq!((world.runs(), world.calls()), (0, vec![]), "{left}, {is_disabled}");
        }
    }
}

// Tests S7.
#[tokio::test(start_paused = true)]
async fn a_record_of_an_unknown_version_is_left_to_a_newer_deployment() {
    let world = World::new();
    world.abandon().await;
    world.alter(|record| record.version = RECORD_VERSION + 2).await;
    world.lapse().await;
    let error = world.run().await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Format, ErrorStatus::Temporary));
    assert_eq!((world.runs(), world.count(Call::Settle)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_record_of_the_next_version_is_understood() {
    let world = World::new();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.alter(|record| record.version = RECORD_VERSION + 1).await;
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

// Tests C6.
#[tokio::test(start_paused = true)]
async fn a_running_record_without_a_lease_is_live_until_it_expires() {
    let world = World::new();
    world.abandon().await;
    world.alter(|record| (record.owner, record.lease_until) = (None, None)).await;
    tokio::time::advance(MONTH / 3).await;
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { lease_until: None, .. }));
    tokio::time::advance(MONTH).await;
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
}

/// Runs two operations on an engine whose clock may differ from the store's, and returns the last outcome and the number
/// of warnings about the clocks.
async fn run_twice_by_clocks(engines: impl Clock + Clone, stores: impl Clock) -> (Outcome<u32>, usize) {
    let once = Idempotency::builder(MemoryStore::with_clock(stores)).clock(engines.clone()).build().unwrap();
    let (collector, guard) = Collector::install();
    let mut last = None;
    for key in [1, 2] {
        let deadline = Deadline::at(engines.now().after(3 * SECOND));
        last = Some(once.operation(CHARGE, &key).deadline(deadline).run(async || Ok::<_, Failure>(key)).await.unwrap());
    }
    drop(guard);
    let lines = collector.lines();
    let warnings = lines.iter().filter(|line| line.level == Level::WARN && !line.get("stored_lease_until").is_empty());
    (last.unwrap(), warnings.count())
}

#[tokio::test]
async fn a_store_whose_clock_is_wrong_holds_nothing_up_and_is_warned_of_once() {
    let hour = 3_600 * SECOND;
    for (engines, stores, warnings) in [
        (WrongClock::Ahead(hour), WrongClock::Ahead(Duration::ZERO), 1),
        (WrongClock::Behind(hour), WrongClock::Ahead(Duration::ZERO), 1),
        (WrongClock::Ahead(5 * SECOND), WrongClock::Ahead(Duration::ZERO), 1),
        (WrongClock::Ahead(Duration::ZERO), WrongClock::Ahead(MARGIN / 2), 0),
        (WrongClock::Ahead(Duration::ZERO), WrongClock::Behind(MARGIN / 2), 0),
    ] {
        let (outcome, warned) = run_twice_by_clocks(engines, stores).await;
        assert!(matches!(outcome, Outcome::Executed(2)), "{engines:?} {stores:?}: {outcome:?}");
        assert_eq!(warned, warnings, "{engines:?} {stores:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_differs_by_the_skew_margin_is_not_warned_of() {
    let more = MARGIN + MILLISECOND;
    for (stores, warnings) in
        [(FUTURE.before(MARGIN), 0), (FUTURE.after(MARGIN), 0), (FUTURE.before(more), 1), (FUTURE.after(more), 1)]
    {
        let (outcome, warned) = run_twice_by_clocks(ManualClock::at(FUTURE), ManualClock::at(stores)).await;
        assert_outcome!(outcome, Outcome::Executed(2));
        assert_eq!(warned, warnings, "{stores:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_response_is_not_reported_as_clock_skew() {
    let world = World::new();
    world.store.next(Call::Claim, Fault::ErrorBefore);
    world.store.next(Call::Claim, Fault::Delay(2 * SECOND));
    let (collector, guard) = Collector::install();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    drop(guard);
    assert!(collector.lines().iter().all(|line| line.level > Level::WARN));
}

/// A store at which the first claim arrives late, and whose response to it is lost.
#[derive(Clone, Debug)]
struct LateOnce {
    records: FaultStore<MemoryStore>,
    is_first: Arc<AtomicBool>,
}

impl Store for LateOnce {
    delegate!(records: settle, read, limits, id, warm_up);

    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            if self.is_first.swap(false, Ordering::SeqCst) {
                sleep(MARGIN + 1_500 * MILLISECOND).await;
            }
            self.records.claim(requests).await
        })
    }
}

/// The second request gets the grant of the first, whose lease counts from its arrival (C5).
#[tokio::test(start_paused = true)]
async fn a_late_claim_that_is_recognized_is_not_reported_as_clock_skew() {
    let world = World::new();
    world.store.next(Call::Claim, Fault::ErrorAfter);
    let store = LateOnce { records: world.store.clone(), is_first: Arc::new(AtomicBool::new(true)) };
    let once = Idempotency::builder(store).clock(world.clock.clone()).build().unwrap();
    let (collector, guard) = Collector::install();
    assert_outcome!(once.operation(CHARGE, KEY).run(|| world.work()).await, Ok(Outcome::Executed(1)));
    drop(guard);
    assert_eq!(world.calls(), [Call::Claim, Call::Claim, Call::Settle]);
    assert!(collector.lines().iter().all(|line| line.level > Level::WARN), "{:?}", collector.lines());
}
