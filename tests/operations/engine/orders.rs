//! Ordered operations. Those older than the newest effect do not run, and only one works on an entity at a time.

use std::time::Duration;

use lambda_once::{
    Classify, Error, ErrorKind, ErrorStatus, Failure, MissingKey, Outcome, Verdict,
    order::Sequence,
    record::{KeyHash, Status},
    store::fault::{Call, Fault},
};

use tracing::Level;

use super::{CHARGE, LEASE, MARGIN, MILLISECOND, UNTIL_STOP, World, assert_outcome, support::collector::Collector};

const ENTITY: &str = "account 3";

impl World {
    /// Runs the operation with this name and sequence, with work that ends as given.
    async fn run_at(&self, key: &str, sequence: u64, end: Result<u32, Failure>) -> Result<Outcome<u32>, Error> {
        self.once.operation(CHARGE, key).ordered_by(ENTITY, sequence).run(|| async { end }).await
    }

    async fn done_at(&self, key: &str, sequence: u64) {
        assert_outcome!(self.run_at(key, sequence, Ok(1)).await, Ok(Outcome::Executed(1)));
    }

    fn ordered_key(&self, key: &str) -> KeyHash {
        let hash = |key| self.once.key_hash(CHARGE, key).unwrap();
        KeyHash::ordered(&hash(ENTITY), &hash(key))
    }
}

fn newest(outcome: Result<Outcome<u32>, Error>) -> Option<Sequence> {
    match outcome {
        Ok(Outcome::Superseded { newest }) => newest,
        other => panic!("expected a superseded operation, got {other:?}"),
    }
}

// Tests G1, P9, P21, P22.
#[tokio::test(start_paused = true)]
async fn an_operation_does_not_take_effect_after_a_newer_one_of_its_entity() {
    let world = World::new();
    world.done_at("event 5", 5).await;
    for (key, sequence) in [("event 4", 4), ("another event 5", 5)] {
        assert_eq!(newest(world.run_at(key, sequence, Ok(2)).await), Some(5_u64.into()));
    }
    assert_outcome!(world.run_at("event 5", 5, Ok(2)).await, Ok(Outcome::Replayed(1)));
    world.done_at("event 6", 6).await;
    assert_outcome!(world.run_at("event 5", 5, Ok(2)).await, Ok(Outcome::Replayed(1)));
}

