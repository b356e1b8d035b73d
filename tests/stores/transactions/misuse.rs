//! Misuse of transactions, and their cost.

use std::{future::pending, sync::Mutex, time::Duration};

use aws_sdk_dynamodb::types::{AttributeValue, Delete};
use lambda_once::{
    CachedStore, DynamoDbStore, ErrorKind, Failure, Outcome, PostgresStore, Verdict,
    clock::Clock,
    store::{fault::FaultStore, postgres::Transaction},
};

use tokio::sync::Notify;

use super::{DEBIT, Database, KEY, MODES, Mode, World, build, engine, on_each_database};
use crate::support::assert_outcome;

async fn another_store_is_refused_before_anything_runs<D: Database>() {
    let (world, other) = (World::<D>::new().await, World::<D>::new().await);
    for mode in MODES {
        let outcome = world.debit_by(&world.once, &other.store, mode, || Ok(())).await;
        assert_outcome!(outcome, Err(error) if error.kind() == ErrorKind::Config);
    }
    assert_eq!(world.proxy.requests(), []);
}

async fn the_store_is_seen_through_its_wrappers<D: Database>() {
    let world = World::<D>::new().await;
    let cached = build(engine(&std::sync::Arc::new(CachedStore::new(world.store.clone())), &world.clock));
    let faults = build(engine(&std::sync::Arc::new(FaultStore::new(world.store.clone(), 0)), &world.clock));
    assert_outcome!(world.debit_by(&cached, &world.store, Mode::Claimed, || Ok(())).await, Ok(Outcome::Executed(_)));
    assert_outcome!(world.debit_by(&faults, &world.store, Mode::Claimed, || Ok(())).await, Ok(Outcome::Replayed(_)));
}

async fn a_transaction_that_is_kept_is_closed<D: Database>() {
    let world = World::<D>::new().await;
    let kept = Mutex::new(None);
    let work = async |transaction: D::Transaction| {
        *kept.lock().unwrap() = Some(transaction.clone());
        world.ledger.enter(&transaction, KEY).await?;
        Err::<String, _>(Failure::transient("closed"))
    };
    let outcome = world.once.operation(DEBIT, KEY).in_transaction(&world.store).run(work).await;
    assert_outcome!(outcome, Ok(Outcome::Failed(_)));
    let kept = kept.lock().unwrap().take().unwrap();
    assert!(world.ledger.enter(&kept, KEY).await.is_err());
    assert_eq!(world.rows().await, [""; 0]);
    assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Executed(_)));
}

/// A worker may die while a task of its handler still runs.
async fn a_transaction_that_is_kept_is_closed_when_its_run_is_dropped<D: Database>() {
    let world = World::<D>::new().await;
    let (kept, has_begun) = (Mutex::new(None), Notify::new());
    let work = async |transaction: D::Transaction| {
        *kept.lock().unwrap() = Some(transaction.clone());
        world.ledger.enter(&transaction, KEY).await?;
        has_begun.notify_one();
        pending::<Result<String, Failure>>().await
    };
    tokio::select! {
        outcome = world.once.operation(DEBIT, KEY).in_transaction(&world.store).run(work) => panic!("{outcome:?}"),
        () = has_begun.notified() => {}
    }
    let kept = kept.lock().unwrap().take().unwrap();
    assert!(world.ledger.enter(&kept, KEY).await.is_err());
    assert_eq!(world.rows().await, [""; 0]);
}

async fn with_no_time_left_nothing_is_claimed<D: Database>() {
    let world = World::<D>::new().await;
    for mode in MODES {
        let operation = world.once.operation(DEBIT, KEY).deadline(world.clock.now().after(Duration::from_millis(400)));
        let operation = operation.in_transaction(&world.store);
        let work = async |transaction: D::Transaction| world.ledger.enter(&transaction, KEY).await;
        let outcome = match mode {
            Mode::Claimed => operation.run(work).await,
            Mode::WithoutClaim => operation.without_claim().run(work).await,
        };
        assert_outcome!(outcome, Ok(Outcome::NotStarted));
    }
    assert_eq!(world.proxy.requests(), []);
}

/// Half of the reserve is for settles, and a handler that blocks its thread may end later.
async fn a_late_end_of_a_handler_is_committed_or_rolled_back_in_time<D: Database>() {
    let second = Duration::from_secs(1);
    for mode in MODES {
        for fails in [false, true] {
            let world = World::<D>::new().await;
            let once = build(engine(&world.store, &world.clock).reserve(20 * second));
            let work = async |transaction: D::Transaction| {
                let id = world.ledger.enter(&transaction, KEY).await?;
                world.clock.jump(52 * second);
                if fails { Err(Failure::transient("closed")) } else { Ok(id) }
            };
            let operation = once.operation(DEBIT, KEY).deadline(world.clock.now().after(60 * second));
            let operation = operation.in_transaction(&world.store);
            let outcome = match mode {
                Mode::Claimed => operation.run(work).await,
                Mode::WithoutClaim => operation.without_claim().run(work).await,
            };
            match outcome.unwrap() {
                Outcome::Executed(id) if !fails => assert_eq!(world.rows().await, [id]),
                Outcome::Failed(failure) if fails => {
                    assert_eq!((failure.verdict(), world.rows().await), (Verdict::Transient, vec![]));
                }
                other => panic!("{mode:?}: {other:?}"),
            }
        }
    }
}

