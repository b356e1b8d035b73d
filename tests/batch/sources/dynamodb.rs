//! DynamoDB streams: changes as handlers get them, and their keys.

use lambda_once::{
    Failure, Key, RecordContext,
    batch::{
        dynamodb::{Change, ChangeKind, DynamoDbStreamEvent},
        stream::StreamOrder,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    sources::streams::{checkpoint, sequence_number},
    world::{ALL_DONE, World, order, unreadable},
};

pub(crate) const STREAM: &str = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-01T08:15:30.512";

pub(crate) fn event_id(number: usize) -> String {
    format!("c4ca4238a0b923820dcc{number:012}")
}

/// Returns an item with these attributes, which are strings and numbers.
fn item(attributes: &Value) -> Value {
    let attribute = |value: &Value| match value {
        Value::Number(number) => json!({ "N": number.to_string() }),
        text => json!({ "S": text }),
    };
    attributes.as_object().unwrap().iter().map(|(name, value)| (name.clone(), attribute(value))).collect()
}

/// Returns a change of the item with this key, as Lambda delivers it.
fn change(number: usize, kind: &str, id: &Value) -> Value {
    json!({
        "eventID": event_id(number),
        "eventName": kind,
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_795_255_200,
            "Keys": item(&json!({ "id": id })),
            "SequenceNumber": sequence_number(number),
            "SizeBytes": 26,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": STREAM,
    })
}

/// Returns a new item with this key and these attributes.
pub(crate) fn record(number: usize, id: &str, attributes: &Value) -> Value {
    let mut record = change(number, "INSERT", &json!(id));
    record["dynamodb"]["NewImage"] = item(attributes);
    record
}

fn event(records: impl IntoIterator<Item = Value>) -> Value {
    json!({ "Records": records.into_iter().collect::<Vec<_>>() })
}

#[derive(Deserialize)]
struct Order {
    status: String,
    amount_cents: u64,
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_the_kind_of_change_and_both_images_as_its_type() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.dynamodb_stream(Key::message_id(), move |change: Change<Order>| {
        let shown = |order: Option<Order>| order.map(|order| format!("{} {}", order.status, order.amount_cents));
        let (kind, expiry) = (change.kind.as_str(), change.is_expiry);
        journal.ran(format!("{kind} {:?} {:?} {expiry}", shown(change.old().unwrap()), shown(change.new)));
        async { Ok::<_, Failure>(()) }
    });
    let file = std::fs::read_to_string("events/dynamodb-stream.json").unwrap();
    assert_eq!(world.answer(&service, &file).await, ALL_DONE);
    let expected = [
        r#"INSERT None Some("open 4990") false"#,
        r#"MODIFY Some("open 4990") Some("paid 4990") false"#,
        r#"REMOVE Some("paid 12900") None false"#,
        r#"REMOVE Some("open 850") None true"#,
    ];
    assert_eq!(world.journal.keys(), expected);
}

#[tokio::test(start_paused = true)]
async fn only_dynamodbs_own_deletion_is_an_expiry() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.dynamodb_stream(Key::message_id(), move |change: Change<Value>| {
        journal.ran(change.is_expiry.to_string());
        async { Ok::<_, Failure>(()) }
    });
    let dynamodb = json!({ "type": "Service", "principalId": "dynamodb.amazonaws.com" });
    let cases = [
        ("REMOVE", dynamodb.clone()),
        ("REMOVE", Value::Null),
        ("REMOVE", json!({ "type": "Service", "principalId": "replication.dynamodb.amazonaws.com" })),
        ("INSERT", dynamodb),
    ];
    let records = cases.into_iter().enumerate().map(|(number, (kind, user))| {
        let mut record = change(number, kind, &json!("a"));
        record["userIdentity"] = user;
        record
    });
    assert_eq!(world.answer(&service, &event(records)).await, ALL_DONE);
    assert_eq!(world.journal.keys(), ["true", "false", "false", "false"]);
}

