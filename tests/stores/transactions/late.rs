//! Lost responses to commits. The following release shows whether the commit was applied. A late commit has no effect.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lambda_once::{
    DynamoDbStore, Failure, Outcome, PostgresStore, Verdict,
    clock::Clock,
    record::{Status, StoredResult},
    store::postgres::Transaction,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{DEBIT, Database, KEY, Mode, World, build, engine, on_each_database};
use crate::{
    purpose::Purpose,
    support::{assert_outcome, wire::Request},
};

async fn a_commit_without_a_response_is_found_to_be_applied<D: Database>() {
    let world = World::<D>::new().await;
    world.proxy.on(D::commits).times(D::TRIES).drop_response();
    let outcome = world.debit(Mode::Claimed).await;
    let rows = world.rows().await;
    assert_outcome!(outcome, Ok(Outcome::Executed(id)) if rows == [id.clone()]);
    assert_eq!(world.record().await.unwrap().status, Status::Completed);
}

// Tests S4.
async fn a_commit_that_never_arrives_is_found_to_be_undone<D: Database>() {
    let world = World::<D>::new().await;
    world.proxy.on(D::commits).times(D::TRIES).drop_request();
    let outcome = world.debit(Mode::Claimed).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
    assert_eq!((world.rows().await, world.record().await), (vec![], None), "it is released");
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Executed(_)));
}

async fn after_a_takeover_it_is_handed_back<D: Database>() {
    let world = World::<D>::new().await;
    let unknown = world.elsewhere.operation(DEBIT, KEY).run(async || Err::<String, _>(Failure::unknown("timed out")));
    assert_outcome!(unknown.await, Ok(Outcome::Failed(_)));
    world.lapse();
    world.proxy.on(D::commits).times(D::TRIES).drop_request();
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Failed(_)));
    assert_eq!(world.record().await.unwrap().owner, None);
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::TookOver(_)));
    assert_eq!(world.rows().await.len(), 1);
}

async fn if_the_release_gets_no_response_either_the_claim_is_kept<D: Database>() {
    let world = World::<D>::new().await;
    world.proxy.on(D::commits).times(D::TRIES).drop_response();
    world.proxy.on(|request| Purpose::of(request) == Purpose::Release).times(usize::MAX).drop_request();
    let outcome = world.debit(Mode::Claimed).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Unknown);
    let rows = world.rows().await;
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Replayed(id)) if rows == [id.clone()]);
}

/// Only a refusal of the handler's own writes is classified.
async fn an_outage_is_not_classified<D: Database>() {
    let world = World::<D>::new().await;
    world.proxy.on(D::settles).times(D::TRIES).drop_request();
    let operation = world.once.operation(DEBIT, KEY).in_transaction(&world.store).classify(|_| Verdict::Permanent);
    let outcome = operation.run(async |transaction: D::Transaction| world.ledger.enter(&transaction, KEY).await).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Executed(_)));
}

/// A commit is permanently refused, and a rival takes over before the failure is recorded. The rival's outcome counts.
async fn a_permanent_refusal_counts_for_nothing_after_a_takeover<D: Database>() {
    let world = World::<D>::new().await;
    let id = crate::support::unique_name("row");
    let enter = |key: &'static str| {
        let operation = world.once.operation(DEBIT, key).in_transaction(&world.store).classify(|_| Verdict::Permanent);
        let (ledger, id) = (&world.ledger, &id);
        operation.run(async move |transaction: D::Transaction| ledger.enter_as(&transaction, id, key).await)
    };
    assert_outcome!(enter("another order").await, Ok(Outcome::Executed(())));
    let mut fail = world.proxy.on(|request| Purpose::of(request) == Purpose::Fail).hold();
    let rival = async {
        fail.arrived().await;
        world.lapse();
        assert_outcome!(world.debit_elsewhere(Mode::Claimed).await, Ok(Outcome::TookOver(_)));
        fail.release();
    };
    let (outcome, ()) = tokio::join!(enter(KEY), rival);
    // The rival's result is text instead of `()`, but it still decides the outcome.
    assert!(!matches!(outcome, Ok(Outcome::Failed(_))), "{outcome:?}");
    assert_eq!(world.rows().await.len(), 1);
}

/// It is recorded in the transaction, or in the next one.
async fn without_a_claim_a_permanent_failure_counts_even_if_unrecorded<D: Database>() {
    let world = World::<D>::new().await;
    world.proxy.on(D::settles).times(D::TRIES).drop_request();
    let outcome = world.debit_to(Mode::WithoutClaim, Failure::permanent("no such account")).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Permanent);
    assert_eq!((world.rows().await, world.record().await), (vec![], None));
}

