//! Keys from the outside of a message.

use lambda_once::{Failure, Key, RecordContext, batch::Payload};
use serde_json::{Value, json};

use crate::world::{World, event, fifo, invoke, message, order, seconds};

/// A message with an attribute of its sender's.
fn labelled(id: &str, data_type: &str, field: &str, value: &str) -> Value {
    let mut message = message(id, &order(id));
    message["messageAttributes"] = json!({
        "order-id": { field: value, "dataType": data_type, "stringListValues": [], "binaryListValues": [] }
    });
    message
}

/// What is reported of these messages under the key, and how many handlers ran.
async fn deliver(key: Key, messages: impl IntoIterator<Item = Value>) -> (Vec<String>, usize) {
    let world = World::new();
    let journal = std::sync::Arc::new(std::sync::Mutex::new(0));
    let runs = std::sync::Arc::clone(&journal);
    let handler = move |_: Value| {
        *runs.lock().unwrap() += 1;
        async { Ok::<_, Failure>(()) }
    };
    let service = world.once.sqs(key, handler).payload(Payload::Ignored).checked().unwrap();
    let reported = invoke(&service, event(messages), world.left(seconds(60))).await.unwrap();
    let runs = *journal.lock().unwrap();
    (reported, runs)
}

#[tokio::test(start_paused = true)]
async fn messages_with_the_same_attribute_are_one_operation() {
    let messages = [
        labelled("m0", "String", "stringValue", "A"),
        labelled("m1", "String", "stringValue", "A"),
        labelled("m2", "Number", "stringValue", "7"),
        labelled("m3", "Number.int", "stringValue", "7"),
    ];
    assert_eq!(deliver(Key::message_attribute("order-id"), messages).await, (vec![], 2));
}

#[tokio::test(start_paused = true)]
async fn a_message_without_the_attribute_or_without_its_text_has_no_key() {
    let messages = [
        message("m0", &order("A")),
        labelled("m1", "String", "stringValue", ""),
        labelled("m2", "Binary", "binaryValue", "AQID"),
    ];
    let (reported, runs) = deliver(Key::message_attribute("order-id"), messages).await;
    assert_eq!((reported, runs), (vec!["m0".to_owned(), "m1".to_owned(), "m2".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn messages_with_the_same_deduplication_id_are_one_operation() {
    let mut messages = [message("m0", &order("A")), message("m1", &order("B")), message("m2", &order("C"))];
    for (message, id) in messages.iter_mut().zip(["d", "d", "e"]) {
        message["attributes"]["MessageDeduplicationId"] = json!(id);
    }
    assert_eq!(deliver(Key::deduplication_id(), messages).await, (vec![], 2));
    assert_eq!(deliver(Key::deduplication_id(), [message("m0", &order("A"))]).await, (vec!["m0".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_the_attributes() {
    let world = World::new();
    let service = world.once.sqs(Key::message_id(), |_: Value, context: RecordContext| async move {
        assert_eq!(context.header("order-id"), Some("A"));
        assert_eq!(context.header("other"), None);
        Ok::<_, Failure>(context.attribute("SentTimestamp").is_some())
    });
    let labelled = labelled("m0", "String", "stringValue", "A");
    assert!(invoke(&service, event([labelled]), world.left(seconds(60))).await.unwrap().is_empty());
    assert!(!fifo([("a", order("A"))]).records[0].attributes["MessageDeduplicationId"].is_empty());
}
