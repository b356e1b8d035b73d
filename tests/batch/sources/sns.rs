//! SNS: success or an error as the response, and the context of a message.

use lambda_once::{
    ErrorKind, Failure, Key, PermanentFailures, RecordContext,
    batch::{
        BatchService, Handler, RecordInfo,
        sns::{Sns, SnsEvent},
    },
    record::Status,
    store::fault::Call,
};
use serde_json::{Value, json};

use crate::world::{Job, World, order, unreadable, work};

const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:orders";

/// Returns a message as Lambda delivers it.
pub(crate) fn event(id: &str, message: &Value) -> Value {
    json!({ "Records": [{
        "EventSource": "aws:sns",
        "EventVersion": "1.0",
        "EventSubscriptionArn": format!("{TOPIC}:21be56ed-a058-49f5-8c98-aedd2564c486"),
        "Sns": {
            "Type": "Notification",
            "MessageId": id,
            "TopicArn": TOPIC,
            "Subject": "New order",
            "Message": message.to_string(),
            "Timestamp": "2026-11-21T10:00:00.111Z",
            "MessageAttributes": {
                "order_id": { "Type": "String", "Value": "o-1" },
                "cents": { "Type": "Number", "Value": "4990" },
                "channels": { "Type": "String.Array", "Value": "[\"web\"]" },
                "digest": { "Type": "Binary", "Value": "AQIDBA==" },
            },
        },
    }]})
}

fn service(world: &World, key: Key) -> BatchService<Sns, impl Handler<Job, (Job,)> + use<>, Job, (Job,)> {
    world.once.sns(key, world.handler())
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_done_is_a_success_and_is_replayed_by_its_id() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    for _ in 0..2 {
        assert_eq!(world.answer(&service, &event("m-1", &order("1"))).await, "null");
    }
    assert_eq!(world.answer(&service, &event("m-2", &order("2"))).await, "null");
    assert_eq!(world.journal.keys(), ["1", "2"]);
    assert_eq!(world.status_in("sns", "m-1").await, Some(Status::Completed));
    assert_eq!(world.store.calls()[..3], [(Call::Claim, 1), (Call::Settle, 1), (Call::Claim, 1)]);
}

// Tests B9.
#[tokio::test(start_paused = true)]
async fn a_failed_message_fails_the_invocation_and_lambdas_retry_reruns_it() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    let event = event("m-1", &work("1", "transient once", 0));
    assert_eq!(world.fail(&service, &event).await.kind(), ErrorKind::Batch);
    for _ in 0..2 {
        assert_eq!(world.answer(&service, &event).await, "null");
    }
    assert_eq!(world.journal.keys(), ["1", "1"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_does_not_keep_another_of_its_event_from_running() {
    let world = World::new();
    let mut both = event("m-1", &work("1", "transient", 0));
    both["Records"].as_array_mut().unwrap().push(event("m-2", &order("2"))["Records"][0].take());
    assert_eq!(world.fail(&service(&world, Key::message_id()), &both).await.kind(), ErrorKind::Batch);
    assert_eq!(world.journal.keys(), ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_another_invocation_left_unknown_is_waited_for() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    let event = event("m-1", &work("1", "hang once", 0));
    world.response_after_cancellation(&service, &event).await;
    assert_eq!(world.journal.keys(), ["1", "1"]);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_fails_every_delivery_unless_it_is_acknowledged() {
    for message in [work("1", "permanent", 0), json!("no job")] {
        let world = World::new();
        let event = event("m-1", &message);
        let service = service(&world, Key::message_id());
        for _ in 0..2 {
            assert_eq!(world.fail(&service, &event).await.kind(), ErrorKind::Batch);
        }
        let acknowledging = service.permanent_failures(PermanentFailures::Acknowledge);
        assert_eq!(world.answer(&acknowledging, &event).await, "null");
        assert!(world.journal.keys().len() <= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_publishers_repeat_is_recognized_by_a_key_from_the_message() {
    for key in [Key::pointer("/order_id"), Key::header("order_id"), Key::attribute("Subject")] {
        let world = World::new();
        let service = service(&world, key);
        for id in ["m-1", "m-2"] {
            assert_eq!(world.answer(&service, &event(id, &order("1"))).await, "null");
        }
        assert_eq!(world.journal.keys(), ["1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_the_source_headers_and_attributes_of_its_message() {
    let world = World::new();
    let journal = world.journal.clone();
    let decode = |_: &RecordInfo, message: &String| Ok(message.len());
    let handler = move |length: usize, context: RecordContext| {
        let headers = ["order_id", "cents", "channels", "digest"]
            .map(|name| context.record().header(name).unwrap_or("-").to_owned());
        let attributes =
            ["Subject", "Timestamp"].map(|name| context.record().attribute(name).unwrap_or("-").to_owned());
        journal.ran(format!("{length} {:?} {headers:?} {attributes:?}", context.record().source()));
        async { Ok::<_, Failure>(()) }
    };
    let service = world.once.batch(Sns, Key::message_id(), decode, handler);
    let mut bare = event("m-2", &json!("ab"));
    bare["Records"][0]["Sns"] =
        json!({ "MessageId": "m-2", "Message": "ab", "Subject": null, "MessageAttributes": null });
    for event in [event("m-1", &json!("abc")), bare] {
        assert_eq!(world.answer(&service, &event).await, "null");
    }
    let expected = [
        format!(r#"5 Some("{TOPIC}") ["o-1", "4990", "[\"web\"]", "-"] ["New order", "2026-11-21T10:00:00.111Z"]"#),
        r#"2 None ["-", "-", "-", "-"] ["-", "-"]"#.to_owned(),
    ];
    assert_eq!(world.journal.keys(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_message_without_an_id_fails_the_invocation_before_any_claim() {
    let world = World::new();
    let mut absent = event("", &order("1"));
    for _ in 0..2 {
        let message = world.refuse(&service(&world, Key::pointer("/order_id")), &absent).await;
        assert!(message.contains("no MessageId"), "{message}");
        absent["Records"][0]["Sns"].as_object_mut().unwrap().remove("MessageId");
    }
}

#[test]
fn an_event_of_something_else_is_not_read() {
    assert!(unreadable::<SnsEvent>(&"{}").contains("missing field `Records`"));
    let sqs = std::fs::read_to_string("events/sqs-batch.json").unwrap();
    assert!(unreadable::<SnsEvent>(&sqs).contains("missing field `Sns`"));
}
