//! A process that is frozen (`SIGSTOP`) while it holds a claim, and thaws when others may take over.

use std::{env, time::Duration};

use lambda_once::{
    Failure, Idempotency, Outcome,
    clock::{Clock, SystemClock},
    record::{Record, Status},
    store::ResultData,
};
use tokio::time::sleep;

use super::{CHARGE, DYNAMODB, KEY, LEASE, engine, side_by_side};
use crate::support::{
    assert_outcome,
    process::Process,
    stores::{Backend, Records},
};

/// The environment variables from which the process finds its store.
const BACKEND: &str = "LAMBDA_ONCE_TEST_BACKEND";
const RECORDS: &str = "LAMBDA_ONCE_TEST_RECORDS";

/// One store whose clients use their own clocks, and two that use the server's clock.
const KINDS: [Backend; 3] = [DYNAMODB, Backend::Redis, Backend::Postgres];

const MARGIN: Duration = Duration::from_secs(1);
/// The duration of the handler, which would continue after the process thaws.
const WORK: Duration = Duration::from_millis(3_500);

const BEGUN: &str = "begun";
const WENT_ON: &str = "went on";

/// The only test that the process runs.
const TEST: &str = "heartbeat::frozen::a_process_that_thaws_after_its_successor_neither_runs_nor_settles";

/// Returns the store of the process, if this is the holder.
fn store_of_holder() -> Option<(Backend, String)> {
    let (Ok(backend), Ok(records)) = (env::var(BACKEND), env::var(RECORDS)) else { return None };
    let backend = match &*backend {
        "dynamodb" => DYNAMODB,
        "redis" => Backend::Redis,
        "postgres" => Backend::Postgres,
        other => panic!("no store of these tests: {other}"),
    };
    Some((backend, records))
}

/// Reports its steps to its parent, one per line.
async fn hold(backend: Backend, records: String) {
    let once = engine(Records::of_another_process(backend, records).store().await);
    let work = || async {
        eprintln!("{BEGUN}");
        sleep(WORK).await;
        eprintln!("{WENT_ON}");
        Ok::<_, Failure>(1)
    };
    let outcome = once.operation(CHARGE, KEY).run(work).await.unwrap();
    eprintln!("{}", outcome.as_str());
}

/// Starts the process that holds the claim, and waits until it has claimed the operation and renewed its lease once.
async fn start_holder(backend: Backend, records: &Records) -> Process {
    let name = match backend {
        Backend::DynamoDb(_) => "dynamodb",
        Backend::Redis => "redis",
        Backend::Postgres => "postgres",
        other => panic!("no store of these tests: {other:?}"),
    };
    let mut holder = Process::start(TEST, &[(BACKEND, name), (RECORDS, records.name())]);
    assert_eq!(holder.line().await.as_deref(), Some(BEGUN));
    sleep(LEASE / 2).await;
    holder
}

async fn record(records: &Records, once: &Idempotency) -> Record {
    let key = once.key_hash(CHARGE, KEY).unwrap();
    records.store().await.read(&[key], ResultData::Include).await.remove(0).unwrap().unwrap()
}

async fn thaws_after_a_successor(backend: Backend) {
    let records = Records::on_its_own_clock(backend).await;
    let mut holder = start_holder(backend, &records).await;
    holder.signal("STOP");
    let rival = Idempotency::builder(records.store().await).scope("tests").disabled(false).build().unwrap();
    let outcome =
        rival.operation(CHARGE, KEY).wait_up_to(Duration::from_secs(20)).run(|| async { Ok::<_, Failure>(2) });
    assert_outcome!(outcome.await, Ok(Outcome::TookOver(2)));
    sleep(WORK.saturating_sub(LEASE)).await;
    let before = record(&records, &rival).await;
    assert_eq!(before.status, Status::Completed);
    holder.signal("CONT");
    assert_eq!(holder.line().await.as_deref(), Some("cancelled"));
    assert_eq!(record(&records, &rival).await, before);
}

async fn thaws_alone(backend: Backend) {
    let records = Records::on_its_own_clock(backend).await;
    let rival = engine(records.store().await);
    let mut holder = start_holder(backend, &records).await;
    holder.signal("STOP");
    sleep(LEASE + MARGIN + LEASE / 4).await;
    let thawed = SystemClock.now();
    holder.signal("CONT");
    assert_eq!(holder.line().await.as_deref(), Some("cancelled"));
    let record = record(&records, &rival).await;
    assert_eq!(record.status, Status::InProgress);
    assert!(record.lease_until.unwrap() < thawed, "it was not renewed");
    let outcome = rival.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(2) }).await;
    assert_outcome!(outcome, Ok(Outcome::TookOver(2)));
}

// Tests L7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_thaws_after_its_successor_neither_runs_nor_settles() {
    if let Some((backend, records)) = store_of_holder() {
        return hold(backend, records).await;
    }
    side_by_side(&KINDS, thaws_after_a_successor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_thaws_after_its_lease_neither_runs_nor_revives_it() {
    side_by_side(&KINDS, thaws_alone).await;
}
