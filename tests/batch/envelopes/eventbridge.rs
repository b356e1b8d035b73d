//! EventBridge in SQS, and in SNS.

use lambda_once::{
    Key, OutcomeKind,
    batch::envelope::{EventBridge, Sns},
    testing::{self, eventbridge, sns, sqs},
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{batch, deliver, events};
use crate::testing::journal::Journal;

#[derive(Clone, Debug, Deserialize)]
struct Shipped {
    order_id: String,
    cents: Box<RawValue>,
}

#[tokio::test]
async fn an_event_is_its_detail_as_it_is_for_a_function_that_is_the_target() {
    let journal = Journal::<Shipped>::new();
    let service = testing::engine().sqs(Key::pointer("/order_id"), journal.handler()).envelope(EventBridge);
    assert_eq!(deliver(&service, events!("eventbridge-in-sqs")).await.outcomes(), [Ok(OutcomeKind::Executed)]);
    let (shipped, context) = journal.runs().remove(0);
    assert_eq!((&*shipped.order_id, shipped.cents.get()), ("o-1", "12345678901234567890"));
    assert_eq!(context.record().message_id(), "2447c735-dac7-4d47-92f9-80d2d9359474");
    assert_eq!(
        (context.record().attribute("detail-type"), context.record().attribute("source")),
        (Some("OrderShipped"), Some("shop"))
    );

    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(EventBridge);
    let delivered = deliver(&service, batch(&[include_str!("events/eventbridge-ec2.json")])).await;
    assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Executed)]);
    let (detail, context) = journal.runs().remove(0);
    assert_eq!(detail, json!({ "instance-id": "i-abcd1111", "state": "pending" }));
    assert_eq!(context.record().attribute("resources"), Some("arn:aws:ec2:us-east-1:123456789012:instance/i-abcd1111"));
}

#[tokio::test]
async fn an_event_that_is_sent_again_is_replayed() {
    let detail = json!({ "order_id": "7" });
    let sent = || testing::record(&detail).attribute("source", "shop").attribute("detail-type", "OrderShipped");
    let event = || eventbridge::message(&sent());
    let again = || eventbridge::message(&sent().attribute("time", "2027-01-01T00:00:00Z"));
    let once = testing::engine();
    let journal = Journal::<Value>::new();
    let service = once.sqs(Key::pointer("/order_id"), journal.handler()).envelope(EventBridge);
    for message in [event(), again()] {
        testing::deliver_twice(&service, &sqs::batch([message])).await.assert_once();
    }
    assert_eq!(journal.runs().len(), 1);
    drop(service);
    // A topic in between changes only the envelope.
    let service = once.sqs(Key::pointer("/order_id"), journal.handler()).envelope((Sns, EventBridge));
    for message in [sns::in_sqs(&event()), sns::in_sqs_raw(&event()), sns::in_sqs(&again())] {
        testing::deliver_twice(&service, &sqs::batch([message])).await.assert_once();
    }
    assert_eq!(journal.payloads(), [detail]);
}

#[tokio::test]
async fn a_topic_brings_an_event_to_a_function() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sns(Key::pointer("/order_id"), journal.handler()).envelope(EventBridge);
    let event = || sns::event(eventbridge::message(&testing::record(&json!({ "order_id": "7" }))));
    testing::deliver_twice(&service, &event()).await.assert_once();
    testing::deliver_twice(&service, &event()).await.assert_once();
    assert_eq!(journal.runs().len(), 1);
}

/// EventBridge Scheduler sends its detail as a string.
#[tokio::test]
async fn a_detail_that_is_a_text_is_the_json_in_it() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::pointer("/order_id"), journal.handler()).envelope(EventBridge);
    let event = eventbridge::message(&testing::record(r#"{"order_id": "7"}"#));
    testing::deliver_twice(&service, &sqs::batch([event])).await.assert_once();
    assert_eq!(journal.payloads(), [json!({ "order_id": "7" })]);
}
