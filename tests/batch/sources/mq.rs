//! Amazon MQ: success or an error as the response, and the context of a message.

use lambda_once::{
    ErrorKind, Failure, Key, MissingKey, PermanentFailures, RecordContext,
    batch::{
        BatchService, Handler,
        mq::{Mq, MqEvent},
    },
    record::Status,
    store::fault::Call,
};
use serde_json::{Value, json};

use crate::world::{Job, World, base64, order, unreadable, work};

const BROKER: &str = "arn:aws:mq:us-east-1:123456789012:broker:shop:b-9bcfa592-423a-4942-879d-eb284b418fc8";

/// Returns an ActiveMQ message as Lambda delivers it.
pub(crate) fn active(id: &str, body: &Value) -> Value {
    json!({
        "messageID": id,
        "messageType": "jms/text-message",
        "timestamp": 1_795_255_200_000_i64,
        "deliveryMode": 2,
        "correlationID": "c-1",
        "replyTo": null,
        "destination": { "physicalName": "orders" },
        "redelivered": true,
        "type": null,
        "expiration": 0,
        "priority": 4,
        "data": base64(body.to_string()),
        "brokerInTime": 1_795_255_200_001_i64,
        "brokerOutTime": 1_795_255_200_003_i64,
        "properties": { "order-id": "o-1" },
    })
}

pub(crate) fn active_event(messages: impl IntoIterator<Item = Value>) -> Value {
    json!({
        "eventSource": "aws:mq",
        "eventSourceArn": BROKER,
        "messages": messages.into_iter().collect::<Vec<_>>(),
    })
}

/// Returns a RabbitMQ message as Lambda delivers it.
pub(crate) fn rabbit(id: Option<&str>, body: &Value) -> Value {
    json!({
        "basicProperties": {
            "contentType": "application/json",
            "contentEncoding": null,
            "headers": { "order-id": { "bytes": [111, 45, 49] } },
            "deliveryMode": 2,
            "priority": null,
            "correlationId": null,
            "replyTo": null,
            "expiration": null,
            "messageId": id,
            "timestamp": "Nov 21, 2026, 10:00:00 AM",
            "type": null,
            "userId": null,
            "appId": null,
            "clusterId": null,
            "bodySize": 80,
        },
        "redelivered": false,
        "data": base64(body.to_string()),
    })
}

pub(crate) fn rabbit_event(queues: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let queues: serde_json::Map<_, _> =
        queues.into_iter().map(|(name, message)| (name.into(), json!([message]))).collect();
    json!({ "eventSource": "aws:rmq", "eventSourceArn": BROKER, "rmqMessagesByQueue": queues })
}

fn service(world: &World, key: Key) -> BatchService<Mq, impl Handler<Job, (Job,)> + use<>, Job, (Job,)> {
    world.once.mq(key, world.handler())
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_done_is_a_success() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    let event = active_event([active("ID:1", &order("1")), active("ID:2", &order("2"))]);
    assert_eq!(world.answer(&service, &event).await, "null");
    assert_eq!(world.store.calls(), [(Call::Claim, 2), (Call::Settle, 2)]);
    assert_eq!(world.answer(&service, &event).await, "null");
    assert_eq!(world.store.calls()[2..], [(Call::Claim, 2)]);
}

