//! Ordered operations. One that is superseded, or has lost its entity to another, leaves no row.

use futures_util::future::join_all;
use lambda_once::{
    DynamoDbStore, Error, Failure, Idempotency, Outcome, PostgresStore, Verdict,
    store::{dynamodb::Writes, postgres::Transaction},
};

use super::{DEBIT, Database, MODES, Mode, World, on_each_database};
use crate::{
    purpose::Purpose,
    support::{self, assert_outcome, wire::Request},
};

pub(super) const ACCOUNT: &str = "account 7";

type Postgres = World<PostgresStore>;

impl<D: Database> World<D> {
    /// Enters a row for a version of the account through the proxy. The key is the version.
    pub(super) async fn set(&self, mode: Mode, version: u64) -> Result<Outcome<String>, Error> {
        self.set_by(&self.once, &self.store, mode, version, Ok(())).await
    }

    pub(super) async fn set_elsewhere(&self, mode: Mode, version: u64) -> Result<Outcome<String>, Error> {
        self.set_by(&self.elsewhere, &self.direct, mode, version, Ok(())).await
    }

    /// Does the same, and ends the handler as given after the row is entered.
    pub(super) async fn set_by(
        &self,
        once: &Idempotency,
        store: &D,
        mode: Mode,
        version: u64,
        end: Result<(), Failure>,
    ) -> Result<Outcome<String>, Error> {
        let operation = once.operation(DEBIT, &version.to_string()).ordered_by(ACCOUNT, version).in_transaction(store);
        let work = |transaction| async move {
            let id = self.ledger.enter(&transaction, &version.to_string()).await?;
            end?;
            Ok::<_, Failure>(id)
        };
        match mode {
            Mode::Claimed => Box::pin(operation.run(work)).await,
            Mode::WithoutClaim => Box::pin(operation.without_claim().run(work)).await,
        }
    }

    /// Returns the versions in the ledger.
    pub(super) async fn versions(&self) -> Vec<u64> {
        let mut versions: Vec<u64> =
            self.ledger.all_rows().await.into_iter().map(|(_, version)| version.parse().unwrap()).collect();
        versions.sort_unstable();
        versions
    }
}

async fn a_superseded_operation_leaves_no_row<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        assert_outcome!(world.set(mode, 5).await, Ok(Outcome::Executed(_)));
        for other in MODES {
            let late = world.set(other, 4).await;
            assert_outcome!(late, Ok(Outcome::Superseded { newest: Some(newest) }) if newest == 5_u64.into());
            assert_outcome!(world.set(other, 5).await, Ok(Outcome::Replayed(_)));
        }
        assert_eq!(world.versions().await, [5]);
        assert_outcome!(world.set(mode, 6).await, Ok(Outcome::Executed(_)));
        assert_eq!(world.versions().await, [5, 6], "{mode:?}");
    }
}

/// The handler itself finds a newer row.
async fn a_run_that_finds_itself_superseded_is_recorded_without_its_row<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        let stale = Err(Failure::superseded("the row has version 9"));
        let outcome = world.set_by(&world.once, &world.store, mode, 5, stale).await;
        assert_outcome!(outcome, Ok(Outcome::Superseded { newest: None }));
        assert_outcome!(world.set(mode, 5).await, Ok(Outcome::Superseded { newest: None }));
        assert_outcome!(world.set(mode, 4).await, Ok(Outcome::Superseded { newest: Some(_) }));
        assert_eq!(world.versions().await, [0; 0], "{mode:?}");
    }
}

on_each_database!(
    a_superseded_operation_leaves_no_row,
    a_run_that_finds_itself_superseded_is_recorded_without_its_row,
    of_many_versions_at_once_the_rows_are_those_that_were_executed,
    a_permanent_failure_is_recorded_without_the_row_and_supersedes_nothing,
);

