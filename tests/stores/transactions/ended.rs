//! Statements of a handler that end its transaction, or change the settings of the session.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lambda_once::{
    Error, Failure, Idempotency, Key, Outcome, OutcomeKind, PostgresStore, Transactional, Verdict,
    batch::in_transaction,
    http::{Caller, IdempotencyKeyLayer},
    record::Status,
    store::postgres::{IsolationLevel, Transaction},
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

use super::{DEBIT, KEY, MODES, Mode, World, build, engine};
use crate::support::{self, assert_outcome, clock::TokioClock, collector::Collector, unique_name};

type Postgres = World<PostgresStore>;

/// Scripts that end the transaction, with the number of remaining rows out of the one entered before.
const ENDINGS: [(&str, usize); 6] = [
    ("ROLLBACK", 0),
    ("COMMIT", 1),
    ("ROLLBACK; BEGIN", 0),
    ("COMMIT; BEGIN", 1),
    ("ROLLBACK AND CHAIN", 0),
    ("COMMIT AND CHAIN", 1),
];

/// Returns the results of a handler that has sent such a script.
fn ends() -> [Result<(), Failure>; 3] {
    [Ok(()), Err(Failure::transient("closed")), Err(Failure::permanent("no such account"))]
}

impl Postgres {
    /// Enters a row for an order, sends a script, and ends as given. Uses no named prepared statements, so that it
    /// works through a pooler.
    pub(super) async fn debit_with(
        &self,
        (once, store): (&Idempotency, &PostgresStore),
        (mode, place): (Mode, Option<u64>),
        order: &str,
        script: &str,
        end: Result<(), Failure>,
    ) -> Result<Outcome<()>, Error> {
        let work = async |transaction: Transaction| {
            let client = transaction.client().await?;
            let ledger = self.ledger.name();
            client.batch_execute(&format!("INSERT INTO \"{ledger}\" VALUES ('{order}', '{order}')")).await?;
            client.batch_execute(script).await?;
            end
        };
        let mut operation = once.operation(DEBIT, order);
        if let Some(version) = place {
            operation = operation.ordered_by("account 7", version);
        }
        let operation = operation.in_transaction(store);
        match mode {
            Mode::Claimed => Box::pin(operation.run(work)).await,
            Mode::WithoutClaim => Box::pin(operation.without_claim().run(work)).await,
        }
    }

    /// Does the same through the world's own store.
    pub(super) async fn debit_and(
        &self,
        mode: Mode,
        order: &str,
        script: &str,
        end: Result<(), Failure>,
    ) -> Result<Outcome<()>, Error> {
        self.debit_with((&self.once, &self.store), (mode, None), order, script, end).await
    }

    pub(super) async fn status(&self, order: &str) -> Option<Status> {
        use lambda_once::{Store, store::ResultData};
        let key = self.once.key_hash(DEBIT, order).unwrap();
        self.direct.read(&[key], ResultData::Omit).await.remove(0).unwrap().map(|record| record.status)
    }
}

#[tokio::test]
async fn a_handler_that_ends_its_transaction_leaves_an_unknown_outcome() {
    let world = Postgres::new().await;
    for mode in MODES {
        for (script, rows) in ENDINGS {
            for (number, end) in ends().into_iter().enumerate() {
                let order = format!("{mode:?} {script} {number}");
                let (collector, _guard) = Collector::install();
                let outcome = world.debit_and(mode, &order, script, end).await;
                assert_outcome!(
                    (&order, outcome),
                    (_, Ok(Outcome::Failed(failure))) if failure.verdict() == Verdict::Unknown
                );
                assert_eq!(world.ledger.rows(&order).await.len(), rows, "{order}");
                let status = world.status(&order).await;
                match mode {
                    Mode::Claimed => assert_eq!(status, Some(Status::InProgress), "{order}: the claim is kept"),
                    // The claim belonged to the transaction.
                    Mode::WithoutClaim => assert_eq!(status, (rows == 1).then_some(Status::InProgress), "{order}"),
                }
                let key = world.once.key_hash(DEBIT, &order).unwrap().to_string();
                let is_told = |line: &support::collector::Line| {
                    line.level == Level::ERROR && line.get("key") == key && line.get("error").contains("`COMMIT`")
                };
                assert!(collector.lines().iter().any(is_told), "{order}: {:?}", collector.lines());
            }
        }
    }
}

