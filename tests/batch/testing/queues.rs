//! SQS, and the parts that are common to all batches.

use lambda_once::{
    ErrorKind, Failure, Key, OutcomeKind,
    store::ResultData,
    testing::{self, Redeliver, kinesis, sqs},
};
use serde_json::{Value, json};

use crate::testing::journal::Journal;

async fn book(order: Value) -> Result<String, Failure> {
    Ok(order["order_id"].to_string())
}

#[tokio::test]
async fn a_test_that_a_handler_is_safe_to_deliver_again_is_three_lines() {
    let service = testing::engine().sqs(Key::pointer("/order_id"), book);
    let batch = sqs::batch([testing::record(&json!({ "order_id": "7" }))]);
    testing::deliver_twice(&service, &batch).await.assert_once();
}

/// Runs the test above with the protection switched off.
#[test]
fn the_test_engine_protects_even_if_the_environment_disables_it() {
    let test = "testing::queues::a_test_that_a_handler_is_safe_to_deliver_again_is_three_lines";
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    let output = again.args(["--exact", test]).env("LAMBDA_ONCE_DISABLED", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
}

#[tokio::test]
async fn the_outcome_of_each_record_can_be_compared() {
    let service = testing::engine().sqs(Key::pointer("/order_id"), book);
    let order = json!({ "order_id": "7" });
    let batch = sqs::batch([testing::record(&order), testing::record(&order), testing::bytes("no order").id("m-3")]);
    let deliveries = testing::deliver_twice(&service, &batch).await;
    let bad = Err(ErrorKind::Payload);
    assert_eq!(deliveries.first.outcomes(), [Ok(OutcomeKind::Executed), Ok(OutcomeKind::Replayed), bad]);
    assert_eq!(deliveries.second.outcomes(), [Ok(OutcomeKind::Replayed), Ok(OutcomeKind::Replayed), bad]);
    assert_eq!((deliveries.first.reported(), deliveries.second.reported()), (vec!["m-3"], vec!["m-3"]));
}

#[tokio::test]
async fn equal_messages_are_messages_of_their_own_in_a_batch_and_across_batches() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler());
    let order = testing::record(&json!({ "order_id": "7" }));
    let batch = || sqs::batch([order.clone(), order.clone()]);
    let (one, other) = (batch(), batch());
    testing::deliver_twice(&service, &one).await.assert_once();
    testing::deliver_twice(&service, &other).await.assert_once();
    assert_eq!(journal.runs().len(), 4);
}

#[test]
fn a_redelivered_message_has_a_higher_receive_count_and_the_same_content() {
    let batch = sqs::batch([testing::bytes("a"), testing::bytes("b").attribute("ApproximateReceiveCount", 5)]);
    let counts = |delivery: u32| {
        let records = batch.delivery(delivery).records;
        records.iter().map(|record| record.attributes["ApproximateReceiveCount"].clone()).collect::<Vec<_>>()
    };
    assert_eq!([counts(1), counts(2), counts(3)], [["1", "5"], ["2", "6"], ["3", "7"]]);
    let mut deliveries = [1, 2].map(|number| batch.delivery(number).records);
    for record in deliveries.iter_mut().flatten() {
        record.attributes.remove("ApproximateReceiveCount");
        record.receipt_handle = None;
    }
    let [first, second] = deliveries;
    assert_eq!(first, second);
}

#[tokio::test]
async fn an_sqs_message_has_its_given_id_attributes_and_headers() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler());
    let message = testing::record(&json!({ "order_id": "7" }))
        .id("m-7")
        .attribute("MessageGroupId", "fair")
        .attribute("ApproximateReceiveCount", 3)
        .attribute("SentTimestamp", "1795255200000")
        .header("tenant", "a");
    let batch = sqs::batch([message]).source("arn:aws:sqs:eu-central-1:210987654321:other");
    testing::deliver_twice(&service, &batch).await.assert_once();
    let (order, context) = journal.runs().pop().unwrap();
    assert_eq!(order["order_id"], "7");
    assert_eq!((context.record().message_id(), context.record().receive_count()), ("m-7", 3));
    assert_eq!(context.record().attribute("SentTimestamp"), Some("1795255200000"));
    assert_eq!(context.record().attribute("MessageGroupId"), Some("fair"));
    assert_eq!(context.record().header("tenant"), Some("a"));
    assert_eq!(context.record().source(), Some("arn:aws:sqs:eu-central-1:210987654321:other"));
}

#[tokio::test]
async fn a_fifo_queue_has_groups_and_deduplication_ids() {
    let handle = |order: Value| async move { if order == "bad" { Err(Failure::transient("closed")) } else { Ok(()) } };
    let service = testing::engine().sqs(Key::deduplication_id(), handle);
    let batch = sqs::fifo([
        testing::record("bad").attribute("MessageGroupId", "a"),
        testing::record("blocked").attribute("MessageGroupId", "a"),
        testing::record("free").attribute("MessageGroupId", "b"),
        testing::record("twice"),
        testing::record("twice"),
        testing::record("once more").attribute("MessageDeduplicationId", "d"),
        testing::record("other").attribute("MessageDeduplicationId", "d"),
    ]);
    let delivered = testing::deliver(&service, &batch).await;
    let outcomes: Vec<_> = delivered.outcomes().into_iter().map(|outcome| outcome.unwrap().as_str()).collect();
    assert_eq!(outcomes, ["failed", "skipped", "executed", "executed", "replayed", "executed", "mismatch"]);
}

#[tokio::test]
async fn a_deduplication_id_identifies_a_message_of_its_queue_and_group() {
    let engine = testing::engine();
    let service = engine.sqs(Key::deduplication_id(), |_: Value| async { Ok::<_, Failure>(()) });
    let message = |group: &str| {
        testing::record(&group).attribute("MessageGroupId", group).attribute("MessageDeduplicationId", "d")
    };
    let other = "arn:aws:sqs:us-east-1:123456789012:others.fifo";
    // With `DeduplicationScope: messageGroup`, SQS delivers all of these.
    for batch in [sqs::fifo([message("a"), message("b")]), sqs::fifo([message("a"), message("b")]).source(other)] {
        for expected in [OutcomeKind::Executed, OutcomeKind::Replayed] {
            assert_eq!(testing::deliver(&service, &batch).await.outcomes(), [Ok(expected), Ok(expected)]);
        }
    }
    let hash = engine.key_hash("sqs", &(other, "a", "d")).unwrap();
    assert!(engine.store().read(&[hash], ResultData::Include).await.remove(0).unwrap().is_some());

    let standard =
        testing::deliver(&service, &sqs::batch([testing::record("a").attribute("MessageGroupId", "a")])).await;
    assert_eq!(standard.outcomes(), [Err(ErrorKind::KeyMissing)]);
    assert!(standard.records[0].error.as_ref().unwrap().contains("the queue is not FIFO"));
}

#[test]
#[should_panic(expected = "this source sets no attribute `sequenceNumbre`, but [\"partitionKey\", \"sequenceNumber\"]")]
fn an_attribute_that_a_source_does_not_set_is_a_mistake_of_the_test() {
    let _ = kinesis::batch([testing::bytes("7").attribute("sequenceNumbre", 7)]);
}

#[test]
#[should_panic(expected = "the payload cannot be JSON: key must be a string")]
fn a_payload_that_cannot_be_json_is_a_mistake_of_the_test() {
    let _ = testing::record(&std::collections::HashMap::from([((1, 2), 3)]));
}
