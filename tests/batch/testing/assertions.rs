//! Assertions that fail, and their messages.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lambda_once::{
    BoxError, BoxFuture, ErrorKind, Failure, Idempotency, Key, OutcomeKind, PermanentFailures,
    batch::{DeadLetter, DeadLetters},
    record::{Record, Status},
    store::fault::{Call, Fault, FaultStore},
    testing::{self, Deliveries, Redeliver, sqs},
};
use serde_json::{Value, json};

async fn succeed(_: Value) -> Result<(), Failure> {
    Ok(())
}

async fn fail(_: Value) -> Result<(), Failure> {
    Err(Failure::transient("the shop is closed"))
}

async fn refuse(_: Value) -> Result<(), Failure> {
    Err(Failure::permanent("there is no such shop"))
}

/// Returns the message of the failing assertion.
fn complaint<R>(deliveries: &Deliveries<R>) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| deliveries.assert_once())).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

fn one() -> testing::Batch<aws_lambda_events::sqs::SqsEvent> {
    sqs::batch([testing::record(&json!({ "order_id": "7" })).id("m-7")])
}

#[tokio::test]
async fn a_handler_without_protection_is_found_out() {
    let service = Idempotency::disabled().sqs(Key::message_id(), succeed);
    let complaint = complaint(&testing::deliver_twice(&service, &one()).await);
    assert_eq!(
        complaint,
        "not every record was handled once, by one of the deliveries\n\n\
         record  first delivery  second delivery\n\
         0 m-7   executed        executed         ran again, unprotected\n"
    );
}

#[tokio::test]
async fn a_record_that_is_superseded_counts_as_handled() {
    let service = testing::engine()
        .sqs(Key::pointer("/version"), succeed)
        .concurrency(1)
        .ordered_by(Key::pointer("/order_id"), Key::pointer("/version"));
    let records = [1, 3, 2].map(|version| testing::record(&json!({ "order_id": "7", "version": version })));
    let deliveries = testing::deliver_twice(&service, &sqs::batch(records)).await;
    assert_eq!(deliveries.first.outcomes().last(), Some(&Ok(OutcomeKind::Superseded)));
    deliveries.assert_once();
}

#[tokio::test]
async fn a_key_that_changes_between_deliveries_is_found_out() {
    let key = Key::from_fn(|delivery| Ok(delivery.attribute("ApproximateReceiveCount").map(str::to_owned)));
    let service = testing::engine().sqs(key, succeed);
    let complaint = complaint(&testing::deliver_twice(&service, &one()).await);
    assert!(complaint.contains("ran again, under another key"), "{complaint}");
}

#[tokio::test]
async fn a_reported_record_is_listed_with_its_outcomes_and_its_error() {
    let service = testing::engine().sqs(Key::message_id(), |order: Value| async {
        if order == "bad" { fail(order).await } else { succeed(order).await }
    });
    let batch = sqs::batch([testing::record("good").id("a"), testing::record("bad").id("longer"), testing::bytes("{")]);
    let complaint = complaint(&testing::deliver_twice(&service, &batch).await);
    let lines: Vec<&str> = complaint.lines().skip(2).collect();
    assert_eq!(lines[0], "record                                  first delivery                second delivery");
    assert_eq!(lines[1], "0 a                                     executed                      replayed");
    assert_eq!(
        lines[2],
        "1 longer                                failed (transient), reported  failed (transient), reported  ran again; \
         reported"
    );
    assert!(lines[3].starts_with("2 00000000-0000-4000-8000-"), "{complaint}");
    assert!(
        lines[3].ends_with("  invalid_payload, reported     invalid_payload, reported     reported"),
        "{complaint}"
    );
    assert_eq!(lines[5], "record 1 in the first delivery: the shop is closed");
    assert_eq!(lines[7], "record 1 in the second delivery: the shop is closed");
}

#[derive(Debug)]
struct Bin;