// Tests B9.
#[tokio::test(start_paused = true)]
async fn a_failed_message_fails_the_invocation_and_the_next_replays_the_rest() {
    for act in ["transient once", "hang once"] {
        let world = World::new();
        let service = service(&world, Key::message_id());
        let messages = [active("ID:1", &order("1")), active("ID:2", &work("2", act, 0)), active("ID:3", &order("3"))];
        let event = active_event(messages);
        let error = world.fail(&service, &event).await;
        assert_eq!(error.kind(), ErrorKind::Batch);
        assert!(error.is_retryable());
        assert_eq!(
            error.to_string(),
            "answer (batch): 1 of the event's records failed, and its source supports no partial response"
        );
        assert_eq!(world.journal.keys(), ["1", "2", "3"], "{act}");
        assert_eq!(world.answer(&service, &event).await, "null");
        assert_eq!(world.journal.keys(), ["1", "2", "3", "2"], "{act}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_another_invocation_left_unknown_is_waited_for() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    let event = active_event([active("ID:1", &work("1", "hang once", 0)), active("ID:2", &order("2"))]);
    world.response_after_cancellation(&service, &event).await;
    assert_eq!(world.journal.keys(), ["1", "2", "1"]);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_fails_every_delivery_unless_it_is_acknowledged() {
    let world = World::new();
    let event = active_event([active("ID:1", &work("1", "permanent", 0)), active("ID:2", &json!("no job"))]);
    for _ in 0..2 {
        assert_eq!(world.fail(&service(&world, Key::message_id()), &event).await.kind(), ErrorKind::Batch);
    }
    let service = service(&world, Key::message_id()).permanent_failures(PermanentFailures::Acknowledge);
    assert_eq!(world.answer(&service, &event).await, "null");
    assert_eq!(world.journal.keys(), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_id_identifies_one_message_of_its_queue() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    // A composite destination delivers such a copy.
    let mut copy = active("ID:1", &order("copy"));
    copy["destination"]["physicalName"] = json!("archive");
    let event = active_event([active("ID:1", &order("active")), copy]);
    for _ in 0..2 {
        assert_eq!(world.answer(&service, &event).await, "null");
    }
    for queue in ["orders", "archive"] {
        assert_eq!(world.status_in("mq", &(format!("{BROKER}/{queue}"), "ID:1")).await, Some(Status::Completed));
    }
    let message = |name| rabbit(Some("m-1"), &order(name));
    let event = rabbit_event([("orders::/", message("order")), ("refunds::/", message("refund"))]);
    for _ in 0..2 {
        assert_eq!(world.answer(&service, &event).await, "null");
    }
    let names = world.journal.keys();
    assert_eq!(names, ["active", "copy", "order", "refund"], "publishers of two queues may choose one id");
    assert_eq!(world.status_in("mq", &(format!("{BROKER}/orders::/"), "m-1")).await, Some(Status::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_message_without_an_id_has_no_key_and_another_key_can_stand_for_it() {
    let nameless = || rabbit_event([("orders::/", rabbit(None, &order("1")))]);
    let world = World::new();
    let message_id = service(&world, Key::message_id());
    assert_eq!(world.fail(&message_id, &nameless()).await.kind(), ErrorKind::Batch);
    assert!(world.store.calls().is_empty() && world.journal.keys().is_empty());
    let acknowledging = message_id.permanent_failures(PermanentFailures::Acknowledge);
    assert_eq!(world.answer(&acknowledging, &nameless()).await, "null");

    let unprotected = World::with(|builder| builder.missing_key(MissingKey::RunUnprotected));
    assert_eq!(unprotected.answer(&service(&unprotected, Key::message_id()), &nameless()).await, "null");
    assert_eq!(unprotected.journal.keys(), ["1"]);

    for key in [Key::pointer("/order_id"), Key::header("order-id")] {
        let world = World::new();
        let service = service(&world, key);
        for _ in 0..2 {
            assert_eq!(world.answer(&service, &nameless()).await, "null");
        }
        assert_eq!(world.journal.keys(), ["1"]);
    }
}

/// Returns the contexts that a handler gets for the messages of an event.
async fn told(event: &Value) -> Vec<String> {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.mq(Key::pointer("/order_id"), move |job: Job, context: RecordContext| {
        let attributes = ["queue", "redelivered", "correlationId", "timestamp"];
        let attributes = attributes.map(|name| context.record().attribute(name).unwrap_or("-").to_owned());
        let headers = ["text", "bytes", "umlaut", "number", "truth", "list", "binary", "null"];
        let headers: Vec<_> = headers.iter().filter_map(|name| context.record().header(name)).collect();
        journal.ran(format!("{} {} {attributes:?} {headers:?}", job.order_id, context.record().message_id()));
        async { Ok::<_, Failure>(()) }
    });
    assert_eq!(world.answer(&service, event).await, "null");
    world.journal.keys()
}

#[tokio::test(start_paused = true)]
async fn properties_and_headers_are_headers_if_texts_numbers_or_booleans() {
    let values = json!({
        "text": "a", "bytes": { "bytes": [98, 99] }, "umlaut": { "bytes": [-61, -92] }, "truth": true,
        "number": 9_007_199_254_740_993_i64, "list": ["x"], "binary": { "bytes": [-1] }, "null": null,
    });
    let mut from_rabbit = rabbit(Some("m-1"), &order("r"));
    from_rabbit["basicProperties"]["headers"] = values.clone();
    let expected = r#"["a", "bc", "ä", "9007199254740993", "true"]"#;
    assert_eq!(
        told(&rabbit_event([("orders::/", from_rabbit)])).await,
        [format!(r#"r m-1 ["orders::/", "false", "-", "Nov 21, 2026, 10:00:00 AM"] {expected}"#)]
    );
    let mut from_active = active("ID:1", &order("a"));
    from_active["properties"] = values;
    assert_eq!(
        told(&active_event([from_active])).await,
        [format!(r#"a ID:1 ["orders", "true", "c-1", "1795255200000"] {expected}"#)]
    );
}

#[tokio::test(start_paused = true)]
async fn optional_members_of_a_message_may_be_null_or_absent() {
    let mut null = active("ID:1", &order("a"));
    for name in ["properties", "correlationID", "timestamp", "destination"] {
        null[name] = Value::Null;
    }
    let mut absent = active("ID:2", &order("b"));
    for name in ["properties", "correlationID", "timestamp", "destination", "redelivered"] {
        absent.as_object_mut().unwrap().remove(name);
    }
    absent["correlationId"] = json!("c-2");
    let expected = [r#"a ID:1 ["-", "true", "-", "-"] []"#, r#"b ID:2 ["-", "false", "c-2", "-"] []"#];
    assert_eq!(told(&active_event([null, absent])).await, expected);
}

#[tokio::test(start_paused = true)]
async fn an_event_of_something_else_is_refused_before_anything_is_claimed() {
    let world = World::new();
    let message = world.refuse(&service(&world, Key::message_id()), &json!({ "Records": [] })).await;
    assert!(message.contains("not from Amazon MQ"), "{message}");
    let mut event = active_event([active("ID:1", &order("1"))]);
    event["messages"][0]["data"] = json!("c2VjcmV0?");
    let error = unreadable::<MqEvent>(&event);
    assert!(error.starts_with("messages[0].data: not base64"), "{error}");
}