/// Neither its outcome nor the entity's sequence is recorded apart from the writes.
#[tokio::test]
async fn a_handler_in_an_order_that_ends_its_transaction_advances_nothing() {
    for mode in MODES {
        for (script, _) in ENDINGS {
            let world = Postgres::new().await;
            let through = (&world.once, &world.store);
            let outcome = world.debit_with(through, (mode, Some(5)), "five", script, Ok(())).await;
            assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Unknown);
            let older = world.debit_with(through, (Mode::Claimed, Some(4)), "four", "SELECT 1", Ok(())).await;
            assert_outcome!(older, Ok(Outcome::InProgress { .. } | Outcome::Executed(())));
        }
    }
}

#[tokio::test]
async fn without_protection_a_transaction_that_its_handler_ends_is_no_success() {
    let world = Postgres::new().await;
    let once = build(engine(&world.store, &world.clock).disabled(true));
    // Returns the outcome, and whether the log asks to look at the data.
    let debit = async |mode: Mode, order: &str, script: &str| {
        let (collector, guard) = Collector::install();
        let outcome = world.debit_with((&once, &world.store), (mode, None), order, script, Ok(())).await;
        drop(guard);
        let asks = |line: &support::collector::Line| {
            line.level == Level::ERROR && line.get("message").contains("look at its data before it runs again")
        };
        (outcome, collector.lines().iter().any(asks))
    };
    for mode in MODES {
        for (script, rows) in ENDINGS {
            let order = format!("{mode:?} {script}");
            assert_outcome!(
                debit(mode, &order, script).await,
                (Ok(Outcome::Failed(failure)), true) if failure.verdict() == Verdict::Unknown
            );
            assert_eq!(world.ledger.rows(&order).await.len(), rows, "{order}");
        }
        // The ledger's constraint refuses the second commit, and leaves no doubt.
        let order = format!("{mode:?} twice");
        assert_outcome!(debit(mode, &order, "SELECT 1").await, (Ok(Outcome::Executed(())), false));
        assert_outcome!(
            debit(mode, &order, "SELECT 1").await,
            (Ok(Outcome::Failed(failure)), false) if failure.verdict() == Verdict::Transient
        );
    }
}

#[tokio::test]
async fn a_message_whose_handler_ends_its_transaction_keeps_its_claim() {
    let world = Postgres::new().await;
    let handle = |order: Value, transaction: Transaction| async move {
        let client = transaction.client().await?;
        client.batch_execute(order["script"].as_str().unwrap_or_default()).await?;
        if order["fails"] == true { Err(Failure::transient("closed")) } else { Ok(()) }
    };
    let service = world.once.named("payouts").sqs(Key::pointer("/id"), in_transaction(&world.store, handle));
    let messages = [("a", "COMMIT", false), ("b", "COMMIT", true), ("c", "SELECT 1", true), ("d", "SELECT 1", false)]
        .map(|(id, script, fails)| testing::record(&json!({ "id": id, "script": script, "fails": fails })));
    let batch = sqs::batch(messages);
    let processed = service.process(LambdaEvent::new(batch.delivery(1), Context::default())).await;
    let outcomes: Vec<OutcomeKind> = processed.outcomes().into_iter().map(Result::unwrap).collect();
    let [unknown, transient] = [Verdict::Unknown, Verdict::Transient].map(OutcomeKind::Failed);
    assert_eq!(outcomes, [unknown, unknown, transient, OutcomeKind::Executed]);
    let processed = service.process(LambdaEvent::new(batch.delivery(2), Context::default())).await;
    let outcomes: Vec<OutcomeKind> = processed.outcomes().into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [OutcomeKind::InProgress, OutcomeKind::InProgress, transient, OutcomeKind::Replayed]);
}

#[tokio::test]
async fn a_request_whose_handler_ends_its_transaction_keeps_its_claim() {
    for status in [201, 500] {
        let world = Postgres::new().await;
        let handler = service_fn(move |request: Request<Full<Bytes>>| async move {
            let transaction = request.extensions().get::<Transaction>().unwrap().clone();
            drop(request);
            transaction.client().await.unwrap().batch_execute("COMMIT").await.unwrap();
            Ok::<_, Infallible>(Response::builder().status(status).body(Full::<Bytes>::default()).unwrap())
        });
        let layer = IdempotencyKeyLayer::new(world.once.named("payments"), Caller::shared());
        let service = layer.in_transaction(&world.store).validate().unwrap().layer(handler);
        // The outcome is unknown, and after that the claim is held.
        for expected in [503, 409] {
            let request = Request::post("/payments").header("idempotency-key", "k").body(Full::default()).unwrap();
            assert_eq!(service.clone().oneshot(request).await.unwrap().status(), expected, "{status}");
        }
    }
}