/// A handler that writes nothing is recorded as without a transaction. Requests are counted, because a client on
/// another thread may send statements of one round trip separately.
async fn a_transaction_that_is_not_used_costs_nothing<D: Database>() {
    let world = World::<D>::new().await;
    let operation = |name| world.once.operation(name, KEY);
    let plain = operation("plain").run(async || Ok::<_, Failure>(1)).await;
    assert_outcome!(plain, Ok(Outcome::Executed(1)));
    let calls = world.proxy.requests().len();
    world.proxy.reset();
    let unused = operation("unused").in_transaction(&world.store).run(async |_| Ok::<_, Failure>(1)).await;
    assert_outcome!(unused, Ok(Outcome::Executed(1)));
    assert_eq!(world.proxy.requests().len(), calls, "{:?}", world.proxy.requests());
}

on_each_database!(
    another_store_is_refused_before_anything_runs,
    the_store_is_seen_through_its_wrappers,
    a_transaction_that_is_kept_is_closed,
    a_transaction_that_is_kept_is_closed_when_its_run_is_dropped,
    with_no_time_left_nothing_is_claimed,
    a_late_end_of_a_handler_is_committed_or_rolled_back_in_time,
    a_transaction_that_is_not_used_costs_nothing,
);

#[tokio::test]
async fn on_dynamodb_a_new_operation_takes_two_calls_and_one_without_a_claim() {
    for (mode, calls) in [
        (Mode::Claimed, ["UpdateItem", "TransactWriteItems"].as_slice()),
        (Mode::WithoutClaim, &["TransactWriteItems"]),
    ] {
        let world = World::<DynamoDbStore>::new().await;
        assert_outcome!(world.debit(mode).await, Ok(Outcome::Executed(_)));
        let requests = world.proxy.requests();
        assert_eq!(requests.iter().map(|request| request.command.as_str()).collect::<Vec<_>>(), calls);
    }
}

#[tokio::test]
async fn on_postgresql_the_transaction_begins_at_its_first_use_and_settles_last() {
    for mode in MODES {
        let world = World::<PostgresStore>::new().await;
        assert_outcome!(world.debit(mode).await, Ok(Outcome::Executed(_)));
        let requests = world.proxy.requests();
        let words = requests.iter().flat_map(|request| request.command.lines()).filter_map(|sql| {
            let words = ["BEGIN", "INSERT INTO once_records", "INSERT INTO", "UPDATE once_records", "COMMIT"];
            words.into_iter().find(|word| sql.replace('"', "").replace("public.", "").contains(word))
        });
        let (begin, claim) = ("BEGIN", "INSERT INTO once_records");
        let first = if mode == Mode::Claimed { [claim, begin] } else { [begin, claim] };
        let expected = first.into_iter().chain(["INSERT INTO", "UPDATE once_records", "COMMIT"]);
        assert_eq!(words.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{requests:?}");
        // The claim and the statement that explains it, BEGIN with the transaction's id, the handler's statement, which
        // is prepared, executed and closed, the settle, and COMMIT.
        assert_eq!(requests.len(), 8, "{requests:?}");
    }
}

#[tokio::test]
async fn on_dynamodb_there_is_room_for_99_writes() {
    let world = World::<DynamoDbStore>::new().await;
    for (writes, fits) in [(99, true), (100, false)] {
        let work = async |transaction: <DynamoDbStore as lambda_once::Transactional>::Transaction| {
            for number in 0..writes {
                let id = AttributeValue::S(format!("row {number}"));
                transaction.delete(Delete::builder().table_name(world.ledger.name()).key("id", id).build()?)?;
            }
            Ok::<_, Failure>(())
        };
        let outcome = world.once.operation("clear", &writes).in_transaction(&world.store).run(work).await.unwrap();
        assert_eq!(outcome.is_done(), fits);
        // The transaction itself refuses the last one, before the commit.
        let is_refused = matches!(&outcome, Outcome::Failed(failure) if failure.to_string().contains("99 writes"));
        assert_eq!(is_refused, !fits, "{outcome:?}");
    }
}

#[tokio::test]
async fn on_postgresql_nothing_is_committed_while_a_clone_is_alive() {
    for is_begun in [true, false] {
        let world = World::<PostgresStore>::new().await;
        let kept = Mutex::new(None);
        let work = async |transaction: Transaction| {
            *kept.lock().unwrap() = Some(transaction.clone());
            if is_begun {
                world.ledger.enter(&transaction, KEY).await?;
            }
            Ok::<_, Failure>(String::new())
        };
        let outcome = world.once.operation(DEBIT, KEY).in_transaction(&world.store).run(work).await;
        assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.to_string().contains("clone"));
        let kept = kept.lock().unwrap().take().unwrap();
        assert!(kept.client().await.is_err());
        assert_eq!((world.rows().await, world.record().await), (vec![], None));
        assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Executed(_)));
    }
}

