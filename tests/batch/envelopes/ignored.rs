//! Ignored deliveries.

use std::sync::{Arc, Mutex};

use lambda_once::{
    ErrorKind, Failure, Idempotency, Key, OutcomeKind, PermanentFailures,
    store::fault::FaultStore,
    testing::{self, kinesis, sqs},
};
use serde_json::{Value, json};

use super::answer;
use crate::testing::journal::Journal;

const IGNORED: Result<OutcomeKind, ErrorKind> = Ok(OutcomeKind::Ignored);

// Tests B7.
#[tokio::test]
async fn records_that_a_predicate_ignores_are_acknowledged_without_a_claim() {
    let store = FaultStore::new(testing::store(), 1);
    let journal = Journal::<u32>::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&seen);
    let service = testing::builder(store.clone())
        .build()
        .unwrap()
        .sqs(Key::message_id(), journal.handler())
        .ignore(|delivery| delivery.header("kind") == Some("ping") || delivery.body() == b"ping")
        .on_record(move |report| observed.lock().unwrap().push((report.index, report.outcome, report.key)));
    let batch = sqs::batch([testing::bytes("not JSON").header("kind", "ping"), testing::bytes("ping")]);
    testing::deliver_twice(&service, &batch).await.assert_once();
    assert!(store.calls().is_empty(), "{:?}", store.calls());
    assert_eq!(*seen.lock().unwrap(), [(0, IGNORED, None), (1, IGNORED, None)].repeat(2));

    let batch = sqs::batch([testing::bytes("ping"), testing::bytes("7"), testing::bytes("pong").id("m-3")]);
    let delivered = testing::deliver(&service, &batch).await;
    assert_eq!(delivered.outcomes(), [IGNORED, Ok(OutcomeKind::Executed), Err(ErrorKind::Payload)]);
    assert_eq!(answer(&delivered), ["m-3"]);
    assert_eq!(journal.payloads(), [7]);
}

#[tokio::test]
async fn it_is_ignored_where_the_protection_is_switched_off_too() {
    let journal = Journal::<Value>::new();
    let service =
        Idempotency::disabled().sqs(Key::message_id(), journal.handler()).ignore(|delivery| delivery.body() == b"1");
    let delivered = testing::deliver(&service, &sqs::batch([testing::bytes("1"), testing::bytes("2")])).await;
    assert_eq!(delivered.outcomes(), [IGNORED, Ok(OutcomeKind::Executed)]);
    assert_eq!(journal.payloads(), [json!(2)]);
}

#[tokio::test]
async fn a_predicate_that_panics_fails_its_own_record_under_every_policy() {
    let journal = Journal::<Value>::new();
    let service = testing::engine()
        .sqs(Key::message_id(), journal.handler())
        .permanent_failures(PermanentFailures::Acknowledge)
        .ignore(|delivery| if delivery.body() == b"1" { panic!("the predicate") } else { false });
    let delivered = testing::deliver(&service, &sqs::batch([testing::bytes("1").id("m-1"), testing::bytes("2")])).await;
    assert_eq!(delivered.outcomes(), [Err(ErrorKind::Decode), Ok(OutcomeKind::Executed)]);
    assert_eq!(answer(&delivered), ["m-1"]);
}

#[tokio::test]
async fn in_a_shard_ignored_records_are_neither_failures_nor_blocking() {
    let service = testing::engine()
        .kinesis(Key::message_id(), |number: u32| async move {
            if number == 3 { Err(Failure::transient("no")) } else { Ok(()) }
        })
        .ignore(|delivery| delivery.body() == b"0");
    let batch = kinesis::batch([0, 1, 0, 2].map(|number| testing::record(&number)));
    testing::deliver_twice(&service, &batch).await.assert_once();
    let batch = kinesis::batch([0, 3, 0].map(|number| testing::record(&number)));
    let delivered = testing::deliver(&service, &batch).await;
    assert_eq!(delivered.outcomes()[0], IGNORED);
    assert_eq!(delivered.reported().len(), 2, "the failure, and what is behind it");
    assert!(delivered.response.unwrap().checkpoint.is_some());
}
