//! Probes of operations whose outcome was lost, if the caller can determine it.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use lambda_once::{
    AfterUnknown, Claim, Classify, Error, ErrorKind, Failure, Interruption, Key, Mismatch, MismatchState, OnPanic,
    Outcome, ProbeResult, Verdict,
    clock::Timestamp,
    record::Status,
    store::fault::{Call, Fault},
};
use lambda_runtime::{Context, LambdaEvent, Service};
use tokio::time::Instant;
use tracing::Level;

use super::{
    CHARGE, KEY, LEASE, MARGIN, MILLISECOND, UNTIL_STOP, World, assert_outcome,
    support::{FUTURE, collector::Collector},
};

type Found = Result<ProbeResult<u32>, Failure>;

async fn never_called(_: Claim) -> Found {
    panic!("the probe is asked")
}

async fn found(_: Claim) -> Found {
    Ok(ProbeResult::Done(7))
}

async fn nothing(_: Claim) -> Found {
    Ok(ProbeResult::NotDone)
}

async fn hangs(_: Claim) -> Found {
    std::future::pending().await
}

impl World {
    fn probing() -> Self {
        Self::with(|builder| builder.after_unknown(AfterUnknown::Probe))
    }

    /// Runs the operation with this probe, and with work that succeeds.
    async fn probe<F>(&self, probe: impl FnOnce(Claim) -> F + Send) -> Result<Outcome<u32>, Error>
    where
        F: Future<Output = Found> + Send,
    {
        self.once.operation(CHARGE, KEY).payload("995 cents").probe(probe).run(|| self.work()).await
    }

    /// Runs a new operation with this end.
    async fn end(&self, end: Result<u32, Failure>) -> Result<Outcome<u32>, Error> {
        self.once.operation(CHARGE, KEY).payload("995 cents").probe(never_called).run(|| async { end }).await
    }

    /// Creates a world with an operation whose outcome was lost, and whose claim may be taken over.
    async fn lost() -> Self {
        Self::lost_from(Self::probing()).await
    }

    async fn lost_from(world: Self) -> Self {
        assert_outcome!(world.end(Err(Failure::unknown("timed out"))).await, Ok(Outcome::Failed(_)));
        world.lapse().await;
        assert_eq!(world.calls(), [Call::Claim]);
        world
    }
}

// Tests C7, P12.
#[tokio::test(start_paused = true)]
async fn a_probe_result_is_recorded_and_replayed_without_a_run() {
    let world = World::lost().await;
    assert_outcome!(world.probe(found).await, Ok(Outcome::Recovered(7)));
    assert_eq!(world.calls(), [Call::Claim, Call::Claim, Call::Settle]);
    assert_outcome!(world.probe(never_called).await, Ok(Outcome::Replayed(7)));
    assert_eq!((world.count(Call::Claim), world.count(Call::Settle), world.runs()), (3, 1, 0));
    assert_eq!(world.record().await.unwrap().status, Status::Completed);
}

// Tests P12.
#[tokio::test(start_paused = true)]
async fn an_operation_that_was_not_done_runs_after_its_probe() {
    let world = World::lost().await;
    assert_outcome!(world.probe(nothing).await, Ok(Outcome::TookOver(1)));
    assert_eq!(world.calls(), [Call::Claim, Call::Claim, Call::Settle]);
    assert_outcome!(world.probe(never_called).await, Ok(Outcome::Replayed(1)));
}

