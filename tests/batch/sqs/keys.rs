//! Keys from the metadata of a message, and from JMESPath expressions.

use lambda_once::{ErrorKind, Failure, Key, Payload, RecordContext};
use serde_json::{Value, json};

use crate::world::{World, event, fifo, invoke, message, order, seconds};

/// Returns a message with an attribute set by its sender.
fn labelled(id: &str, data_type: &str, field: &str, value: &str) -> Value {
    let mut message = message(id, &order(id));
    message["messageAttributes"] = json!({
        "order-id": { field: value, "dataType": data_type, "stringListValues": [], "binaryListValues": [] }
    });
    message
}

/// Delivers these messages with the key, and returns the reported ids and the number of handlers that ran.
async fn deliver(key: Key, messages: impl IntoIterator<Item = Value>) -> (Vec<String>, usize) {
    let world = World::new();
    let journal = std::sync::Arc::new(std::sync::Mutex::new(0));
    let runs = std::sync::Arc::clone(&journal);
    let handler = move |_: Value| {
        *runs.lock().unwrap() += 1;
        async { Ok::<_, Failure>(()) }
    };
    let service = world.once.sqs(key, handler).payload(Payload::Ignored).validate().unwrap();
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
        assert_eq!(context.record().header("order-id"), Some("A"));
        assert_eq!(context.record().header("other"), None);
        Ok::<_, Failure>(context.record().attribute("SentTimestamp").is_some())
    });
    let labelled = labelled("m0", "String", "stringValue", "A");
    assert!(invoke(&service, event([labelled]), world.left(seconds(60))).await.unwrap().is_empty());
    assert!(!fifo([("a", order("A"))]).records[0].attributes["MessageDeduplicationId"].is_empty());
}

#[tokio::test(start_paused = true)]
async fn messages_for_which_an_expression_finds_the_same_are_one_operation() {
    let notification =
        |id: &str, text: &str| message(id, &json!({"Type": "Notification", "Message": text}).to_string());
    let messages = [
        notification("m0", r#"{"order_id": "A", "sent": 1}"#),
        notification("m1", r#"{"sent": 2, "order_id": "A"}"#),
        notification("m2", r#"{"order_id": "B"}"#),
        notification("m3", r#"{"sent": 3}"#),
        notification("m4", "no JSON"),
    ];
    let (reported, runs) = deliver(Key::jmespath("powertools_json(Message).order_id"), messages).await;
    assert_eq!((reported, runs), (vec!["m3".to_owned(), "m4".to_owned()], 2));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_expression_is_found_in_init_and_claims_nothing() {
    let world = World::new();
    let handler = |_: Value| async { Ok::<_, Failure>(()) };
    let service = world.once.sqs(Key::jmespath("order_id["), handler);
    assert_eq!(service.clone().validate().unwrap_err().kind(), ErrorKind::Config);
    let part = world.once.sqs(Key::message_id(), handler).payload(Payload::Part(Key::jmespath("nowhere(@)")));
    assert_eq!(part.validate().unwrap_err().kind(), ErrorKind::Config);
    let refused = invoke(&service, event([message("m0", &order("A"))]), world.left(seconds(60))).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
    assert!(world.store.calls().is_empty());
}
