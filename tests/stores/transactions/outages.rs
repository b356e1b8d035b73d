//! A PostgreSQL server that is killed during transactions.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    Failure, Idempotency, Outcome,
    store::postgres::{Transaction, tokio_postgres},
};
use tokio::{sync::watch, task::spawn_blocking};

use crate::support::{self, servers::Server};

const WORKERS: usize = 4;

async fn enter(transaction: Transaction, order: String) -> Result<(), Failure> {
    let client = transaction.client().await?;
    client.execute("INSERT INTO ledger (key) VALUES ($1)", &[&order]).await?;
    Ok(())
}

/// Each acknowledged operation is in the ledger once, and so is each in-doubt one when it is finally done.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_killed_in_mid_transaction_has_each_row_once() {
    let mut server = spawn_blocking(|| Server::start("postgres", &[])).await.unwrap();
    let connection: tokio_postgres::Config = server.url().parse().unwrap();
    let store = support::postgres::config(connection.clone()).build().unwrap();
    store.migrate().await.unwrap();
    support::postgres::client(&connection).await.batch_execute("CREATE TABLE ledger (key text)").await.unwrap();
    let once = Idempotency::builder(store.clone()).scope("tests").lease(Duration::from_secs(3)).disabled(false);
    let once = once.build().unwrap();

    let (is_over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(watch::Sender::new(0_usize)));
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let (store, once, is_over, done) = (store.clone(), once.clone(), Arc::clone(&is_over), Arc::clone(&done));
        workers.push(tokio::spawn(async move {
            let mut orders = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let order = format!("{worker} {}", orders.len());
                loop {
                    let operation = once.operation("debit", &order).wait_up_to(Duration::from_secs(10));
                    let ran = operation.in_transaction(&store).run(|transaction| enter(transaction, order.clone()));
                    if Box::pin(ran).await.is_ok_and(|outcome: Outcome<()>| outcome.is_done()) {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                orders.push(order);
                done.send_modify(|done| *done += 1);
            }
            orders
        }));
    }
    let mut progress = done.subscribe();
    for _ in 0..3 {
        let goal = *progress.borrow() + 20;
        progress.wait_for(|done| *done >= goal).await.unwrap();
        server = spawn_blocking(move || {
            server.kill();
            server.restart();
            server
        })
        .await
        .unwrap();
    }
    let goal = *progress.borrow() + 20;
    progress.wait_for(|done| *done >= goal).await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    let mut expected = HashMap::new();
    for worker in workers {
        expected.extend(worker.await.unwrap().into_iter().map(|order| (order, 1_i64)));
    }
    let client = support::postgres::client(&connection).await;
    let rows = client.query("SELECT key, count(*) FROM ledger GROUP BY key", &[]).await.unwrap();
    let rows: HashMap<String, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, expected);
}