// Tests C7, P14.
#[tokio::test(start_paused = true)]
async fn a_probe_is_called_only_after_a_takeover() {
    let world = World::probing();
    assert_outcome!(world.end(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.end(Err(Failure::unknown("timed out"))).await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.probe(never_called).await, Ok(Outcome::InProgress { attempt: 1, .. }));
    world.lapse().await;
    let other = world.once.operation(CHARGE, KEY).payload("996 cents").probe(never_called).run(|| world.work());
    assert_outcome!(
        other.await,
        Ok(Outcome::Mismatch(Mismatch { state: MismatchState::Abandoned { attempt: 1 }, .. }))
    );
    world.records.remove(&world.once.key_hash(CHARGE, KEY).unwrap());
    assert_outcome!(world.probe(never_called).await, Ok(Outcome::Executed(1)));
    assert_outcome!(world.probe(never_called).await, Ok(Outcome::Replayed(1)));
}

/// Its payload was not compared, so the probe could find the effect of a different one.
// Tests C1, C8.
#[tokio::test(start_paused = true)]
async fn a_claim_over_one_that_has_expired_is_not_probed() {
    let world = World::lost().await;
    tokio::time::advance(Duration::from_secs(31 * 24 * 3_600)).await;
    let other = world.once.operation(CHARGE, KEY).payload("996 cents").probe(never_called).run(|| world.work());
    assert_outcome!(other.await, Ok(Outcome::Executed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_takeover_whose_response_was_lost_is_probed() {
    let world = World::lost().await;
    world.store.next(Call::Claim, Fault::ErrorAfter);
    assert_outcome!(world.probe(found).await, Ok(Outcome::Recovered(7)));
}

// Tests C7, P12.
#[tokio::test(start_paused = true)]
async fn during_a_probe_nobody_else_probes_or_runs_the_operation() {
    let world = World::lost().await;
    let outcome = world.probe(|claim| {
        let world = &world;
        async move {
            assert!(claim.took_over());
            assert_eq!((claim.key(), claim.attempt()), (world.once.key_hash(CHARGE, KEY).unwrap(), 2));
            assert_outcome!(world.probe(never_called).await, Ok(Outcome::InProgress { attempt: 2, .. }));
            Ok(ProbeResult::Done(7))
        }
    });
    assert_outcome!(outcome.await, Ok(Outcome::Recovered(7)));
}

// Tests S9, P12.
#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_hands_the_claim_back_whatever_the_errors_verdict() {
    for verdict in [Verdict::Transient, Verdict::Permanent, Verdict::Unknown] {
        let world = World::lost().await;
        let fails = |_| async move { Err(Failure::new(verdict, "no answer")) };
        assert_outcome!(
            world.probe(fails).await,
            Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient && failure.to_string() == "no answer"
        );
        assert_eq!(world.calls(), [Call::Claim, Call::Claim, Call::Settle]);
        let record = world.record().await.unwrap();
        assert_eq!((record.status, record.owner), (Status::InProgress, None), "{verdict:?}");
        assert_eq!((record.lease_until, world.runs()), (Some(Timestamp::EPOCH), 0), "{verdict:?}");
        assert_outcome!(world.probe(found).await, Ok(Outcome::Recovered(7)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_marked_error_of_a_probe_hands_the_claim_back_too() {
    let world = World::lost().await;
    let outcome = world.probe(|_| async { Ok(ProbeResult::Done("seven".parse().permanent()?)) });
    assert_outcome!(outcome.await, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
    assert_outcome!(world.probe(nothing).await, Ok(Outcome::TookOver(1)));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_fails_after_its_probe_is_probed_again() {
    let world = World::lost().await;
    let failing =
        world.once.operation(CHARGE, KEY).probe(nothing).run(|| async { Err(Failure::transient("try again")) });
    assert_outcome!(failing.await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.probe(found).await, Ok(Outcome::Recovered(7)));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_probe_keeps_the_claim_and_the_next_run_probes_again() {
    let world = World::lost().await;
    let panics = |_| async { panic!("oh") as Found };
    assert_outcome!(world.probe(panics).await, Ok(Outcome::Interrupted(Interruption::Panicked)));
    assert_outcome!(world.probe(never_called).await, Ok(Outcome::InProgress { attempt: 2, .. }));
    world.lapse().await;
    #[expect(unreachable_code, unused_variables, reason = "the closure panics before it makes a future")]
    let at_once = world.probe(|claim| {
        panic!("oh");
        found(claim)
    });
    assert_outcome!(at_once.await, Ok(Outcome::Interrupted(Interruption::Panicked)));
    world.lapse().await;
    assert_outcome!(world.probe(found).await, Ok(Outcome::Recovered(7)));
    assert_eq!((world.count(Call::Settle), world.runs()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_probe_that_is_set_to_transient_hands_the_claim_back() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Probe).on_panic(OnPanic::Transient));
    let world = World::lost_from(world).await;
    let panics = |_| async { panic!("oh") as Found };
    assert_outcome!(world.probe(panics).await, Ok(Outcome::Interrupted(Interruption::Panicked)));
    assert_outcome!(world.probe(found).await, Ok(Outcome::Recovered(7)));
}

// Tests L7.
#[tokio::test(start_paused = true)]
async fn a_hung_probe_is_cancelled_and_the_next_run_probes_again() {
    let settings = World::with(|builder| builder.after_unknown(AfterUnknown::Probe).heartbeat(None));
    let world = World::lost_from(settings).await;
    let begun = Instant::now();
    assert_outcome!(world.probe(hangs).await, Ok(Outcome::Interrupted(Interruption::Cancelled)));
    assert_eq!((begun.elapsed(), world.runs()), (UNTIL_STOP, 0));
    assert_eq!(world.calls(), [Call::Claim, Call::Claim], "the claim is kept");
    world.lapse().await;
    assert_outcome!(world.probe(found).await, Ok(Outcome::Recovered(7)));
}

#[tokio::test(start_paused = true)]
async fn a_probe_and_the_run_after_it_share_one_handler_deadline() {
    let world = World::lost().await;
    let slow = |claim| async {
        tokio::time::sleep(UNTIL_STOP / 2).await;
        nothing(claim).await
    };
    let begun = Instant::now();
    let hangs = world.once.operation(CHARGE, KEY).probe(slow).heartbeat(None);
    let outcome = hangs.run(std::future::pending::<Result<u32, Failure>>);
    assert_outcome!(outcome.await, Ok(Outcome::Interrupted(Interruption::Cancelled)));
    assert_eq!(begun.elapsed(), UNTIL_STOP);
}

#[tokio::test(start_paused = true)]
async fn a_probes_finding_that_cannot_be_recorded_is_probed_again() {
    let world = World::lost().await;
    world.store.next(Call::Settle, Fault::TableMissing);
    assert_outcome!(world.probe(found).await, Ok(Outcome::Unrecorded(7)));
    assert_eq!(world.count(Call::Settle), 1, "neither retried nor released");
    assert_outcome!(world.probe(never_called).await, Ok(Outcome::InProgress { .. }));
    world.lapse().await;
    world.store.next(Call::Settle, Fault::ErrorAfter);
    assert_outcome!(world.probe(found).await, Ok(Outcome::Recovered(7)));
    assert_eq!(world.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_result_after_the_lease_gives_way_to_the_successors_outcome() {
    let world = World::lost().await;
    let late = world.probe(|_| {
        let world = &world;
        async move {
            world.clock.jump(LEASE + MARGIN + MILLISECOND);
            assert_outcome!(world.probe(|_| async { Ok(ProbeResult::Done(8)) }).await, Ok(Outcome::Recovered(8)));
            Ok(ProbeResult::Done(7))
        }
    });
    assert_outcome!(late.await, Ok(Outcome::Replayed(8)));
}

#[tokio::test(start_paused = true)]
async fn without_a_probe_nothing_is_claimed_under_a_policy_that_needs_one() {
    let world = World::probing();
    let error = world.run().await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false));
    assert_eq!((world.runs(), world.calls()), (0, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_the_probe_policy_is_refused() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        let world = World::with(|builder| builder.after_unknown(policy));
        assert_eq!(world.probe(found).await.unwrap_err().kind(), ErrorKind::Config, "{policy:?}");
        assert_eq!((world.runs(), world.calls()), (0, vec![]), "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disabled_engine_runs_with_a_probe_and_without() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Probe).disabled(true));
    assert_outcome!(world.probe(never_called).await, Ok(Outcome::Executed(1)));
    assert_outcome!(world.run().await, Ok(Outcome::Executed(2)));
    let orders = world.once.sqs(Key::message_id(), |_: u32| async { Ok::<_, Failure>(()) });
    assert!(orders.validate().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_refused_under_a_policy_that_needs_a_probe() {
    let world = World::probing();
    let orders = || world.once.sqs(Key::message_id(), |_: u32| async { Ok::<_, Failure>(()) });
    assert_eq!(orders().validate().unwrap_err().kind(), ErrorKind::Config);
    let event = r#"{ "Records": [{ "messageId": "1", "body": "1" }] }"#;
    let event = LambdaEvent::new(serde_json::from_str(event).unwrap(), Context::default());
    assert_eq!(orders().call(event).await.unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(world.calls(), []);
}

#[tokio::test(start_paused = true)]
async fn the_result_and_the_error_of_a_probe_are_logged_once() {
    let world = World::lost().await;
    let (collector, guard) = Collector::install();
    let fails = |_| async { Err(Failure::transient("no answer")) };
    let _ = world.probe(fails).await.unwrap();
    let _ = world.probe(found).await.unwrap();
    drop(guard);
    let lines = collector.lines();
    let logged: Vec<_> = lines.iter().map(|line| (line.level, line.get("outcome"), line.get("error"))).collect();
    assert_eq!(
        logged,
        [(Level::WARN, "", "no answer"), (Level::INFO, "failed", "no answer"), (Level::INFO, "recovered", "")]
    );
    let key = world.once.key_hash(CHARGE, KEY).unwrap().to_string();
    assert!(lines.iter().all(|line| line.get("key") == key));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_probed_for_as_long_as_it_would_have_been_kept() {
    let month = Duration::from_secs(30 * 24 * 60 * 60);
    let world = World::probing();
    assert_outcome!(world.end(Err(Failure::unknown("timed out"))).await, Ok(Outcome::Failed(_)));
    let expiration = world.record().await.unwrap().expiration.unwrap();
    assert!(Timestamp::from_seconds(expiration) >= FUTURE.after(month / 2));
    let asked = AtomicU32::new(0);
    tokio::time::advance(month / 3).await;
    let outcome = world.probe(|claim| {
        asked.fetch_add(1, Ordering::SeqCst);
        found(claim)
    });
    assert_outcome!(outcome.await, Ok(Outcome::Recovered(7)));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