impl DeadLetters for Bin {
    fn send<'a>(&'a self, _: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn a_dead_lettered_record_is_listed_as_such() {
    let service = Idempotency::disabled().sqs(Key::message_id(), refuse).dead_letters(Bin);
    let complaint = complaint(&testing::deliver_twice(&service, &one()).await);
    let put_aside = "failed (permanent), dead-lettered";
    assert!(complaint.contains(&format!("{put_aside}  {put_aside}  ran again, unprotected")), "{complaint}");
}

#[tokio::test]
async fn a_payload_that_changes_between_deliveries_is_found_out() {
    let service = testing::engine().sqs(Key::message_id(), succeed);
    let changing = |number: u32| sqs::batch([testing::record(&number).id("m-7")]).delivery(number);
    let deliveries = testing::deliver_twice(&service, &changing).await;
    assert_eq!(deliveries.second.outcomes(), [Ok(OutcomeKind::Mismatch)]);
    assert!(complaint(&deliveries).contains("executed        mismatch, reported  reported"));
}

#[tokio::test]
async fn a_record_that_nobody_finishes_is_found_out() {
    let store = testing::store();
    let engine = testing::builder(store.clone()).build().unwrap();
    let held = Record { attempt: 1, ..Record::new(Status::InProgress) };
    store.insert(engine.key_hash("sqs", "7").unwrap(), held);
    let service = engine.sqs(Key::pointer("/order_id"), succeed);
    let complaint = complaint(&testing::deliver_twice(&service, &one()).await);
    assert!(complaint.contains("in_progress, reported  in_progress, reported  reported by both"), "{complaint}");
}

#[tokio::test]
async fn a_success_that_is_not_recorded_is_found_out() {
    let store = FaultStore::new(testing::store(), 7);
    store.always(Call::Settle, Fault::TableMissing);
    let service = testing::builder(store).build().unwrap().sqs(Key::message_id(), succeed);
    let complaint = complaint(&testing::deliver_twice(&service, &one()).await);
    assert!(complaint.contains("unrecorded      in_progress, reported  not recorded"), "{complaint}");
}

#[tokio::test]
async fn an_event_that_is_refused_as_a_whole_is_found_out() {
    let service = testing::engine().sqs(Key::message_id(), succeed);
    let nameless = sqs::batch([testing::bytes("{}").id("")]);
    let deliveries = testing::deliver_twice(&service, &nameless).await;
    assert_eq!(deliveries.first.response.as_ref().unwrap_err().kind(), ErrorKind::Event);
    assert!(complaint(&deliveries).starts_with("the first delivery failed: "));
}

#[tokio::test]
async fn deliveries_with_different_or_no_records_are_detected() {
    let service = testing::engine().sqs(Key::message_id(), succeed);
    let other = |number: u32| sqs::batch([testing::bytes("1").id(number.to_string())]).delivery(number);
    let deliveries = testing::deliver_twice(&service, &other).await;
    assert_eq!(complaint(&deliveries), r#"the deliveries do not have the same records: ["1"] and ["2"]"#);
    let deliveries = testing::deliver_twice(&service, &sqs::batch([])).await;
    assert_eq!(complaint(&deliveries), "the first delivery has no records");
}

#[tokio::test]
async fn a_failure_that_is_remembered_and_acknowledged_is_no_repetition() {
    let service = testing::engine().sqs(Key::message_id(), refuse).permanent_failures(PermanentFailures::Acknowledge);
    let deliveries = testing::deliver_twice(&service, &one()).await;
    assert_eq!(deliveries.second.outcomes(), [Ok(OutcomeKind::ReplayedFailure)]);
    deliveries.assert_once();
}

#[tokio::test]
async fn a_test_whose_handler_never_ran_is_found_out() {
    let service = testing::engine().sqs(Key::message_id(), succeed).permanent_failures(PermanentFailures::Acknowledge);
    let complaint = complaint(&testing::deliver_twice(&service, &sqs::batch([testing::bytes("{").id("m-7")])).await);
    assert!(complaint.ends_with("0 m-7   invalid_payload  invalid_payload  did not run\n"), "{complaint}");
}