on_each_database!(
    without_a_claim_a_permanent_failure_counts_even_if_unrecorded,
    an_outage_is_not_classified,
    a_permanent_refusal_counts_for_nothing_after_a_takeover,
    a_commit_without_a_response_is_found_to_be_applied,
    a_commit_that_never_arrives_is_found_to_be_undone,
    after_a_takeover_it_is_handed_back,
    if_the_release_gets_no_response_either_the_claim_is_kept,
);

impl<D: Database> World<D> {
    /// Matches releases, and lets a second pass on the engine's clock at each.
    fn slow_releases(&self) -> impl Fn(&Request) -> bool + Send + use<D> {
        let clock = self.clock.clone();
        move |request: &Request| {
            let is_release = Purpose::of(request) == Purpose::Release;
            if is_release {
                clock.jump(Duration::from_secs(1));
            }
            is_release
        }
    }
}

/// Only a release that is refused is given up after a second.
#[tokio::test]
async fn on_postgresql_a_release_after_a_refused_commit_outlasts_an_outage() {
    let world = World::<PostgresStore>::new().await;
    PostgresStore::refuse(world.proxy.on(PostgresStore::commits));
    world.proxy.on(world.slow_releases()).times(4).drop_request();
    let outcome = world.debit(Mode::Claimed).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
    assert_eq!((world.rows().await, world.record().await), (vec![], None));
}

/// Only a release whose commit was certainly not applied is given up after a second.
#[tokio::test]
async fn on_dynamodb_a_release_that_decides_a_commit_outlasts_its_refusals() {
    let world = World::<DynamoDbStore>::new().await;
    world.proxy.on(DynamoDbStore::commits).times(DynamoDbStore::TRIES).drop_request();
    world.proxy.on(world.slow_releases()).times(4).access_denied();
    let outcome = world.debit(Mode::Claimed).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
    assert_eq!((world.rows().await, world.record().await), (vec![], None));
}

/// Runs an operation with a deadline whose handler blocks until this time is left for settles. Then it ends as given.
async fn debit_late(
    world: &World<PostgresStore>,
    left: Duration,
    end: Result<(), Failure>,
) -> Result<Outcome<()>, lambda_once::Error> {
    let second = Duration::from_secs(1);
    let once = build(engine(&world.store, &world.clock).reserve(20 * second));
    let deadline = world.clock.now().after(60 * second);
    let work = async |transaction: Transaction| {
        world.ledger.enter(&transaction, KEY).await?;
        // Half of the reserve is for settles.
        world.clock.jump(deadline.before(10 * second + left).since(world.clock.now()));
        end
    };
    once.operation(DEBIT, KEY).deadline(deadline).in_transaction(&world.store).run(work).await
}

fn checks_open_transaction(request: &Request) -> bool {
    request.command.contains("pg_current_xact_id_if_assigned()::text AS id")
}

fn queries_transaction_status(request: &Request) -> bool {
    request.command.contains("pg_xact_status")
}

/// A connection that stays silent is closed after a quarter of a second, which is more than half of the time here.
#[tokio::test]
async fn on_postgresql_a_rollback_has_half_of_the_time_that_is_left() {
    let world = World::<PostgresStore>::new().await;
    let _silent = world.proxy.on(checks_open_transaction).hang();
    let outcome = debit_late(&world, Duration::from_millis(400), Err(Failure::transient("closed"))).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Unknown);
}

/// The commit has half of the time, and the query for the transaction's end has half of the rest.
#[tokio::test]
async fn on_postgresql_a_silent_commit_leaves_time_for_the_release() {
    // Less than the three seconds that a call may take.
    let left = Duration::from_millis(2_800);
    for is_silent in [false, true] {
        let world = World::<PostgresStore>::new().await;
        let mut commit = world.proxy.on(PostgresStore::settles).hang();
        let _query = is_silent.then(|| world.proxy.on(queries_transaction_status).hang());
        let arrival = async {
            commit.arrived().await;
            Instant::now()
        };
        let (outcome, begun) = tokio::join!(debit_late(&world, left, Ok(())), arrival);
        let expected = if is_silent { Verdict::Unknown } else { Verdict::Transient };
        assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == expected);
        assert!(begun.elapsed() < left, "{is_silent}: {:?}", begun.elapsed());
    }
}

