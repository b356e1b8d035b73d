//! Malformed events, and a valid one.

use aws_lambda_events::sqs::SqsEvent;
use lambda_once::{
    Classify, Error, ErrorKind, Failure, Key, Payload,
    batch::{RecordInfo, sqs::Sqs},
    record::Status,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::world::{World, event, invoke, message, order, seconds, work};

/// Returns the error of an invocation in which nothing was claimed and nothing ran.
async fn refused(world: &World, event: SqsEvent) -> Error {
    let error = invoke(&world.service(), event, world.left(seconds(60))).await.unwrap_err();
    assert!(world.store.calls().is_empty());
    assert!(world.journal.keys().is_empty());
    error
}

// Tests B2.
#[test]
fn an_event_without_records_does_not_parse() {
    for text in ["{}", r#"{"records":[]}"#, r#"{"Records":null}"#, "[]", "null"] {
        assert!(serde_json::from_str::<SqsEvent>(text).is_err(), "{text}");
    }
}

#[test]
fn an_event_that_is_not_utf_8_or_has_half_a_surrogate_does_not_parse() {
    for bytes in [&b"{\"Records\":[{\"body\":\"\xff\"}]}"[..], br#"{"Records":[{"body":"\ud800"}]}"#] {
        assert!(serde_json::from_slice::<SqsEvent>(bytes).is_err());
    }
}

// Tests B2.
#[tokio::test(start_paused = true)]
async fn a_record_without_a_message_id_fails_the_invocation_before_any_claim() {
    for id in [json!(null), json!(""), Value::Null] {
        let mut nameless = message("x", &order("B"));
        nameless["messageId"] = id;
        let error = refused(&World::new(), event([message("m0", &order("A")), nameless])).await;
        assert_eq!(error.kind(), ErrorKind::Event);
        assert!(error.is_retryable());
        assert!(error.to_string().contains("messageId"));
    }
    let mut nameless = message("x", &order("B"));
    nameless.as_object_mut().unwrap().remove("messageId");
    assert_eq!(refused(&World::new(), event([nameless])).await.kind(), ErrorKind::Event);
}

// Tests B4.
#[tokio::test(start_paused = true)]
async fn a_fair_queue_is_a_standard_queue() {
    let world = World::new();
    let fair = |id, body| {
        let mut message = message(id, &body);
        message["attributes"]["MessageGroupId"] = json!("tenant-7");
        message
    };
    let event = event([fair("m0", work("A", "transient", 0)), fair("m1", order("B"))]);
    assert_eq!(invoke(&world.service(), event, world.left(seconds(60))).await.unwrap(), ["m0"]);
    assert_eq!(world.journal.keys(), ["A", "B"]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_pointer_is_refused_before_anything_is_claimed() {
    let world = World::new();
    let handler = |_: Value| async { Ok::<_, Failure>(()) };
    let event = || event([message("m0", &order("A"))]);
    for key in [Key::pointer("order_id"), Key::composite([Key::message_id(), Key::pointer("~")]), Key::composite([])] {
        let error = invoke(&world.once.sqs(key, handler), event(), world.left(seconds(60))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
    }
    let service = world.once.sqs(Key::message_id(), handler).payload(Payload::Part(Key::pointer("act")));
    let error = invoke(&service, event(), world.left(seconds(60))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(world.store.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_event_without_records_gets_an_empty_failure_list() {
    let world = World::new();
    assert!(invoke(&world.service(), event([]), world.left(seconds(60))).await.unwrap().is_empty());
    assert!(world.store.calls().is_empty());
}

/// Delivers a record between two valid ones, and returns whether it alone is reported and both others ran.
async fn alone_is_reported(record: Value) -> bool {
    let world = World::new();
    let event = event([message("m0", &order("A")), record, message("m2", &order("B"))]);
    let reported = invoke(&world.service(), event, world.left(seconds(60))).await.unwrap();
    reported == ["m1"] && world.journal.keys() == ["A", "B"] && world.records().await.len() == 2
}

#[tokio::test(start_paused = true)]
async fn a_record_without_a_body_is_reported_alone() {
    let mut empty = message("m1", &"");
    assert!(alone_is_reported(empty.clone()).await);
    empty["body"] = Value::Null;
    assert!(alone_is_reported(empty.clone()).await);
    empty.as_object_mut().unwrap().remove("body");
    assert!(alone_is_reported(empty).await);
}

// Tests B1, B2.
#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_read_is_reported_alone() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let member = |value: &str| format!(r#"{{"order_id":"C","act":"succeed","ms":0,"extra":{value}}}"#);
    for body in [
        "{".to_owned(),
        "not JSON".to_owned(),
        order("C").to_string() + "}",
        format!("\u{feff}{}", order("C")),
        deep("[", "]"),
        deep(r#"{"a":"#, "}").replace("}}", "1}}"),
        "[".repeat(100_000),
        member(&deep("[", "]")),
        member(&"[".repeat(100_000)),
        member(r#"{"twice":1,"twice":2}"#),
        member("01"),
        member("1e"),
        r#"{"order_id":"C","order_id":"D","act":"succeed","ms":0}"#.to_owned(),
        r#"{"order_id":"\ud800","act":"succeed","ms":0}"#.to_owned(),
        r#"{"order_id":"\udc00\ud800","act":"succeed","ms":0}"#.to_owned(),
        member(r#""\ud800\u12""#),
        member(r#""\uZZZZ""#),
        member("\"\u{1}\""),
    ] {
        let shown: String = body.chars().take(60).collect();
        assert!(alone_is_reported(message("m1", &body)).await, "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_with_half_of_a_surrogate_pair_runs_once_however_it_is_written() {
    let world = World::new();
    let note = |note: &str| format!(r#"{{"order_id":"A","act":"succeed","ms":0,"note":"thanks {note}"}}"#);
    for body in [r"\ud83d", r"\uD83D"] {
        assert!(world.deliver([note(body)]).await.is_empty(), "{body}");
    }
    assert_eq!(world.deliver([note(r"\ud83c")]).await, ["m0"], "another payload");
    assert_eq!(world.journal.keys(), ["A"]);
}

#[tokio::test(start_paused = true)]
async fn a_body_of_six_megabytes_is_handled_like_any_other() {
    let world = World::new();
    let large = json!({"order_id": "A", "act": "succeed", "ms": 0, "extra": "x".repeat(6 * 1024 * 1024)});
    assert!(world.deliver([&large, &order("B"), &large]).await.is_empty());
    assert_eq!(world.journal.keys(), ["A", "B"]);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_json_can_be_a_payload_by_its_bytes() {
    let world = World::new();
    let key = Key::from_fn(|delivery| {
        let body = std::str::from_utf8(delivery.body())?;
        Ok(body.split(',').next().map(str::to_owned))
    });
    let decode = |_: &RecordInfo, body: &String| Ok(body.to_owned());
    let service = world.once.batch(Sqs, key, decode, |_: String| async { Ok::<_, Failure>(()) });
    assert_eq!(world.deliver_to(&service, ["A,1", "A,1", "A,2", ",1", "[[["]).await, ["m2", "m3"]);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    order_id: String,
    customer_id: String,
    amount_cents: u64,
    currency: String,
    #[serde(default)]
    simulate: Option<Simulate>,
}

#[derive(Deserialize)]
struct Simulate {
    outcome: String,
}

async fn place(order: Order) -> Result<String, Failure> {
    let Order { order_id, customer_id, amount_cents, currency, simulate } = order;
    let failed = || Err(std::io::Error::other("simulated"));
    match simulate.as_ref().map(|simulate| simulate.outcome.as_str()) {
        Some("permanent") => failed().permanent()?,
        Some("panic") => panic!("simulated"),
        Some(_) => failed()?,
        None => {}
    }
    Ok(format!("{order_id} {customer_id} {amount_cents} {currency}"))
}

#[tokio::test(start_paused = true)]
async fn the_event_in_the_repository_gives_the_outcomes_it_is_meant_to_show() {
    let text = include_str!("../../../events/sqs-batch.json");
    let event: SqsEvent = serde_json::from_str(text).unwrap();
    let at = |i: usize| event.records[i].message_id.clone().unwrap();
    let world = World::new();
    let service = world.once.sqs(Key::pointer("/order_id"), place);
    let mut left: Vec<String> = Vec::new();
    for _ in 0..2 {
        left = invoke(&service, event.clone(), world.left(seconds(10))).await.unwrap();
        // New, new, a duplicate, poison, transient, permanent, a key with another payload, a panic.
        assert_eq!(left, [at(3), at(4), at(5), at(6), at(7)]);
    }
    assert_eq!(left.len(), 5);
    let status = |id| world.status(id);
    assert_eq!(status("6513270e-269e-4d37-b2a7-4de452e6b438").await, Some(Status::Completed));
    assert_eq!(status("d23f0824-128b-4f33-8c5c-7fd0a6a3a450").await, Some(Status::Completed));
    assert_eq!(status("9531985d-5d9d-49f8-9818-e811892f902b").await, None);
    assert_eq!(status("36f675cc-81e7-4ef5-a8e2-5d940ed90475").await, Some(Status::Failed));
    assert_eq!(status("6b0d549b-6f03-475a-9600-a35a099950d8").await, Some(Status::InProgress));
}

#[tokio::test(start_paused = true)]
async fn a_record_without_attributes_is_handled_like_any_other() {
    let world = World::new();
    let records = [json!({"messageId": "m0", "body": work("A", "succeed", 0).to_string(), "attributes": null})];
    assert!(invoke(&world.service(), event(records), world.left(seconds(60))).await.unwrap().is_empty());
    assert_eq!(world.journal.keys(), ["A"]);
}
