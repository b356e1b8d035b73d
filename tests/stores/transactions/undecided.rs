//! Transactions with an unknown end, because a statement failed, or because the connection is lost or silent.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    Failure, Outcome, PostgresStore, Store, Verdict, clock::Clock, record::Status, store::postgres::Transaction,
};
use tracing::Level;

use super::{DEBIT, Database, LAPSE, MODES, Mode, World, build, engine};
use crate::support::{
    self, assert_outcome,
    clock::TokioClock,
    collector::Collector,
    stores::Backend,
    wire::{self, Request},
};

type Postgres = World<PostgresStore>;

/// Returns whether a request checks if a transaction is still open.
fn checks_open_transaction(request: &Request) -> bool {
    request.command.contains("pg_current_xact_id_if_assigned()::text AS id")
}

/// Returns whether a request reads the status of a transaction.
fn queries_transaction_status(request: &Request) -> bool {
    request.command.contains("pg_xact_status")
}

/// Returns the results of a handler whose writes must not be committed.
fn failures() -> [(Failure, Verdict); 2] {
    [(Failure::transient("closed"), Verdict::Transient), (Failure::permanent("no such account"), Verdict::Permanent)]
}

impl Postgres {
    /// Runs work in a transaction.
    async fn run<W, F>(&self, mode: Mode, order: &str, work: W) -> Result<Outcome<()>, lambda_once::Error>
    where
        W: FnOnce(Transaction) -> F + Send,
        F: Future<Output = Result<(), Failure>> + Send,
    {
        let operation = self.once.operation(DEBIT, order).in_transaction(&self.store);
        match mode {
            Mode::Claimed => operation.run(work).await,
            Mode::WithoutClaim => operation.without_claim().run(work).await,
        }
    }

    /// Asserts that the operation's outcome is unknown, its claim kept, and an error logged.
    async fn is_unknown<T: std::fmt::Debug>(
        &self,
        (mode, order): (Mode, &str),
        outcome: Result<Outcome<T>, lambda_once::Error>,
        collector: &Collector,
    ) {
        assert_outcome!((order, outcome), (_, Ok(Outcome::Failed(failure))) if failure.verdict() == Verdict::Unknown);
        if mode == Mode::Claimed {
            assert_eq!(self.status(order).await, Some(Status::InProgress), "{order}: the claim is kept");
        }
        let key = self.once.key_hash(DEBIT, order).unwrap().to_string();
        let is_told = |line: &support::collector::Line| line.level == Level::ERROR && line.get("key") == key;
        assert!(collector.lines().iter().any(is_told), "{order}: {:?}", collector.lines());
    }

    async fn is_rolled_back<T: std::fmt::Debug>(
        &self,
        order: &str,
        outcome: Result<Outcome<T>, lambda_once::Error>,
        verdict: Verdict,
    ) {
        assert_outcome!((order, outcome), (_, Ok(Outcome::Failed(failure))) if failure.verdict() == verdict);
        assert_eq!(self.ledger.rows(order).await, [""; 0], "{order}");
        let expected = (verdict == Verdict::Permanent).then_some(Status::Failed);
        assert_eq!(self.status(order).await, expected, "{order}");
    }
}

/// The connection stays open, but silent.
#[tokio::test]
async fn the_server_decides_the_outcome_after_a_silent_connection() {
    let world = Postgres::new().await;
    for mode in MODES {
        for (number, (end, verdict)) in failures().into_iter().enumerate() {
            let order = format!("open {mode:?} {number}");
            let _silent = world.proxy.on(checks_open_transaction).hang();
            let outcome = world.debit_and(mode, &order, "SELECT 1", Err(end)).await;
            world.is_rolled_back(&order, outcome, verdict).await;
        }
        for (number, (end, _)) in failures().into_iter().enumerate() {
            let order = format!("committed {mode:?} {number}");
            let (collector, _guard) = Collector::install();
            let _silent = world.proxy.on(checks_open_transaction).hang();
            let outcome = world.debit_and(mode, &order, "COMMIT", Err(end)).await;
            world.is_unknown((mode, &order), outcome, &collector).await;
        }
    }
}

