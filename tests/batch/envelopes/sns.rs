//! SNS in SQS, with and without raw message delivery.

use lambda_once::{
    Key, OutcomeKind,
    batch::{RecordInfo, envelope::Sns, sqs::Sqs},
    testing::{self, sns, sqs},
};
use serde_json::{Value, json};

use super::{batch, deliver, events};
use crate::testing::journal::Journal;

#[tokio::test]
async fn a_notification_is_its_message() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::pointer("/order_id"), journal.handler()).envelope(Sns);
    let event = events!("sns-in-sqs");
    let delivered = deliver(&service, event.clone()).await;
    assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Executed)]);
    assert_eq!(Some(delivered.records[0].record.id()), event.records[0].message_id.as_deref());
    let (order, context) = journal.runs().remove(0);
    assert_eq!(order, json!({ "order_id": "o-1", "note": "Größe \"M\"\n" }));
    assert_eq!(context.record().message_id(), "394d3adc-3d5b-4b63-839c-20af64dc69b3");
    assert_eq!((context.record().header("tenant"), context.record().header("cents")), (Some("a"), Some("4990")));
    assert_eq!(context.record().attribute("TopicArn"), Some("arn:aws:sns:us-east-1:123456789012:orders"));
    assert_eq!(context.record().attribute("Subject"), Some("New order"));
    assert_eq!(context.record().attribute("ApproximateReceiveCount"), Some("1"));
    assert_eq!(context.record().source(), Some("arn:aws:sqs:us-east-1:123456789012:wrapped"));
}

#[tokio::test]
async fn raw_delivery_has_the_same_keys_and_payloads() {
    for key in
        [Key::pointer("/order_id"), Key::header("tenant"), Key::composite([Key::header("cents"), Key::pointer("")])]
    {
        let journal = Journal::<Value>::new();
        let service = testing::engine().sqs(key, journal.handler()).envelope(Sns);
        let wrapped = deliver(&service, events!("sns-in-sqs")).await;
        let raw = deliver(&service, events!("sns-raw-in-sqs")).await;
        assert_eq!(wrapped.outcomes(), [Ok(OutcomeKind::Executed)]);
        assert_eq!(raw.outcomes(), [Ok(OutcomeKind::Replayed)]);
        assert_eq!(wrapped.records[0].key, raw.records[0].key);
    }
}

/// The envelope differs in ids, times and signatures.
#[tokio::test]
async fn a_message_that_is_published_again_is_replayed() {
    let order = json!({ "order_id": "7" });
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::pointer("/order_id"), journal.handler()).envelope(Sns);
    for message in [
        sns::in_sqs(&testing::record(&order)),
        sns::in_sqs(&testing::record(&order).attribute("Timestamp", "2027-01-01T00:00:00.000Z")),
    ] {
        testing::deliver_twice(&service, &sqs::batch([message])).await.assert_once();
    }
    assert_eq!(journal.payloads(), [order]);
    let other = json!({ "order_id": "7", "note": "another payload" });
    let delivered = testing::deliver(&service, &sqs::batch([sns::in_sqs(&testing::record(&other))])).await;
    assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Mismatch)]);
}

#[tokio::test]
async fn every_copy_of_a_notification_has_its_message_id() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(Sns);
    let notification = testing::record(&json!({ "order_id": "7" }));
    let batch = sqs::batch([sns::in_sqs(&notification), sns::in_sqs(&notification), sns::in_sqs_raw(&notification)]);
    testing::deliver_twice(&service, &batch).await.assert_once();
    assert_eq!(journal.runs().len(), 2, "a raw message has its own id only");
}

#[tokio::test]
async fn messages_that_are_not_json_have_a_decoder_as_elsewhere() {
    let journal = Journal::<String>::new();
    let decode = |_: &RecordInfo, body: &String| Ok(body.to_uppercase());
    let service = testing::engine().batch(Sqs, Key::message_id(), decode, journal.handler()).envelope(Sns);
    let batch = sqs::batch([sns::in_sqs(&testing::bytes("a,b")), sns::in_sqs_raw(&testing::bytes("c"))]);
    testing::deliver_twice(&service, &batch).await.assert_once();
    assert_eq!(journal.payloads(), ["A,B", "C"]);
}

/// JSON of the user that differs from a notification in a single way.
#[tokio::test]
async fn a_body_not_from_sns_is_the_message_itself() {
    let notification = json!({
        "Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:us-east-1:123456789012:t",
        "Message": "{}", "Timestamp": "2026-11-21T10:00:00.111Z",
    });
    let with = |name: &str, value: Value| {
        let mut other = notification.clone();
        other[name] = value;
        other
    };
    let without = |name: &str| {
        let mut other = notification.clone();
        other.as_object_mut().unwrap().remove(name);
        other
    };
    let own = [
        with("Type", json!("Order")),
        with("Type", json!(7)),
        with("TopicArn", json!("arn:aws:sqs:us-east-1:123456789012:t")),
        with("TopicArn", json!("orders")),
        with("MessageId", json!(7)),
        with("MessageId", json!("")),
        with("Timestamp", json!(1_795_397_332)),
        without("Type"),
        without("TopicArn"),
        without("MessageId"),
        without("Timestamp"),
        json!({ "message": notification }),
        json!([notification]),
        json!("Notification"),
        json!(["Notification", "m", "arn:aws:sns:us-east-1:123456789012:t", "2026-11-21T10:00:00.111Z", "s", "{}", {}]),
    ];
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(Sns);
    let texts: Vec<String> = own.iter().map(Value::to_string).collect();
    let delivered = deliver(&service, batch(&texts.iter().map(|text| &**text).collect::<Vec<_>>())).await;
    assert!(delivered.outcomes().iter().all(|outcome| *outcome == Ok(OutcomeKind::Executed)));
    assert_eq!(journal.payloads(), own);
    let delivered = deliver(&service, batch(&[&notification.to_string()])).await;
    assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Executed)]);
    assert_eq!(journal.payloads().last(), Some(&json!({})), "the pattern itself is unwrapped");
}