/// The caller gives up and releases while its `COMMIT` is on its way. Row and record agree, whichever arrives first.
#[tokio::test]
async fn on_postgresql_a_commit_and_its_release_may_arrive_in_any_order() {
    let world = World::<PostgresStore>::new().await;
    let mut commit = world.proxy.on(PostgresStore::commits).hold();
    let mut release = world.proxy.on(|request| Purpose::of(request) == Purpose::Release).hold();
    let network = async {
        commit.arrived().await;
        // The caller has given up when it releases.
        release.arrived().await;
        release.release();
        commit.release();
    };
    let (outcome, ()) = tokio::join!(world.debit(Mode::Claimed), network);
    let rows = world.rows().await;
    match outcome.unwrap() {
        Outcome::Executed(id) => assert_eq!(rows, [id]),
        Outcome::Failed(failure) => {
            assert_eq!((failure.verdict(), rows, world.record().await), (Verdict::Transient, vec![], None));
        }
        other => panic!("{other:?}"),
    }
    world.lapse();
    assert!(world.debit(Mode::Claimed).await.unwrap().is_done());
    assert_eq!(world.rows().await.len(), 1);
}

/// The server ends the session of a commit that it may have applied, for example one that waits for a standby.
#[tokio::test]
async fn on_postgresql_a_commit_whose_session_ends_may_have_been_applied() {
    let ended = Bytes::from(crate::support::wire::refusal("FATAL", "57P01", Some('I')));
    for mode in super::MODES {
        let world = World::<PostgresStore>::new().await;
        let answer = ended.clone();
        world.proxy.on(PostgresStore::commits).rewrite(Bytes::clone, move |_| answer.clone());
        let outcome = world.debit(mode).await;
        let rows = world.rows().await;
        assert_outcome!(outcome, Ok(Outcome::Executed(id)) if rows == [id.clone()]);
    }
}

/// A commit without a claim never arrives, and another run completes the operation before that is detected.
#[tokio::test]
async fn on_postgresql_a_lost_commit_replays_the_outcome_of_another_run() {
    let world = World::<PostgresStore>::new().await;
    world.proxy.on(PostgresStore::commits).drop_request();
    let mut claim = world.proxy.on(|request| request.command.contains("INSERT INTO \"once_records\"")).nth(2).hold();
    let rival = async {
        claim.arrived().await;
        let rival = world.debit_elsewhere(Mode::WithoutClaim).await;
        claim.release();
        rival
    };
    let (outcome, rival) = tokio::join!(world.debit(Mode::WithoutClaim), rival);
    let Ok(Outcome::Executed(id)) = rival else { panic!("{rival:?}") };
    assert_outcome!(outcome, Ok(Outcome::Replayed(other)) if other == id);
    assert_eq!(world.rows().await, [id]);
}

/// Another run claims the operation before the failure is recorded, and is still open. The failure has no effect then.
#[tokio::test]
async fn on_postgresql_a_permanent_failure_leaves_the_decision_to_a_rival() {
    let world = World::<PostgresStore>::new().await;
    let url = world.proxy.in_place_of(&crate::support::postgres::url());
    let config = crate::support::postgres::config(url.parse().unwrap()).lock_timeout(Duration::from_millis(200));
    let store = config.build().unwrap().with_clock(world.clock.clone());
    let once = build(engine(&store, &world.clock));
    let mut claim = world.proxy.on(|request| request.command.contains("INSERT INTO \"once_records\"")).nth(2).hold();
    let has_failed = Notify::new();
    let failure = async {
        let end = || Err(Failure::permanent("no such account"));
        let outcome = world.debit_by(&once, &store, Mode::WithoutClaim, end).await;
        has_failed.notify_one();
        outcome
    };
    let rival = async {
        claim.arrived().await;
        let work = async |transaction: Transaction| {
            let id = world.ledger.enter(&transaction, KEY).await?;
            claim.release();
            has_failed.notified().await;
            Ok::<_, Failure>(id)
        };
        Box::pin(once.operation(DEBIT, KEY).in_transaction(&store).without_claim().run(work)).await
    };
    let (failure, rival) = tokio::join!(failure, rival);
    assert_outcome!(failure, Ok(Outcome::InProgress { lease_until: None, .. }));
    let rows = world.rows().await;
    assert_outcome!(rival, Ok(Outcome::Executed(id)) if rows == [id.clone()]);
}

#[tokio::test]
async fn on_dynamodb_a_commit_that_arrives_after_its_release_is_cancelled() {
    let world = World::<DynamoDbStore>::new().await;
    let mut late = world.proxy.on(DynamoDbStore::commits).deliver_late();
    world.proxy.on(DynamoDbStore::commits).nth(2).times(DynamoDbStore::TRIES - 1).drop_request();
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Failed(_)));
    assert!(late.deliver().await.is_error());
    assert_eq!((world.rows().await, world.record().await), (vec![], None));
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Executed(_)));
    assert_eq!(world.rows().await.len(), 1);
}