/// Its holder could otherwise send statements on a connection that other calls use.
#[tokio::test]
async fn on_postgresql_the_client_of_a_clone_that_is_alive_is_closed() {
    let world = World::<PostgresStore>::new().await;
    let kept = Mutex::new(None);
    let [has_begun, has_client, has_ended] = [(); 3].map(|()| Notify::new());
    let work = async |transaction: Transaction| {
        world.ledger.enter(&transaction, KEY).await?;
        *kept.lock().unwrap() = Some(transaction.clone());
        has_begun.notify_one();
        has_client.notified().await;
        Ok::<_, Failure>(String::new())
    };
    let run = async {
        let outcome = world.once.operation(DEBIT, KEY).in_transaction(&world.store).run(work).await;
        has_ended.notify_one();
        outcome
    };
    let holder = async {
        has_begun.notified().await;
        let clone = kept.lock().unwrap().take().unwrap();
        let client = clone.client().await.unwrap();
        has_client.notify_one();
        has_ended.notified().await;
        client.batch_execute("SELECT 1").await
    };
    let (outcome, sent) = tokio::join!(run, holder);
    assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.to_string().contains("clone"));
    assert!(sent.is_err());
}

/// The server rolls back such a transaction at `COMMIT`, and reports success.
#[tokio::test]
async fn on_postgresql_an_error_that_the_handler_ignores_is_no_success() {
    for is_protected in [true, false] {
        let world = World::<PostgresStore>::new().await;
        let once = build(engine(&world.store, &world.clock).disabled(!is_protected));
        let work = async |transaction: Transaction| {
            let id = world.ledger.enter(&transaction, KEY).await?;
            assert!(transaction.client().await?.batch_execute("SELECT 1 / 0").await.is_err());
            Ok::<_, Failure>(id)
        };
        let outcome = once.operation(DEBIT, KEY).in_transaction(&world.store).run(work).await;
        assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Transient);
        assert_eq!((world.rows().await, world.record().await), (vec![], None));
        let asked = world.proxy.requests().iter().filter(|request| request.command.contains("pg_xact_status")).count();
        assert_eq!(asked, 1, "with the rollback, and not once more");
        assert_outcome!(world.debit(Mode::Claimed).await, Ok(Outcome::Executed(_)));
    }
}

/// Resolving a commit also needs a connection.
#[tokio::test]
async fn on_postgresql_a_pool_of_one_connection_is_enough_for_one_operation() {
    let world = World::<PostgresStore>::new().await;
    let url = world.proxy.in_place_of(&crate::support::postgres::url());
    let config = crate::support::postgres::config(url.parse().unwrap()).pool_size(1);
    let store = config.build().unwrap().with_clock(world.clock.clone());
    let once = build(engine(&store, &world.clock));
    for mode in MODES {
        world.proxy.on(PostgresStore::commits).drop_response();
        let key = format!("{mode:?}");
        let outcome = world.debit_order(&key, &once, &store, mode, || Ok(())).await;
        assert_outcome!(outcome, Ok(Outcome::Executed(_)));
        assert_eq!(world.ledger.rows(&key).await.len(), 1);
    }
}

#[tokio::test]
async fn without_a_claim_a_run_may_last_as_long_as_a_heartbeat_would() {
    let world = World::<PostgresStore>::new().await;
    let operation = || world.once.operation(DEBIT, KEY).heartbeat(Duration::from_secs(3_600));
    let work = async |transaction: Transaction| {
        // Longer than a lease.
        world.lapse();
        world.ledger.enter(&transaction, KEY).await
    };
    assert_outcome!(operation().in_transaction(&world.store).without_claim().run(work).await, Ok(Outcome::Executed(_)));
    let refused = operation().deadline(world.clock.now().after(Duration::from_secs(10)));
    let refused =
        refused.in_transaction(&world.store).without_claim().run(async |_| Ok::<_, Failure>(String::new())).await;
    assert_outcome!(refused, Err(error) if error.kind() == ErrorKind::Config);
}
