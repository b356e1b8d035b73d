//! Bytes that are not text: headers, and raw records.

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use lambda_once::{
    Failure, Key, OutcomeKind, RecordContext,
    batch::{envelope::Sns, kafka::KafkaEvent, mq::MqEvent, sns::SnsEvent},
    testing::{self, TIME_LEFT, sns, sqs},
};
use lambda_runtime::LambdaEvent;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Returns the event as [`serde_json`] reads it from Lambda's bytes.
fn event<E: DeserializeOwned>(event: &Value) -> impl Fn(u32) -> E + use<E> {
    let text = event.to_string();
    move |_| serde_json::from_str(&text).unwrap()
}

/// Returns the header `digest` in bytes, and checks that it is not available as text.
async fn digest(_: Value, context: RecordContext) -> Result<(Option<Vec<u8>>, bool), Failure> {
    let bytes = context.record().header_bytes("digest").map(<[u8]>::to_vec);
    assert_eq!(context.record().binary_headers().count(), 1);
    assert_eq!(context.record().header_bytes("tenant"), Some(&b"a"[..]));
    assert_eq!((context.record().header("tenant"), context.record().header_bytes("none")), (Some("a"), None));
    if bytes.as_deref() == Some(&[1, 255, 0]) && context.record().header("digest").is_none() {
        Ok((bytes, true))
    } else {
        Err(Failure::permanent("another digest"))
    }
}

const NOTIFICATION: &str = "arn:aws:sns:us-east-1:123456789012:orders";

fn notification() -> Value {
    json!({
        "Type": "Notification", "MessageId": "n-1", "TopicArn": NOTIFICATION, "Message": "1",
        "Timestamp": "2026-11-21T10:00:00.111Z",
        "MessageAttributes": {
            "digest": { "Type": "Binary", "Value": "Af8A" }, "tenant": { "Type": "String", "Value": "a" },
        },
    })
}

fn message(body: &str, attributes: Value) -> Value {
    json!({ "Records": [{
        "messageId": "m-1", "body": body, "attributes": {}, "messageAttributes": attributes,
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:orders", "awsRegion": "eu-west-3",
    }]})
}

fn attributes() -> Value {
    json!({
        "digest": { "dataType": "Binary", "binaryValue": "Af8A", "stringListValues": [], "binaryListValues": [] },
        "tenant": { "dataType": "String", "stringValue": "a", "stringListValues": [], "binaryListValues": [] },
    })
}

#[tokio::test]
async fn a_binary_attribute_of_sqs_reaches_the_handler() {
    let service = testing::engine().sqs(Key::message_id(), digest);
    testing::deliver_twice(&service, &event::<SqsEvent>(&message("1", attributes()))).await.assert_once();
}

#[tokio::test]
async fn a_binary_attribute_of_sns_reaches_the_handler_by_whatever_way() {
    let service = testing::engine().sns(Key::message_id(), digest);
    let direct = json!({ "Records": [{ "EventSource": "aws:sns", "Sns": notification() }] });
    testing::deliver_twice(&service, &event::<SnsEvent>(&direct)).await.assert_once();
    let in_sqs = message(&notification().to_string(), json!({}));
    for way in [in_sqs, message("1", attributes())] {
        let service = testing::engine().sqs(Key::message_id(), digest).envelope(Sns);
        testing::deliver_twice(&service, &event::<SqsEvent>(&way)).await.assert_once();
    }
}

#[tokio::test]
async fn a_header_of_kafka_that_is_not_utf_8_reaches_the_handler() {
    // Signed bytes, as in Java: 255 is -1.
    let record = json!({
        "topic": "orders", "partition": 0, "offset": 15, "timestamp": 1_545_084_650_987_u64, "timestampType": "CREATE_TIME",
        "value": "MQ==", "headers": [{ "digest": [1, -1, 0] }, { "tenant": [97] }],
    });
    let batch =
        json!({ "eventSource": "aws:kafka", "bootstrapServers": "b:9092", "records": { "orders-0": [record] } });
    let service = testing::engine().kafka(Key::message_id(), digest);
    testing::deliver_twice(&service, &event::<KafkaEvent>(&batch)).await.assert_once();
}

#[tokio::test]
async fn a_header_of_rabbitmq_that_is_not_utf_8_reaches_the_handler() {
    let message = json!({
        "basicProperties": { "messageId": "m-1", "headers": { "digest": { "bytes": [1, -1, 0] }, "tenant": { "bytes": [97] } } },
        "redelivered": false, "data": "MQ==",
    });
    let batch = json!({
        "eventSource": "aws:rmq", "eventSourceArn": "arn:aws:mq:us-east-1:1:broker:b", "rmqMessagesByQueue": { "orders::/": [message] },
    });
    let service = testing::engine().mq(Key::message_id(), digest);
    testing::deliver_twice(&service, &event::<MqEvent>(&batch)).await.assert_once();
}

#[tokio::test]
async fn a_key_can_be_made_of_bytes() {
    let key = Key::from_fn(|delivery| Ok(delivery.header_bytes("digest").map(|bytes| format!("{bytes:?}"))));
    let service = testing::engine().sqs(key, digest);
    let keys = async |body: &str| {
        let event: SqsEvent = serde_json::from_value(message(body, attributes())).unwrap();
        service.process(LambdaEvent::new(event, testing::context(TIME_LEFT))).await.outcomes()
    };
    assert_eq!(keys("1").await, [Ok(OutcomeKind::Executed)]);
    assert_eq!(keys("2").await, [Ok(OutcomeKind::Mismatch)]);
}

#[tokio::test]
async fn with_raw_a_handler_gets_the_original_record_of_the_event() {
    let look = |_: Value, context: RecordContext| async move {
        let raw =
            context.record().raw::<SqsMessage>().map(|message| (message.aws_region.clone(), message.body.clone()));
        assert!(context.record().raw::<Value>().is_none(), "it is of another type");
        raw.map(|(region, body)| format!("{region:?} {body:?}")).ok_or_else(|| Failure::permanent("not kept"))
    };
    let once = testing::engine();
    let batch = event::<SqsEvent>(&message("1", json!({})));
    let service = once.sqs(Key::message_id(), look);
    let failed = testing::deliver(&service, &batch).await;
    assert_eq!(failed.records[0].error.as_deref(), Some("not kept"));
    drop(service);
    let service = testing::engine().sqs(Key::message_id(), look).with_raw();
    testing::deliver_twice(&service, &batch).await.assert_once();
    // For a message in an envelope, it is the envelope.
    let around = |_: Value, context: RecordContext| async move {
        let body = context.record().raw::<SqsMessage>().and_then(|message| message.body.clone()).unwrap_or_default();
        if body.contains("Notification") { Ok(()) } else { Err(Failure::permanent("unwrapped")) }
    };
    let service = testing::engine().sqs(Key::message_id(), around).with_raw().envelope(Sns);
    let batch = sqs::batch([sns::in_sqs(&testing::record(&1))]);
    testing::deliver_twice(&service, &batch).await.assert_once();
}