#[tokio::test]
async fn on_dynamodb_a_repeated_commit_is_applied_once() {
    for mode in super::MODES {
        let world = World::<DynamoDbStore>::new().await;
        let mut copy = world.proxy.on(DynamoDbStore::commits).copy();
        assert_outcome!(world.debit(mode).await, Ok(Outcome::Executed(_)));
        let before = world.record().await;
        copy.deliver().await;
        assert_eq!((world.rows().await.len(), world.record().await), (1, before));
    }
}

#[tokio::test]
async fn on_dynamodb_a_conflict_or_throttling_is_met_by_the_same_request() {
    for reasons in [
        ["TransactionConflict", "None"],
        ["None", "TransactionConflict"],
        ["ThrottlingError", "None"],
        ["None", "ProvisionedThroughputExceeded"],
        ["TransactionConflict", "ConditionalCheckFailed"],
    ] {
        for mode in super::MODES {
            let world = World::<DynamoDbStore>::new().await;
            world.proxy.on(DynamoDbStore::commits).cancel(&reasons);
            assert_outcome!(world.debit(mode).await, Ok(Outcome::Executed(_)));
            let commits: Vec<Value> =
                world.proxy.requests().iter().filter(|r| DynamoDbStore::commits(r)).map(|r| r.body()).collect();
            assert!(commits.len() == 2 && commits[0] == commits[1], "{commits:?}");
            let owner = world.record().await.and_then(|record| record.owner).unwrap();
            assert_eq!(commits[0]["ClientRequestToken"], owner.to_hex(), "no other request has this token");
        }
    }
}

/// The transaction may be too large with the result.
#[tokio::test]
async fn on_dynamodb_a_rejected_commit_is_executed_without_its_result() {
    for mode in super::MODES {
        let world = World::<DynamoDbStore>::new().await;
        world.proxy.on(DynamoDbStore::commits).validation();
        let outcome = world.debit(mode).await;
        let rows = world.rows().await;
        assert_outcome!(outcome, Ok(Outcome::Executed(id)) if rows == [id.clone()]);
        let record = world.record().await.unwrap();
        assert_eq!((record.status, record.result), (Status::Completed, StoredResult::DROPPED), "{mode:?}");
        assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::ReplayedWithoutResult));
    }
}

#[tokio::test]
async fn on_dynamodb_a_condition_of_the_handlers_own_comes_after_the_records() {
    let world = World::<DynamoDbStore>::new().await;
    world.proxy.on(DynamoDbStore::commits).cancel(&["None", "ConditionalCheckFailed"]);
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Failed(_)));
    assert_eq!(world.record().await, None, "it is released");
    // The record's condition fails without an item. The read finds that the record still belongs to this claim, so
    // nothing was committed.
    world.proxy.on(DynamoDbStore::commits).cancel(&["ConditionalCheckFailed", "ConditionalCheckFailed"]);
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::LeaseLost));
    assert_eq!(world.rows().await, [""; 0]);
}

/// DynamoDB has the token of another request. This does not show whether the transaction was applied.
#[tokio::test]
async fn on_dynamodb_a_token_mismatch_is_decided_by_the_release() {
    let world = World::<DynamoDbStore>::new().await;
    let code = "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException";
    world.proxy.on(DynamoDbStore::commits).respond_json(400, &json!({ "__type": code }));
    let outcome = world.debit(Mode::Claimed).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
    assert_eq!((world.rows().await, world.record().await), (vec![], None));
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Executed(_)));
}

#[tokio::test]
async fn on_dynamodb_without_a_claim_a_refusal_after_silence_is_undecided() {
    let world = World::<DynamoDbStore>::new().await;
    world.proxy.on(DynamoDbStore::commits).drop_request();
    world.proxy.on(DynamoDbStore::commits).nth(2).cancel(&["None", "ConditionalCheckFailed"]);
    let outcome = world.debit(Mode::WithoutClaim).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Unknown);
    assert_outcome!(world.debit(Mode::WithoutClaim).await, Ok(Outcome::Executed(_)));
    assert_eq!(world.rows().await.len(), 1);
}

/// The role may not delete. The commit was certainly not applied, and the claim ends with its lease.
#[tokio::test]
async fn on_dynamodb_a_release_after_a_refused_commit_is_not_refused_for_long() {
    let world = World::<DynamoDbStore>::new().await;
    DynamoDbStore::refuse(world.proxy.on(DynamoDbStore::commits));
    world.proxy.on(|request| Purpose::of(request) == Purpose::Release).times(usize::MAX).access_denied();
    let begun = Instant::now();
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Failed(_)));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(world.record().await.unwrap().status, Status::InProgress);
}
