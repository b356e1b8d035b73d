//! SNS and EventBridge.

use lambda_once::{
    Key,
    testing::{self, eventbridge, sns},
};
use serde_json::{Value, json};

use crate::testing::journal::Journal;

#[tokio::test]
async fn an_sns_message_has_its_given_id_attributes_and_headers() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sns(Key::message_id(), journal.handler());
    let message = testing::record(&json!({ "order_id": "7" }))
        .id("m-7")
        .attribute("Subject", "shipped")
        .attribute("Timestamp", "2027-01-31T12:00:00.000Z")
        .header("tenant", "a");
    let event = sns::event(message).source("arn:aws:sns:us-east-1:123456789012:other");
    testing::deliver_twice(&service, &event).await.assert_once();
    let (order, context) = journal.runs().pop().unwrap();
    assert_eq!(order["order_id"], "7");
    assert_eq!((context.record().message_id(), context.record().header("tenant")), ("m-7", Some("a")));
    assert_eq!(context.record().source(), Some("arn:aws:sns:us-east-1:123456789012:other"));
    assert_eq!(context.record().attribute("Subject"), Some("shipped"));
    assert_eq!(context.record().attribute("Timestamp"), Some("2027-01-31T12:00:00.000Z"));
}

#[tokio::test]
async fn an_eventbridge_event_has_its_given_attributes_and_exact_detail() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().eventbridge(Key::pointer("/order_id"), journal.handler());
    let detail = json!({ "order_id": u64::MAX, "share": 1.0 });
    let event = eventbridge::event(
        testing::record(&detail)
            .id("e-7")
            .attribute("source", "shop")
            .attribute("detail-type", "Shipped")
            .attribute("time", "2027-01-31T12:00:00Z"),
    );
    testing::deliver_twice(&service, &event).await.assert_once();
    let (order, context) = journal.runs().pop().unwrap();
    assert_eq!(order, detail);
    assert_eq!((context.record().message_id(), context.record().source()), ("e-7", Some("shop")));
    assert_eq!(context.record().attribute("detail-type"), Some("Shipped"));
    assert_eq!(context.record().attribute("time"), Some("2027-01-31T12:00:00Z"));
}

#[tokio::test]
async fn messages_and_events_that_are_equal_have_ids_of_their_own() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sns(Key::message_id(), journal.handler());
    for message in [testing::record("a"), testing::bytes(r#""a""#)] {
        testing::deliver_twice(&service, &sns::event(message)).await.assert_once();
    }
    let service = testing::engine().eventbridge(Key::message_id(), journal.handler());
    for event in [eventbridge::event(testing::record("a")), eventbridge::event(testing::record("a"))] {
        testing::deliver_twice(&service, &event).await.assert_once();
    }
    assert_eq!(journal.payloads(), ["a"; 4]);
}