/// A condition of the handler shows that the row is newer. The response to the record of that may be lost as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_dynamodb_a_refused_write_may_say_that_the_operation_is_superseded() {
    for (mode, is_lost) in [(Mode::Claimed, false), (Mode::Claimed, true), (Mode::WithoutClaim, false)] {
        let world = World::<DynamoDbStore>::new().await;
        let enter = async |transaction: Writes| world.ledger.enter_as(&transaction, "row", "5").await;
        let seed = world.once.operation(DEBIT, "seed").in_transaction(&world.store);
        assert_outcome!(Box::pin(seed.run(enter)).await, Ok(Outcome::Executed(())));
        let stale = || {
            let stale = world.once.operation(DEBIT, "stale").in_transaction(&world.store);
            stale.classify(|_| Verdict::Superseded)
        };
        if is_lost {
            let records =
                |request: &Request| request.command == "UpdateItem" && Purpose::of(request) == Purpose::Complete;
            world.proxy.on(records).drop_response();
        }
        let outcome = match mode {
            Mode::Claimed => Box::pin(stale().run(enter)).await,
            Mode::WithoutClaim => Box::pin(stale().without_claim().run(enter)).await,
        };
        assert_outcome!(outcome, Ok(Outcome::Superseded { newest: None }));
        if matches!(mode, Mode::Claimed) {
            let again = Box::pin(stale().run(async |_| panic!("it is recorded") as Result<(), Failure>)).await;
            assert_outcome!(again, Ok(Outcome::Superseded { newest: None }));
        }
        assert_eq!(world.ledger.all_rows().await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_dynamodb_an_ordered_transaction_takes_98_writes() {
    let world = World::<DynamoDbStore>::new().await;
    for (writes, is_taken) in [(98, true), (99, false)] {
        let work = async |transaction: Writes| {
            for _ in 0..writes {
                world.ledger.enter(&transaction, "5").await?;
            }
            Ok::<_, Failure>(())
        };
        let key = writes.to_string();
        let operation = world.once.operation(DEBIT, &key).ordered_by(&key, 5_u64).in_transaction(&world.store);
        match Box::pin(operation.run(work)).await.unwrap() {
            Outcome::Executed(()) => assert!(is_taken),
            Outcome::Failed(failure) => assert!(!is_taken && failure.to_string().contains("98"), "{failure}"),
            outcome => panic!("{outcome:?}"),
        }
    }
    assert_eq!(world.versions().await.len(), 98);
}

/// Until it ends, it may or may not be the newest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_wait_for_the_end_of_a_transaction_without_a_claim() {
    for commits in [true, false] {
        let world = Postgres::new().await;
        let admin = support::postgres::client(&support::postgres::connection().await).await;
        let has_begun = tokio::sync::watch::Sender::new(0);
        let until_blocking = async |pid: i32| {
            let waiting = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
            while admin.query_one(waiting, &[&pid]).await.unwrap().get::<_, i64>(0) == 0 {
                tokio::task::yield_now().await;
            }
        };
        let work = async |transaction: Transaction| {
            let client = transaction.client().await?;
            let pid = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
            world.ledger.enter(&transaction, "5").await?;
            has_begun.send_replace(pid);
            until_blocking(pid).await;
            if commits { Ok(()) } else { Err(Failure::transient("closed")) }
        };
        let newer = world.once.operation(DEBIT, "5").ordered_by(ACCOUNT, 5_u64).in_transaction(&world.store);
        let older = async {
            has_begun.subscribe().wait_for(|pid| *pid != 0).await.unwrap();
            world.set_elsewhere(Mode::WithoutClaim, 4).await
        };
        let (newer, older) = tokio::join!(Box::pin(newer.without_claim().run(work)), older);
        match commits {
            true => {
                assert_outcome!(newer, Ok(Outcome::Executed(())));
                assert_outcome!(older, Ok(Outcome::Superseded { .. }));
            }
            false => {
                assert_outcome!(newer, Ok(Outcome::Failed(_)));
                assert_outcome!(older, Ok(Outcome::Executed(_)));
            }
        }
        assert_eq!(world.versions().await, [if commits { 5 } else { 4 }]);
    }
}

async fn of_many_versions_at_once_the_rows_are_those_that_were_executed<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        let outcomes = join_all((1..=12).map(|version| world.set_elsewhere(mode, version))).await;
        let mut executed = Vec::new();
        for (version, outcome) in (1..).zip(outcomes) {
            match outcome {
                Ok(Outcome::Executed(_)) => executed.push(version),
                Ok(Outcome::Superseded { .. } | Outcome::InProgress { .. }) => {}
                // On DynamoDB, conflicting transactions give way to each other.
                Ok(Outcome::Failed(failure)) => assert_eq!(failure.verdict(), Verdict::Transient, "{failure}"),
                Err(error) => assert!(error.is_retryable(), "{error}"),
                outcome => panic!("{version}: {outcome:?}"),
            }
        }
        assert_eq!(world.versions().await, executed, "{mode:?}");
    }
}

