//! Renewals in real time, with the default clock of each store.

mod frozen;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    Failure, Idempotency, Outcome, Store,
    store::{
        dynamodb::Calls,
        fault::{Call, Fault, FaultStore},
    },
};
use tokio::time::sleep;

use crate::support::{
    assert_outcome,
    stores::{Backend, Records},
};

const CHARGE: &str = "charge";
const KEY: &str = "order 7";
const LEASE: Duration = Duration::from_secs(2);

const DYNAMODB: Backend = Backend::DynamoDb(Calls::Auto);

/// Runs a real-time test on all these stores concurrently.
async fn side_by_side<F>(backends: &[Backend], test: fn(Backend) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let tests: Vec<_> = backends.iter().map(|backend| (backend, tokio::spawn(test(*backend)))).collect();
    for (backend, test) in tests {
        test.await.unwrap_or_else(|error| panic!("{backend:?}: {error}"));
    }
}

/// Returns an engine with a short lease.
fn engine(store: impl Store) -> Idempotency {
    let reserve = Duration::from_millis(200);
    Idempotency::builder(store).scope("tests").lease(LEASE).reserve(reserve).disabled(false).build().unwrap()
}

async fn five_leases(backend: Backend) {
    let records = Records::on_its_own_clock(backend).await;
    let store = FaultStore::new(records.store().await, 1);
    // Each fault affects one renewal, but not its repetition.
    for fault in [Fault::Throttled, Fault::ErrorAfter, Fault::ErrorBefore, Fault::Delay(LEASE / 8), Fault::ErrorAfter] {
        store.next(Call::Settle, fault);
        store.next(Call::Settle, Fault::Delay(Duration::ZERO));
    }
    let (holder, rival) = (engine(store.clone()), engine(records.store().await));
    let (runs, is_done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let work = || async {
        runs.fetch_add(1, Ordering::SeqCst);
        let rivals = async {
            while !is_done.load(Ordering::SeqCst) {
                let outcome = rival.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(2) }).await;
                assert_outcome!(outcome, Ok(Outcome::InProgress { .. }));
                sleep(LEASE / 8).await;
            }
        };
        let work = async {
            sleep(5 * LEASE).await;
            is_done.store(true, Ordering::SeqCst);
        };
        tokio::join!(work, rivals);
        Ok::<_, Failure>(1)
    };
    assert_outcome!(holder.operation(CHARGE, KEY).run(work).await, Ok(Outcome::Executed(1)));
    let outcome = rival.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(2) }).await;
    assert_outcome!(outcome, Ok(Outcome::Replayed(1)));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn despite_store_errors_work_of_five_leases_has_one_holder() {
    side_by_side(&[DYNAMODB, Backend::Redis, Backend::RedisCluster, Backend::Postgres], five_leases).await;
}