#[tokio::test(start_paused = true)]
async fn another_entity_and_another_name_have_an_order_of_their_own() {
    let world = World::new();
    world.done_at("event 5", 5).await;
    let run = || async { Ok::<_, Failure>(1) };
    let elsewhere = world.once.operation(CHARGE, "event 1").ordered_by("account 4", 1_u64).run(run).await;
    assert_outcome!(elsewhere, Ok(Outcome::Executed(1)));
    let other = world.once.operation("refund", "event 1").ordered_by(ENTITY, 1_u64).run(run).await;
    assert_outcome!(other, Ok(Outcome::Executed(1)));
    let unordered = world.once.operation(CHARGE, "event 5").run(run).await;
    assert_outcome!(unordered, Ok(Outcome::Executed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_claim_and_a_settle_are_one_call_each() {
    let world = World::new();
    world.done_at("event 5", 5).await;
    assert_eq!(world.calls(), [Call::Claim, Call::Settle]);
    newest(world.run_at("event 4", 4, Ok(1)).await);
    assert_eq!(world.calls(), [Call::Claim, Call::Settle, Call::Claim]);
}

// Tests G2, P23.
#[tokio::test(start_paused = true)]
async fn one_operation_at_a_time_works_on_an_entity() {
    let world = World::new();
    let inner = || async { world.run_at("event 6", 6, Ok(2)).await };
    let outcome = world.once.operation(CHARGE, "event 5").ordered_by(ENTITY, 5_u64).run(|| async {
        assert!(matches!(inner().await.unwrap(), Outcome::InProgress { lease_until: Some(_), .. }));
        Ok::<_, Failure>(1)
    });
    assert_outcome!(outcome.await, Ok(Outcome::Executed(1)));
    world.done_at("event 6", 6).await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_waits_for_its_entity_and_runs_when_that_is_free() {
    let world = World::new();
    let slow = world.once.operation(CHARGE, "event 5").ordered_by(ENTITY, 5_u64).run(|| async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok::<_, Failure>(1)
    });
    let next = async {
        tokio::task::yield_now().await;
        let operation = world.once.operation(CHARGE, "event 6").ordered_by(ENTITY, 6_u64);
        operation.wait_up_to(Duration::from_secs(20)).run(|| async { Ok::<_, Failure>(2) }).await
    };
    let late = async {
        tokio::task::yield_now().await;
        let operation = world.once.operation(CHARGE, "event 4").ordered_by(ENTITY, 4_u64);
        operation.wait_up_to(Duration::from_secs(20)).run(|| async { Ok::<_, Failure>(3) }).await
    };
    let (slow, next, late) = tokio::join!(slow, next, late);
    assert_outcome!(slow, Ok(Outcome::Executed(1)));
    assert_outcome!(next, Ok(Outcome::Executed(2)));
    assert!(newest(late) >= Some(5_u64.into()), "what waited is superseded when its turn comes");
}

// Tests G2.
#[tokio::test(start_paused = true)]
async fn an_operation_older_than_a_lost_one_waits_for_its_redelivery() {
    let world = World::new();
    assert_outcome!(world.run_at("event 5", 5, Err(Failure::unknown("timed out"))).await, Ok(Outcome::Failed(_)));
    tokio::time::advance(LEASE + MARGIN + MILLISECOND).await;
    assert_outcome!(world.run_at("event 4", 4, Ok(1)).await, Ok(Outcome::InProgress { lease_until: None, .. }));
    assert_outcome!(world.run_at("event 5", 5, Ok(1)).await, Ok(Outcome::TookOver(1)));
    assert_eq!(newest(world.run_at("event 4", 4, Ok(1)).await), Some(5_u64.into()));
}

/// An operator, or a retention shorter than the order marker's, may have deleted the record.
#[tokio::test(start_paused = true)]
async fn a_release_after_the_loss_of_a_record_leaves_older_operations_waiting() {
    let world = World::new();
    assert_outcome!(world.run_at("event 6", 6, Err(Failure::unknown("timed out"))).await, Ok(Outcome::Failed(_)));
    tokio::time::advance(LEASE + MARGIN + MILLISECOND).await;
    assert!(world.records.remove(&world.ordered_key("event 6")).is_some());
    assert_outcome!(world.run_at("event 6", 6, Err(Failure::transient("busy"))).await, Ok(Outcome::Failed(_)));
    assert_outcome!(world.run_at("event 5", 5, Ok(1)).await, Ok(Outcome::InProgress { lease_until: None, .. }));
    world.done_at("event 6", 6).await;
    assert_eq!(newest(world.run_at("event 5", 5, Ok(1)).await), Some(6_u64.into()));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_ends_the_doubt_of_earlier_runs() {
    let world = World::new();
    assert_outcome!(world.run_at("event 6", 6, Err(Failure::unknown("timed out"))).await, Ok(Outcome::Failed(_)));
    tokio::time::advance(LEASE + MARGIN + MILLISECOND).await;
    assert_outcome!(world.run_at("event 5", 5, Ok(1)).await, Ok(Outcome::InProgress { lease_until: None, .. }));
    assert_outcome!(world.run_at("event 6", 6, Err(Failure::permanent("closed"))).await, Ok(Outcome::Failed(_)));
    world.done_at("event 5", 5).await;
}

/// Returns the warnings of a run about the entity.
async fn warnings(run: impl Future<Output = ()>) -> Vec<(Level, String)> {
    let (collector, guard) = Collector::install();
    run.await;
    drop(guard);
    let lines = collector.lines().into_iter().filter(|line| !line.get("entity").is_empty());
    lines.map(|line| (line.level, line.get("entity").to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn operations_in_doubt_that_merge_are_warned_of_once() {
    let world = World::new();
    let lose = async |range: std::ops::RangeInclusive<u64>| {
        for sequence in range {
            let end = Err(Failure::unknown("timed out"));
            let lost = world.run_at(&format!("event {sequence}"), sequence, end).await;
            assert_outcome!(lost, Ok(Outcome::Failed(_)));
            tokio::time::advance(LEASE + MARGIN + MILLISECOND).await;
        }
    };
    assert_eq!(warnings(lose(1..=65)).await, []);
    let entity = world.ordered_key("event 1").to_hex()[..32].to_owned();
    assert_eq!(warnings(lose(66..=66)).await, [(Level::WARN, entity.clone())]);
    assert_eq!(warnings(lose(67..=70)).await, []);
    assert_outcome!(world.run_at("event 2", 2, Ok(1)).await, Ok(Outcome::InProgress { lease_until: None, .. }));
    world.done_at("event 71", 71).await;
    assert_eq!(newest(world.run_at("event 2", 2, Ok(1)).await), Some(71_u64.into()));
    // The completion has ended all doubt, so this is a new case.
    assert_eq!(warnings(lose(72..=137)).await, [(Level::WARN, entity)]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_lets_older_operations_run() {
    let world = World::new();
    for failure in [Failure::transient("busy"), Failure::permanent("no such account")] {
        assert_outcome!(world.run_at("event 5", 5, Err(failure)).await, Ok(Outcome::Failed(_)));
    }
    world.done_at("event 4", 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_renews_the_entity_too() {
    let world = World::new();
    let long = world.once.operation(CHARGE, "event 5").ordered_by(ENTITY, 5_u64).run(|| async {
        tokio::time::sleep(5 * LEASE).await;
        Ok::<_, Failure>(1)
    });
    let rival = async {
        for _ in 0..9 {
            tokio::time::sleep(LEASE / 2).await;
            assert_outcome!(
                world.run_at("event 6", 6, Ok(2)).await,
                Ok(Outcome::InProgress { lease_until: Some(_), .. })
            );
        }
    };
    let (outcome, ()) = tokio::join!(long, rival);
    assert_outcome!(outcome, Ok(Outcome::Executed(1)));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_response_is_lost_frees_its_entity() {
    let world = World::with(|builder| builder.heartbeat(None));
    world.store.always(Call::Claim, Fault::ErrorAfter);
    assert!(world.run_at("event 5", 5, Ok(1)).await.is_err());
    world.store.heal();
    world.done_at("event 4", 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_was_not_recorded_leaves_doubt() {
    let world = World::with(|builder| builder.heartbeat(None));
    world.store.always(Call::Settle, Fault::ErrorBefore);
    assert_outcome!(world.run_at("event 5", 5, Ok(1)).await, Ok(Outcome::Unrecorded(1)));
    world.store.heal();
    tokio::time::advance(UNTIL_STOP + LEASE).await;
    assert_outcome!(world.run_at("event 4", 4, Ok(1)).await, Ok(Outcome::InProgress { .. }));
}

#[tokio::test(start_paused = true)]
async fn work_that_finds_itself_superseded_is_recorded_so_and_raises_the_order() {
    let world = World::new();
    let stale = || Err(Failure::superseded("the row has version 9"));
    assert_eq!(newest(world.run_at("event 5", 5, stale()).await), None);
    let record = {
        use lambda_once::{Store, store::ResultData};
        world.records.read(&[world.ordered_key("event 5")], ResultData::Omit).await.remove(0).unwrap().unwrap()
    };
    assert!(record.status == Status::Completed && record.result.superseded && record.result.data.is_none());
    assert_eq!(newest(world.run_at("event 5", 5, Ok(1)).await), None, "it is replayed");
    assert_eq!(newest(world.run_at("event 4", 4, Ok(1)).await), Some(5_u64.into()));
}

#[tokio::test(start_paused = true)]
async fn that_work_is_superseded_is_not_known_until_it_is_recorded() {
    let world = World::with(|builder| builder.heartbeat(None));
    world.store.always(Call::Settle, Fault::ErrorBefore);
    let stale = Err(Failure::superseded("the row has version 9"));
    let outcome = world.run_at("event 5", 5, stale).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Unknown);
    // Without an order nothing waits for it.
    let stale = Err(Failure::superseded("the row has version 9"));
    assert_eq!(newest(world.run_to(stale).await), None);
}

#[tokio::test(start_paused = true)]
async fn work_without_an_order_may_find_itself_superseded_too() {
    let world = World::new();
    let stale = Err::<u32, _>(std::io::Error::other("the row has version 9")).superseded();
    assert_eq!(stale.as_ref().map_err(|error| Verdict::of(error)).unwrap_err(), Verdict::Superseded);
    assert_eq!(newest(world.run_to(stale.map_err(Into::into)).await), None);
    assert_eq!(newest(world.run().await), None);
    assert_eq!(world.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_entity_that_is_missing_is_an_error_and_nothing_runs() {
    let world = World::with(|builder| builder.missing_key(MissingKey::RunUnprotected));
    let run = || async { Ok::<_, Failure>(1) };
    let error = world.once.operation(CHARGE, "event 1").ordered_by("", 1_u64).run(run).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Order, ErrorStatus::Permanent));
    let error = world.once.operation(CHARGE, &None::<u64>).ordered_by(ENTITY, 1_u64).run(run).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeyMissing, "in an order nothing runs unprotected");
    assert_eq!(world.calls(), []);
}