async fn a_permanent_failure_is_recorded_without_the_row_and_supersedes_nothing<D: Database>() {
    for mode in MODES {
        let world = World::<D>::new().await;
        let end = Err(Failure::permanent("no such account"));
        let failed = world.set_by(&world.once, &world.store, mode, 5, end).await;
        assert_outcome!(failed, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Permanent);
        assert_outcome!(world.set(mode, 5).await, Ok(Outcome::ReplayedFailure(_)));
        assert_outcome!(world.set(mode, 4).await, Ok(Outcome::Executed(_)));
        assert_eq!(world.versions().await, [4], "{mode:?}");
    }
}

/// Each `COMMIT` of an operation is cut, for its claim and for its transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_cut_leaves_row_record_and_mark_alike() {
    for (mode, commits) in [(Mode::Claimed, 2), (Mode::WithoutClaim, 1)] {
        for nth in 1..=commits {
            for is_applied in [true, false] {
                let world = Postgres::new().await;
                let fault = world.proxy.on(PostgresStore::commits).nth(nth);
                if is_applied {
                    fault.drop_response()
                } else {
                    fault.drop_request()
                }
                let outcome = world.set(mode, 5).await;
                let is_claim = nth < commits;
                match is_applied || is_claim {
                    true => assert_outcome!(outcome, Ok(Outcome::Executed(_))),
                    false => assert_outcome!(outcome, Ok(Outcome::Failed(_))),
                }
                let expected: &[u64] = if is_applied || is_claim { &[5] } else { &[] };
                assert_eq!(world.versions().await, expected, "{mode:?} {nth}");
                let older = world.set(mode, 4).await;
                match expected {
                    [] => assert_outcome!(older, Ok(Outcome::Executed(_))),
                    _ => assert_outcome!(older, Ok(Outcome::Superseded { .. })),
                }
            }
        }
    }
}

/// The caller gives up and releases while its `COMMIT` is on its way. Row, record and order marker agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_and_its_release_may_arrive_in_any_order() {
    let world = Postgres::new().await;
    let mut commit = world.proxy.on(PostgresStore::commits).nth(2).hold();
    let mut release = world.proxy.on(|request| Purpose::of(request) == Purpose::Read).nth(3).hold();
    let network = async {
        commit.arrived().await;
        // The caller has given up when it releases.
        release.arrived().await;
        release.release();
        commit.release();
    };
    let (outcome, ()) = tokio::join!(world.set(Mode::Claimed, 5), network);
    let (again, older) = (world.set_elsewhere(Mode::Claimed, 5), world.set_elsewhere(Mode::Claimed, 4));
    match outcome.unwrap() {
        Outcome::Executed(_) => {
            assert_outcome!(older.await, Ok(Outcome::Superseded { .. }));
            assert_outcome!(again.await, Ok(Outcome::Replayed(_)));
            assert_eq!(world.versions().await, [5]);
        }
        Outcome::Failed(failure) => {
            assert_eq!(failure.verdict(), Verdict::Transient);
            assert_outcome!(older.await, Ok(Outcome::Executed(_)));
            assert_outcome!(again.await, Ok(Outcome::Executed(_)));
            assert_eq!(world.versions().await, [4, 5]);
        }
        outcome => panic!("{outcome:?}"),
    }
}
