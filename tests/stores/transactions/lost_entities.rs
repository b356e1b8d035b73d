//! Ordered operations that lose their entity, or its order, before they commit. None of their writes is committed.

use lambda_once::{
    DynamoDbStore, Failure, Outcome, PostgresStore,
    store::{
        dynamodb::Writes,
        postgres::{IsolationLevel, Transaction},
    },
};
use tokio::sync::Notify;

use super::{DEBIT, Database, Mode, World, ordered::ACCOUNT};
use crate::support::{assert_outcome, wire::Request};

type Postgres = World<PostgresStore>;

/// Returns whether a request locks the order marker of an entity.
fn holds_entity(request: &Request) -> bool {
    request.command.contains("INSERT INTO") && request.command.contains("\"once_marks\"")
}

/// An operation that outlasts its lease loses its entity to the next one. No write of the slow operation is committed,
/// whether the next one has completed or still runs.
// Tests G3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_whose_entity_was_claimed_by_another_commits_nothing() {
    for completes in [true, false] {
        let world = Postgres::new().await;
        let mut settle = world.proxy.on(holds_entity).nth(2).hold();
        let rival = async {
            // The commit is about to lock the entity.
            settle.arrived().await;
            world.lapse();
            let end = if completes { Ok(()) } else { Err(Failure::unknown("timed out")) };
            let newer = world.set_by(&world.elsewhere, &world.direct, Mode::Claimed, 6, end).await;
            match completes {
                true => assert_outcome!(newer, Ok(Outcome::Executed(_))),
                false => assert_outcome!(newer, Ok(Outcome::Failed(_))),
            }
            settle.release();
        };
        let (slow, ()) = tokio::join!(world.set(Mode::Claimed, 5), rival);
        assert_outcome!(slow, Ok(Outcome::LeaseLost));
        assert_eq!(world.versions().await, if completes { vec![6] } else { vec![] });
        world.lapse();
        let again = world.set(Mode::Claimed, 5).await;
        match completes {
            true => assert_outcome!(again, Ok(Outcome::Superseded { .. })),
            // The other operation may have taken effect.
            false => assert_outcome!(again, Ok(Outcome::InProgress { .. })),
        }
    }
}

/// On DynamoDB the conditions of the commit do the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_dynamodb_an_operation_that_lost_its_entity_commits_nothing() {
    for completes in [true, false] {
        let world = World::<DynamoDbStore>::new().await;
        // The first one is its claim.
        let mut commit = world.proxy.on(DynamoDbStore::commits).nth(2).hold();
        let rival = async {
            commit.arrived().await;
            world.lapse();
            let end = if completes { Ok(()) } else { Err(Failure::unknown("timed out")) };
            let newer = world.set_by(&world.elsewhere, &world.direct, Mode::Claimed, 6, end).await;
            assert!(matches!(newer, Ok(Outcome::Executed(_) | Outcome::Failed(_))), "{newer:?}");
            commit.release();
        };
        let (slow, ()) = tokio::join!(world.set(Mode::Claimed, 5), rival);
        assert_outcome!(slow, Ok(Outcome::LeaseLost));
        assert_eq!(world.versions().await, if completes { vec![6] } else { vec![] });
    }
}

/// An operation with the same sequence and a lapsed lease completes late, while the other holds the entity and before
/// it commits. That completion is the second of the `settles` requests.
async fn beside_a_late_completion_of_the_same_sequence<D: Database>(settles: fn(&Request) -> bool) {
    let world = World::<D>::new().await;
    let mut completion = world.proxy.on(settles).nth(2).hold();
    let is_done = Notify::new();
    let late = async {
        let late = world.once.operation(DEBIT, "late").ordered_by(ACCOUNT, 5_u64);
        let outcome = Box::pin(late.run(async || Ok::<_, Failure>(String::new()))).await;
        is_done.notify_one();
        outcome
    };
    let other = async {
        completion.arrived().await;
        world.lapse();
        let other = world.elsewhere.operation(DEBIT, "other").ordered_by(ACCOUNT, 5_u64).in_transaction(&world.direct);
        let work = async |transaction: D::Transaction| {
            let id = world.ledger.enter(&transaction, "5").await?;
            completion.release();
            is_done.notified().await;
            Ok::<_, Failure>(id)
        };
        Box::pin(other.run(work)).await
    };
    let (late, other) = tokio::join!(late, other);
    assert_outcome!(late, Ok(Outcome::Executed(_)));
    assert_outcome!(other, Ok(Outcome::LeaseLost));
    assert_eq!(world.versions().await, [0; 0], "the effect of the same sequence came before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgresql_a_late_completion_of_the_same_sequence_excludes_a_commit() {
    beside_a_late_completion_of_the_same_sequence::<PostgresStore>(holds_entity).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_dynamodb_a_late_completion_of_the_same_sequence_excludes_a_commit() {
    beside_a_late_completion_of_the_same_sequence::<DynamoDbStore>(DynamoDbStore::commits).await;
}

/// At an isolation level that sees no changes since the transaction began, a changed order marker is a conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_higher_isolation_level_a_lost_entity_is_a_conflict() {
    let world = Postgres::new().await;
    let mut settle = world.proxy.on(holds_entity).nth(2).hold();
    let work = async |transaction: Transaction| world.ledger.enter(&transaction, "5").await;
    let serializable = world.store.clone().with_isolation_level(IsolationLevel::Serializable);
    let slow = world.once.operation(DEBIT, "5").ordered_by(ACCOUNT, 5_u64).in_transaction(&serializable);
    let rival = async {
        settle.arrived().await;
        world.lapse();
        assert_outcome!(world.set_elsewhere(Mode::Claimed, 6).await, Ok(Outcome::Executed(_)));
        settle.release();
    };
    let (slow, ()) = tokio::join!(Box::pin(slow.run(work)), rival);
    // Its time is over, so no release follows.
    assert_outcome!(slow, Ok(Outcome::Failed(failure)) if failure.to_string().contains("40001"));
    assert_eq!(world.versions().await, [6]);
    assert_outcome!(world.set(Mode::Claimed, 5).await, Ok(Outcome::Superseded { .. }));
    assert_outcome!(world.set(Mode::Claimed, 7).await, Ok(Outcome::Executed(_)));
}

/// A newer operation completes between the first read of the entity and the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_dynamodb_a_run_without_a_claim_that_is_superseded_commits_nothing() {
    let world = World::<DynamoDbStore>::new().await;
    let work = async |transaction: Writes| {
        let id = world.ledger.enter(&transaction, "5").await?;
        assert_outcome!(world.set_elsewhere(Mode::WithoutClaim, 6).await, Ok(Outcome::Executed(_)));
        Ok::<_, Failure>(id)
    };
    let older =
        world.once.operation(DEBIT, "5").ordered_by(ACCOUNT, 5_u64).in_transaction(&world.store).without_claim();
    // Its next delivery finds the operation in its way.
    assert_outcome!(Box::pin(older.run(work)).await, Ok(Outcome::InProgress { .. }));
    assert_eq!(world.versions().await, [6]);
    assert_outcome!(world.set(Mode::WithoutClaim, 5).await, Ok(Outcome::Superseded { .. }));
}