/// Only the query for the status has a timeout.
#[tokio::test]
async fn another_connection_may_take_its_time_to_open() {
    let world = Postgres::new().await;
    let (_, url) = Backend::Postgres.wire();
    let through_the_proxy = support::postgres::config(world.proxy.in_place_of(&url).parse().unwrap());
    let is_slow = Arc::new(AtomicBool::new(false));
    let password = {
        let is_slow = Arc::clone(&is_slow);
        move || {
            let is_slow = is_slow.load(Ordering::SeqCst);
            async move {
                if is_slow {
                    tokio::time::sleep(Duration::from_millis(600)).await;
                }
                Ok::<_, Infallible>("any".to_owned())
            }
        }
    };
    let store = through_the_proxy.password(password).build().unwrap().with_clock(world.clock.clone());
    let once = build(engine(&store, &world.clock));
    for mode in MODES {
        let order = format!("{mode:?}");
        let work = async |transaction: Transaction| {
            world.ledger.enter(&transaction, &order).await?;
            world.proxy.on(checks_open_transaction).drop_request();
            is_slow.store(true, Ordering::SeqCst);
            Err::<(), _>(Failure::transient("closed"))
        };
        let operation = once.operation(DEBIT, &order).in_transaction(&store);
        let outcome = match mode {
            Mode::Claimed => operation.run(work).await,
            Mode::WithoutClaim => operation.without_claim().run(work).await,
        };
        is_slow.store(false, Ordering::SeqCst);
        world.is_rolled_back(&order, outcome, Verdict::Transient).await;
    }
}

/// The handler may have stopped waiting for it. Its transaction may be open for as long as the statement runs.
#[tokio::test]
async fn a_statement_that_still_runs_leaves_an_unknown_outcome() {
    let world = Postgres::new().await;
    for mode in MODES {
        let order = format!("{mode:?}");
        let (collector, _guard) = Collector::install();
        let mut slow = world.proxy.on_command("COMMIT; SELECT 'slow'").hold();
        let work = async |transaction: Transaction| {
            let client = transaction.client().await?;
            tokio::select! {
                _ = client.batch_execute("COMMIT; SELECT 'slow'") => unreachable!(),
                _ = slow.arrived() => Err::<(), _>(Failure::transient("it takes too long")),
            }
        };
        let outcome = world.run(mode, &order, work).await;
        world.is_unknown((mode, &order), outcome, &collector).await;
    }
}

#[tokio::test]
async fn a_commit_before_a_failed_statement_leaves_an_unknown_outcome() {
    let world = Postgres::new().await;
    for mode in MODES {
        for (number, (end, _)) in failures().into_iter().enumerate() {
            let order = format!("{mode:?} {number}");
            let (collector, _guard) = Collector::install();
            let work = async |transaction: Transaction| {
                let client = transaction.client().await?;
                client.batch_execute("COMMIT; BEGIN").await?;
                assert!(client.batch_execute("SELECT 1 / 0").await.is_err());
                Err::<(), _>(end)
            };
            let outcome = world.run(mode, &order, work).await;
            world.is_unknown((mode, &order), outcome, &collector).await;
            let says_why =
                |line: &support::collector::Line| line.get("error").contains("has ended the transaction itself");
            assert!(collector.lines().iter().any(says_why), "{order}: {:?}", collector.lines());
        }
    }
}

/// Both statements at the end of a transaction are cancelled, and it stays open until its connection is closed.
#[tokio::test]
async fn a_transaction_whose_rollback_fails_ends_with_its_connection() {
    let world = Postgres::new().await;
    for mode in MODES {
        for (number, (end, verdict)) in failures().into_iter().enumerate() {
            let order = format!("{mode:?} {number}");
            world.proxy.on(checks_open_transaction).respond(wire::refusal("ERROR", "57014", Some('T')));
            world.proxy.on_command("ROLLBACK").respond(wire::refusal("ERROR", "57014", Some('T')));
            let outcome = world.debit_and(mode, &order, "SELECT 1", Err(end)).await;
            world.is_rolled_back(&order, outcome, verdict).await;
            assert_eq!(world.proxy.pending_faults(), 0, "{order}");
        }
    }
}