/// After a statement's error, PostgreSQL reports only that the transaction has failed.
#[tokio::test]
async fn after_an_error_of_a_statement_the_handlers_failure_counts() {
    let world = Postgres::new().await;
    for mode in MODES {
        for (failure, verdict) in
            [(Failure::transient("closed"), Verdict::Transient), (Failure::permanent("closed"), Verdict::Permanent)]
        {
            let order = format!("{mode:?} {verdict:?}");
            let work = async |transaction: Transaction| {
                assert!(transaction.client().await?.batch_execute("SELECT 1 / 0").await.is_err());
                Err::<(), _>(failure)
            };
            let operation = world.once.operation(DEBIT, &order).in_transaction(&world.store);
            let outcome = match mode {
                Mode::Claimed => operation.run(work).await,
                Mode::WithoutClaim => operation.without_claim().run(work).await,
            };
            assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == verdict);
            let expected = (verdict == Verdict::Permanent).then_some(Status::Failed);
            assert_eq!(world.status(&order).await, expected, "{order}");
        }
    }
}

#[tokio::test]
async fn a_savepoint_is_the_handlers_own_affair() {
    let world = Postgres::new().await;
    for mode in MODES {
        let order = format!("{mode:?}");
        let script = "SAVEPOINT a; SAVEPOINT b; ROLLBACK TO a; RELEASE a; SAVEPOINT c";
        assert_outcome!(world.debit_and(mode, &order, script, Ok(())).await, Ok(Outcome::Executed(())));
        assert_eq!(world.ledger.rows(&order).await.len(), 1);
        assert_eq!(world.status(&order).await, Some(Status::Completed));
    }
}

/// A database with one schema per tenant does this. One of them has tables with the same names.
#[tokio::test]
async fn a_search_path_of_the_handlers_own_does_not_move_the_records() {
    let world = Postgres::new().await;
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let [bare, full] = ["bare", "full"].map(unique_name);
    let tables = format!(
        "CREATE SCHEMA \"{bare}\"; CREATE SCHEMA \"{full}\";
         CREATE TABLE \"{full}\".once_records (LIKE once_records INCLUDING ALL);
         CREATE TABLE \"{full}\".once_marks (LIKE once_marks INCLUDING ALL);"
    );
    admin.batch_execute(&tables).await.unwrap();
    let mut version = 0;
    for mode in MODES {
        for schema in [&bare, &full] {
            for is_ordered in [false, true] {
                version += 1;
                let (order, place) = (version.to_string(), is_ordered.then_some(version));
                let script = format!("SET LOCAL search_path = \"{schema}\"");
                let outcome =
                    world.debit_with((&world.once, &world.store), (mode, place), &order, &script, Ok(())).await;
                assert_outcome!(outcome, Ok(Outcome::Executed(())));
                let again = world.debit_with((&world.once, &world.store), (mode, place), &order, "", Ok(())).await;
                assert_outcome!(again, Ok(Outcome::Replayed(())));
            }
        }
    }
    for table in ["once_records", "once_marks"] {
        let rows = admin.query_typed(&format!("SELECT FROM \"{full}\".{table}"), &[]).await.unwrap();
        assert!(rows.is_empty(), "{table}");
    }
}

/// A transaction finds the tables where a claim finds them in the same session.
#[tokio::test]
async fn a_changed_search_path_of_the_role_moves_the_records() {
    let clock = TokioClock::new();
    let admin = support::postgres::client(&support::postgres::connection().await).await;
    let connection = support::postgres::role(&[]).await;
    let role = connection.get_user().unwrap().to_owned();
    let store = support::postgres::config(connection).pool_size(1).build().unwrap().with_clock(clock.clone());
    let once = build(engine(&store, &clock));
    for schema in ["first", "second"].map(unique_name) {
        let create = format!("CREATE SCHEMA \"{schema}\" AUTHORIZATION \"{role}\"");
        let path = format!("ALTER ROLE \"{role}\" SET search_path = \"{schema}\"");
        admin.batch_execute(&format!("{create}; {path}")).await.unwrap();
        store.migrate().await.unwrap();
        for mode in MODES {
            let work = async |transaction: Transaction| {
                transaction.client().await?;
                Ok::<_, Failure>(())
            };
            let order = format!("{mode:?}");
            let operation = once.operation(DEBIT, &order).in_transaction(&store);
            let outcome = match mode {
                Mode::Claimed => operation.run(work).await,
                Mode::WithoutClaim => operation.without_claim().run(work).await,
            };
            assert_outcome!((&schema, outcome), (_, Ok(Outcome::Executed(()))));
        }
        let count = format!("SELECT count(*) FROM \"{schema}\".once_records");
        assert_eq!(admin.query_one(&count, &[]).await.unwrap().get::<_, i64>(0), 2, "{schema}");
        // A transaction that is dropped closes its connection, and only the next one has the next setting.
        let dropped = store.open();
        dropped.client().await.unwrap();
    }
}