#[test]
fn a_change_that_a_test_creates_has_no_images_and_is_no_expiry() {
    let change = Change::<Value>::new(ChangeKind::Remove, serde_dynamo::Item::default());
    assert!(change.new.is_none() && change.old_image.is_none() && !change.is_expiry);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_keys_only_gives_the_keys() {
    #[derive(Deserialize)]
    struct Keys {
        id: String,
    }
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.dynamodb_stream(Key::pointer("/Keys/id"), move |change: Change<Value>| {
        let images = format!("{:?} {:?}", change.new, change.old_image);
        let Keys { id } = serde_dynamo::from_item(change.keys).unwrap();
        journal.ran(format!("{id} {images}"));
        async { Ok::<_, Failure>(()) }
    });
    let records = ["a", "b", "a"].into_iter().enumerate().map(|(number, id)| change(number, "MODIFY", &json!(id)));
    assert_eq!(world.answer(&service, &event(records)).await, ALL_DONE);
    assert_eq!(world.journal.keys(), ["a None None", "b None None"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_points_into_an_image() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.dynamodb_stream(Key::pointer("/NewImage/order/lines/1"), move |_: Change<Value>| {
        journal.ran("ran");
        async { Ok::<_, Failure>(()) }
    });
    let with_line = |number, line: Value| {
        let mut record = record(number, "a", &json!({}));
        record["dynamodb"]["NewImage"]["order"] = json!({ "M": { "lines": { "L": [{ "S": "x" }, line] } } });
        record
    };
    let records =
        [with_line(0, json!({ "S": "7" })), with_line(1, json!({ "S": "7" })), with_line(2, json!({ "N": "7" }))];
    assert_eq!(world.answer(&service, &event(records)).await, ALL_DONE);
    assert_eq!(world.journal.keys().len(), 2, "a text and a number are two keys");
    let nothing = [with_line(3, json!({ "NULL": true }))];
    assert_eq!(world.answer(&service, &event(nothing)).await, checkpoint(3));
}

#[tokio::test(start_paused = true)]
async fn two_numbers_that_differ_are_two_keys_however_large() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.dynamodb_stream(Key::pointer("/Keys/id"), move |_: Change<Value>| {
        journal.ran("ran");
        async { Ok::<_, Failure>(()) }
    });
    let ids = [
        "9007199254740992",
        "9007199254740993",
        "12345678901234567890123456789012345678",
        "12345678901234567890123456789012345679",
    ];
    let records = ids.into_iter().enumerate().map(|(number, id)| {
        let mut record = change(number, "INSERT", &json!(""));
        record["dynamodb"]["Keys"]["id"] = json!({ "N": id });
        record
    });
    assert_eq!(world.answer(&service, &event(records)).await, ALL_DONE);
    assert_eq!(world.journal.keys().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_event_id_identifies_one_change_of_its_stream() {
    let world = World::new();
    let perform = world.handler();
    let service = world.once.dynamodb_stream(Key::message_id(), move |change: Change<_>| perform(change.new.unwrap()));
    let here = record(0, "a", &order("here"));
    let mut elsewhere = record(0, "a", &order("elsewhere"));
    elsewhere["eventSourceARN"] =
        json!("arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-02T00:00:00.000");
    for records in [vec![here.clone(), elsewhere.clone()], vec![here], vec![elsewhere]] {
        assert_eq!(world.answer(&service, &event(records)).await, ALL_DONE);
    }
    assert_eq!(world.journal.keys(), ["here", "elsewhere"]);
}

#[tokio::test(start_paused = true)]
async fn a_record_may_have_no_keys_and_no_images() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.dynamodb_stream(Key::message_id(), move |change: Change<Value>| {
        journal.ran(format!("{} {:?}", change.keys.inner().len(), change.new));
        async { Ok::<_, Failure>(()) }
    });
    let (mut null, mut absent) = (change(0, "INSERT", &json!("a")), change(1, "INSERT", &json!("a")));
    for name in ["Keys", "NewImage", "OldImage", "ApproximateCreationDateTime"] {
        null["dynamodb"][name] = Value::Null;
        absent["dynamodb"].as_object_mut().unwrap().remove(name);
    }
    let service = service.order(StreamOrder::Key);
    assert_eq!(world.answer(&service, &event([null, absent])).await, ALL_DONE);
    assert_eq!(world.journal.keys(), ["0 None", "0 None"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_the_source_id_and_attributes_of_its_change() {
    let world = World::new();
    let journal = world.journal.clone();
    let handler = move |_: Change<Value>, context: RecordContext| {
        let attributes = ["eventName", "sequenceNumber", "approximateCreationDateTime"];
        let attributes = attributes.map(|name| context.record().attribute(name).unwrap().to_owned());
        journal.ran(format!("{} {} {attributes:?}", context.record().source().unwrap(), context.record().message_id()));
        async { Ok::<_, Failure>(()) }
    };
    let service = world.once.dynamodb_stream(Key::message_id(), handler);
    assert_eq!(world.answer(&service, &event([change(0, "REMOVE", &json!("a"))])).await, ALL_DONE);
    assert_eq!(world.journal.keys(), [format!(r#"{STREAM} {} ["REMOVE", "9998", "1795255200"]"#, event_id(0))]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_sequence_number_fails_the_invocation_before_any_claim() {
    let world = World::new();
    let perform = world.handler();
    let service = world.once.dynamodb_stream(Key::message_id(), move |change: Change<_>| perform(change.new.unwrap()));
    let mut nameless = record(1, "a", &order("1"));
    nameless["dynamodb"].as_object_mut().unwrap().remove("SequenceNumber");
    let message = world.refuse(&service, &event([record(0, "a", &order("0")), nameless])).await;
    assert!(message.contains("no sequence number"), "{message}");
}

#[test]
fn an_event_of_something_else_is_not_read() {
    assert!(unreadable::<DynamoDbStreamEvent>(&"{}").contains("missing field `Records`"));
    let error = unreadable::<DynamoDbStreamEvent>(&event([change(0, "UPSERT", &json!("a"))]));
    assert!(error.starts_with("Records[0].eventName: unknown variant"), "{error}");
    let kinesis = std::fs::read_to_string("events/kinesis-batch.json").unwrap();
    unreadable::<DynamoDbStreamEvent>(&kinesis);
}

#[tokio::test(start_paused = true)]
async fn an_old_image_of_another_type_fails_only_a_handler_that_reads_it() {
    for (looks, outcome) in [(false, true), (true, false)] {
        let world = World::new();
        let service = world.once.dynamodb_stream(Key::message_id(), move |change: Change<Order>| async move {
            assert!(change.new.is_some());
            if looks { change.old().map(drop) } else { Ok(()) }
        });
        let mut record = change(0, "MODIFY", &json!("a"));
        let image = |status: Value| json!({ "status": status, "amount_cents": { "N": "1" } });
        record["dynamodb"]["NewImage"] = image(json!({ "S": "new" }));
        record["dynamodb"]["OldImage"] = image(json!({ "N": "7" }));
        assert_eq!(world.answer(&service, &event([record])).await == ALL_DONE, outcome, "looks: {looks}");
    }
}