/// It is recorded in another transaction, which begins when the first one has ended.
#[tokio::test]
async fn a_permanent_failure_waits_for_a_statement_that_still_runs() {
    let (world, order) = (Postgres::new().await, "blocked");
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let ledger = world.ledger.name();
    admin.batch_execute(&format!("BEGIN; LOCK TABLE \"{ledger}\"")).await.unwrap();
    let insert = format!("INSERT INTO \"{ledger}\" VALUES ('{order}', '{order}')");
    let mut blocked = world.proxy.on_command(&insert).hold();
    let work = async |transaction: Transaction| {
        let client = transaction.client().await?;
        tokio::select! {
            _ = client.batch_execute(&insert) => unreachable!(),
            _ = blocked.arrived() => blocked.release(),
        }
        Err::<(), _>(Failure::permanent("it takes too long"))
    };
    // The first query waits behind the statement, and the second has found it running.
    let mut third_query = world.proxy.on(queries_transaction_status).nth(3).hold();
    let unblocks = async {
        third_query.arrived().await;
        admin.batch_execute("COMMIT").await.unwrap();
        third_query.release();
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        outcome = world.run(Mode::WithoutClaim, order, work) => outcome,
        () = unblocks => unreachable!(),
    };
    world.is_rolled_back(order, outcome, Verdict::Permanent).await;
}

/// The status is queried on another connection.
#[tokio::test]
async fn the_server_decides_the_outcome_after_a_lost_connection() {
    let world = Postgres::new().await;
    for mode in MODES {
        for (number, (end, verdict)) in failures().into_iter().enumerate() {
            world.proxy.on(checks_open_transaction).drop_request();
            let order = format!("open {mode:?} {number}");
            let outcome = world.debit_and(mode, &order, "SELECT 1", Err(end)).await;
            world.is_rolled_back(&order, outcome, verdict).await;
        }
        for (number, (end, _)) in failures().into_iter().enumerate() {
            let (collector, _guard) = Collector::install();
            world.proxy.on(checks_open_transaction).drop_request();
            let order = format!("committed {mode:?} {number}");
            let outcome = world.debit_and(mode, &order, "COMMIT", Err(end)).await;
            assert_eq!(world.ledger.rows(&order).await.len(), 1);
            world.is_unknown((mode, &order), outcome, &collector).await;
        }
    }
}

/// An operator, or a timeout of the role, may end the session.
#[tokio::test]
async fn a_session_that_the_server_ends_is_rolled_back() {
    let world = Postgres::new().await;
    for mode in MODES {
        for (number, (end, verdict)) in failures().into_iter().enumerate() {
            let order = format!("{mode:?} {number}");
            let outcome = world.debit_and(mode, &order, "SELECT pg_terminate_backend(pg_backend_pid())", Ok(())).await;
            world.is_rolled_back(&order, outcome, Verdict::Transient).await;
            let work = async |transaction: Transaction| {
                let client = transaction.client().await?;
                world.ledger.enter(&transaction, &order).await?;
                assert!(client.batch_execute("SELECT pg_terminate_backend(pg_backend_pid())").await.is_err());
                Err::<(), _>(end)
            };
            let outcome = world.run(mode, &order, work).await;
            world.is_rolled_back(&order, outcome, verdict).await;
        }
    }
}

#[tokio::test]
async fn a_transaction_of_unknown_status_has_an_unknown_outcome() {
    let world = Postgres::new().await;
    for mode in MODES {
        for (number, (end, _)) in failures().into_iter().enumerate() {
            let order = format!("{mode:?} {number}");
            let (collector, _guard) = Collector::install();
            world.proxy.on(checks_open_transaction).drop_request();
            world.proxy.on(queries_transaction_status).drop_request();
            let outcome = world.debit_and(mode, &order, "SELECT 1", Err(end)).await;
            world.is_unknown((mode, &order), outcome, &collector).await;
        }
    }
}

/// The settle finds that another transaction is open, and cannot query the status of the handler's transaction.
#[tokio::test]
async fn a_success_outside_a_transaction_of_unknown_status_is_unknown() {
    let world = Postgres::new().await;
    for mode in MODES {
        let order = format!("{mode:?}");
        let (collector, _guard) = Collector::install();
        let _silent = world.proxy.on(checks_open_transaction).hang();
        let outcome = world.debit_and(mode, &order, "COMMIT", Ok(())).await;
        world.is_unknown((mode, &order), outcome, &collector).await;
    }
}