/// The role may write the handler's rows, but not the records.
#[tokio::test]
async fn a_role_of_the_handlers_own_is_reset_before_it_returns() {
    let world = Postgres::new().await;
    let connection = support::postgres::connection().await;
    let config = support::postgres::config(connection).table(unique_name("records"));
    let store = config.build().unwrap().with_clock(world.clock.clone());
    store.migrate().await.unwrap();
    let once = build(engine(&store, &world.clock));
    let role = support::postgres::role(&[]).await.get_user().unwrap().to_owned();
    for mode in MODES {
        let changed = format!("SET LOCAL ROLE \"{role}\"");
        let order = format!("changed {mode:?}");
        let outcome = world.debit_with((&once, &store), (mode, None), &order, &changed, Ok(())).await;
        assert_outcome!(
            outcome,
            Ok(Outcome::Failed(failure))
                if failure.verdict() == Verdict::Transient && failure.to_string().contains("`RESET ROLE`")
        );
        assert_eq!(world.ledger.rows(&order).await.len(), 0);
        let (order, reset) = (format!("reset {mode:?}"), format!("{changed}; RESET ROLE"));
        let outcome = world.debit_with((&once, &store), (mode, None), &order, &reset, Ok(())).await;
        assert_outcome!(outcome, Ok(Outcome::Executed(())));
    }
}

#[tokio::test]
async fn the_store_decides_the_isolation_level() {
    let world = Postgres::new().await;
    let levels = [
        (None, "read committed"),
        (Some(IsolationLevel::ReadCommitted), "read committed"),
        (Some(IsolationLevel::RepeatableRead), "repeatable read"),
        (Some(IsolationLevel::Serializable), "serializable"),
    ];
    for mode in MODES {
        for (level, expected) in levels {
            let store = level.map_or(world.store.clone(), |level| world.store.clone().with_isolation_level(level));
            let work = async |transaction: Transaction| {
                let found = transaction.client().await?.query_typed_one("SHOW transaction_isolation", &[]).await?;
                Ok::<String, Failure>(found.get(0))
            };
            let order = format!("{mode:?} {level:?}");
            let operation = world.once.operation(DEBIT, &order).in_transaction(&store);
            let outcome = match mode {
                Mode::Claimed => operation.run(work).await,
                Mode::WithoutClaim => operation.without_claim().run(work).await,
            };
            assert_outcome!((&order, outcome), (_, Ok(Outcome::Executed(found))) if found == expected);
        }
    }
}

/// At READ COMMITTED, it would replay the other's outcome.
#[tokio::test]
async fn at_a_higher_isolation_level_a_claim_within_meets_another_as_an_error() {
    let world = Postgres::new().await;
    let serializable = world.store.clone().with_isolation_level(IsolationLevel::Serializable);
    let mut claim = world.proxy.on(|request| request.command.contains("INSERT INTO \"once_records\"")).hold();
    let other = async {
        claim.arrived().await;
        assert_outcome!(world.debit_elsewhere(Mode::WithoutClaim).await, Ok(Outcome::Executed(_)));
        claim.release();
    };
    let (met, ()) = tokio::join!(world.debit_by(&world.once, &serializable, Mode::WithoutClaim, || Ok(())), other);
    assert_outcome!(met, Err(error) if error.to_string().contains("40001"));
    assert_outcome!(world.debit(Mode::WithoutClaim).await, Ok(Outcome::Replayed(_)));
}

#[tokio::test]
async fn a_handler_that_sets_the_isolation_level_itself_learns_of_the_setting() {
    let world = Postgres::new().await;
    let work = async |transaction: Transaction| {
        let set = transaction.client().await?.batch_execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").await;
        assert_eq!(set.unwrap_err().code().unwrap().code(), "25001");
        Ok::<_, Failure>(())
    };
    let outcome = world.once.operation(DEBIT, KEY).in_transaction(&world.store).run(work).await;
    assert_outcome!(
        outcome,
        Ok(Outcome::Failed(failure)) if failure.to_string().contains("`PostgresStore::with_isolation_level`")
    );
}
