//! FIFO queues, which are ordered by message group, regardless of the messages' contents.

use std::sync::{Arc, Mutex};

use lambda_once::{
    BoxFuture, ErrorKind, Failure, Key, OutcomeKind, Verdict,
    batch::envelope::{S3, S3Record, Sns},
    testing::{self, s3, sns, sqs},
};
use serde_json::{Value, json};

use super::{answer, deliver, events, one};
use crate::testing::journal::Journal;

const DONE: Result<OutcomeKind, ErrorKind> = Ok(OutcomeKind::Executed);
const SKIPPED: Result<OutcomeKind, ErrorKind> = Ok(OutcomeKind::Skipped);

#[tokio::test]
async fn a_fifo_topic_brings_its_messages_in_order() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::deduplication_id(), journal.handler()).envelope(Sns);
    let event = events!("sns-fifo-in-sqs");
    for outcome in [OutcomeKind::Executed, OutcomeKind::Replayed] {
        assert_eq!(deliver(&service, event.clone()).await.outcomes(), [Ok(outcome), Ok(outcome)]);
    }
    assert_eq!(journal.payloads(), [json!({ "order_id": "o-1" }), json!({ "order_id": "o-2" })]);
    assert_eq!(journal.runs()[0].1.record().attribute("MessageGroupId"), Some("customer 1"));
}

#[tokio::test]
async fn a_malformed_envelope_blocks_the_messages_behind_it_in_its_group() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(S3);
    let put = |key: &str| s3::notification([s3::created("photos", key)]);
    let batch = sqs::fifo([
        put("a").id("m-1").attribute("MessageGroupId", "1"),
        testing::bytes("{}").id("m-2").attribute("MessageGroupId", "1"),
        put("b").id("m-3").attribute("MessageGroupId", "1"),
        put("c").id("m-4").attribute("MessageGroupId", "2"),
    ]);
    let delivered = testing::deliver(&service, &batch).await;
    assert_eq!(delivered.outcomes(), [DONE, Err(ErrorKind::Payload), SKIPPED, DONE]);
    assert_eq!(answer(&delivered), ["m-2", "m-3"]);
}

// Tests B4.
#[tokio::test]
async fn a_failed_record_blocks_those_behind_it_in_its_message_and_its_group() {
    let runs = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&runs);
    let handler = move |record: S3Record| -> BoxFuture<'static, Result<(), Failure>> {
        let noted = Arc::clone(&noted);
        Box::pin(async move {
            tokio::task::yield_now().await;
            noted.lock().unwrap().push(record.key.clone());
            if record.key == "bad" { Err(Failure::transient("no")) } else { Ok(()) }
        })
    };
    let service = testing::engine().sqs(Key::message_id(), handler).envelope((Sns, S3)).concurrency(10);
    let created = |key: &str| s3::created("photos", key);
    let batch = sqs::fifo([
        s3::notification([created("1"), created("2"), created("bad"), created("3")])
            .id("m-1")
            .attribute("MessageGroupId", "1"),
        sns::in_sqs(&s3::notification([created("4")])).id("m-2").attribute("MessageGroupId", "1"),
        s3::notification([created("5")]).id("m-3").attribute("MessageGroupId", "2"),
    ]);
    let delivered = testing::deliver(&service, &batch).await;
    let failed = Ok(OutcomeKind::Failed(Verdict::Transient));
    assert_eq!(delivered.outcomes(), [DONE, DONE, failed, SKIPPED, SKIPPED, DONE]);
    assert_eq!(answer(&delivered), ["m-1", "m-2"]);
    let group: Vec<_> = runs.lock().unwrap().iter().filter(|key| *key != "5").cloned().collect();
    assert_eq!(group, ["1", "2", "bad"]);
}

#[tokio::test]
async fn an_ignored_message_blocks_nothing() {
    let journal = Journal::<S3Record>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope((Sns, S3));
    let batch = sqs::fifo([
        s3::test_event("photos"),
        s3::notification([s3::created("photos", "a")]),
        sns::in_sqs(&s3::test_event("photos")),
    ]);
    testing::deliver_twice(&service, &batch).await.assert_once();
    assert_eq!(journal.runs().len(), 1);
}

/// A queue of another account contains the same message.
#[tokio::test]
async fn a_fifo_topic_with_raw_delivery_has_the_same_keys() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::pointer("/order_id"), journal.handler()).envelope(Sns);
    let order = json!({ "order_id": "o-1" });
    let wrapped = deliver(&service, one(events!("sns-fifo-in-sqs").records.remove(0))).await;
    let raw = testing::deliver(&service, &sqs::fifo([sns::in_sqs_raw(&testing::record(&order))])).await;
    assert_eq!((wrapped.outcomes(), raw.outcomes()), (vec![DONE], vec![Ok(OutcomeKind::Replayed)]));
}