/// The engine's call timeout ends the commit. A release would be applied, although the writes are committed.
#[tokio::test]
async fn a_silent_commit_does_not_hide_that_the_handler_has_committed() {
    let world = Postgres::new().await;
    let (collector, _guard) = Collector::install();
    let _silent = world.proxy.on(PostgresStore::settles).hang();
    let outcome = world.debit_and(Mode::Claimed, "committed", "COMMIT", Ok(())).await;
    assert_eq!(world.ledger.rows("committed").await.len(), 1);
    world.is_unknown((Mode::Claimed, "committed"), outcome, &collector).await;
    let _silent = world.proxy.on(PostgresStore::settles).hang();
    let outcome = world.debit_and(Mode::Claimed, "open", "SELECT 1", Ok(())).await;
    world.is_rolled_back("open", outcome, Verdict::Transient).await;
}

/// The record is final, but not by the transaction that the handler has committed.
#[tokio::test]
async fn an_outcome_of_another_run_does_not_hide_a_commit_of_the_handler() {
    let (world, order) = (Postgres::new().await, "committed");
    // By this clock, the lease has ended.
    let ahead = TokioClock::at(world.clock.now().after(LAPSE));
    world.direct.warm_up().await.unwrap();
    let elsewhere = build(engine(&world.direct.clone().with_clock(ahead.clone()), &ahead));
    let mut silent = world.proxy.on(PostgresStore::settles).hang();
    let rival = async {
        silent.arrived().await;
        elsewhere.operation(DEBIT, order).run(async || Ok::<_, Failure>(())).await
    };
    let (outcome, rival) = tokio::join!(world.debit_and(Mode::Claimed, order, "COMMIT", Ok(())), rival);
    assert_outcome!(rival, Ok(Outcome::TookOver(())));
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Unknown);
    assert_eq!(world.ledger.rows(order).await.len(), 1);
}

/// A clone is alive elsewhere, so only the query for its transaction can be sent on its connection.
#[tokio::test]
async fn a_clone_does_not_hide_a_commit_before_a_failed_statement() {
    let world = Postgres::new().await;
    for mode in MODES {
        let ends = [Ok(()), Err(Failure::transient("closed")), Err(Failure::permanent("no such account"))];
        for (number, end) in ends.into_iter().enumerate() {
            let order = format!("{mode:?} {number}");
            let (collector, _guard) = Collector::install();
            let mut kept = None;
            let work = async |transaction: Transaction| {
                kept = Some(transaction.clone());
                world.ledger.enter(&transaction, &order).await?;
                let client = transaction.client().await?;
                client.batch_execute("COMMIT; BEGIN").await?;
                assert!(client.batch_execute("SELECT 1 / 0").await.is_err());
                end
            };
            let outcome = world.run(mode, &order, work).await;
            assert_eq!(world.ledger.rows(&order).await.len(), 1, "{order}");
            world.is_unknown((mode, &order), outcome, &collector).await;
        }
    }
}

/// Writes of the handler after its rollback are committed.
#[tokio::test]
async fn a_clone_does_not_hide_that_the_handler_has_rolled_back() {
    let world = Postgres::new().await;
    for mode in MODES {
        for (number, end) in [Ok(()), Err(Failure::transient("closed"))].into_iter().enumerate() {
            let order = format!("{mode:?} {number}");
            let (collector, _guard) = Collector::install();
            let mut kept = None;
            let work = async |transaction: Transaction| {
                kept = Some(transaction.clone());
                transaction.client().await?.batch_execute("ROLLBACK").await?;
                world.ledger.enter(&transaction, &order).await?;
                end
            };
            let outcome = world.run(mode, &order, work).await;
            assert_eq!(world.ledger.rows(&order).await.len(), 1, "{order}");
            world.is_unknown((mode, &order), outcome, &collector).await;
        }
    }
}

/// The state of its transaction is queried together with the rollback.
#[tokio::test]
async fn a_failed_statement_costs_no_round_trip_more() {
    let world = Postgres::new().await;
    let run = async |script: &'static str| {
        let work = async |transaction: Transaction| {
            let _ = transaction.client().await?.batch_execute(script).await;
            Err::<(), _>(Failure::transient("closed"))
        };
        let before = world.proxy.round_trips();
        let outcome = world.once.operation(DEBIT, script).in_transaction(&world.store).run(work).await;
        assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
        world.proxy.round_trips() - before
    };
    run("SELECT 0").await;
    assert_eq!(
        [run("SELECT 1").await, run("SELECT 1 / 0").await],
        [5, 5],
        "claim, begin, statement, rollback, release"
    );
}
