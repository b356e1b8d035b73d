//! Kafka: the keys of records, and the context of handlers.

use lambda_once::{Failure, Key, RecordContext, record::Status};
use serde_json::{Value, json};

use crate::{
    sources::kafka::{event, record, service},
    world::{ALL_DONE, World, base64, order},
};

/// Returns a record with this key.
fn keyed(offset: i64, key: impl AsRef<[u8]>) -> Value {
    let mut record = record(0, offset, &order("x"));
    record["key"] = json!(base64(key));
    record
}

/// Returns a record with a header `id` of these bytes, signed as in Lambda's events.
fn headed(offset: i64, header: &[u8]) -> Value {
    let mut record = record(0, offset, &order("x"));
    let signed: Vec<i8> = header.iter().map(|byte| byte.cast_signed()).collect();
    record["headers"] = json!([{ "trace": [1, 2] }, { "id": signed }]);
    record
}

/// Returns the number of records that run with this key selector. All of them are acknowledged.
async fn runs(key: Key, records: impl IntoIterator<Item = Value>) -> usize {
    let world = World::new();
    assert_eq!(world.answer(&service(&world, key), &event(records)).await, ALL_DONE);
    world.journal.keys().len()
}

#[tokio::test(start_paused = true)]
async fn by_default_a_record_is_its_place_in_its_cluster() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    let mut event = event([record(0, 1, &order("x")), record(0, 2, &order("x")), record(1, 1, &order("x"))]);
    assert_eq!(world.answer(&service, &event).await, ALL_DONE);
    assert_eq!(world.answer(&service, &event).await, ALL_DONE);
    assert_eq!(world.journal.keys().len(), 3);
    let id = format!("orders-0-2@{}", event["records"]["orders-0"][1]["timestamp"]);
    assert_eq!(world.status_in("kafka", &(event["eventSourceArn"].clone(), id)).await, Some(Status::Completed));
    event["eventSourceArn"] = json!("arn:aws:kafka:us-east-1:123456789012:cluster/other/1");
    assert_eq!(world.answer(&service, &event).await, ALL_DONE);
    assert_eq!(world.journal.keys().len(), 6, "another cluster has the same places");
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_was_created_anew_has_new_records_at_the_same_offsets() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    let mut event = event([record(0, 0, &order("x"))]);
    assert_eq!(world.answer(&service, &event).await, ALL_DONE);
    event["records"]["orders-0"][0]["timestamp"] = json!(1_799_999_999_999_u64);
    assert_eq!(world.answer(&service, &event).await, ALL_DONE);
    assert_eq!(world.journal.keys().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_self_managed_cluster_is_the_set_of_its_servers() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    for (servers, runs) in [("k1:9092,k2:9092", 1), ("k2:9092, k1:9092", 1), ("k1:9092", 2), ("k3:9092,k4:9092", 3)] {
        let mut event = event([record(0, 1, &order("x"))]);
        event["eventSource"] = json!("SelfManagedKafka");
        event["bootstrapServers"] = json!(servers);
        event.as_object_mut().unwrap().remove("eventSourceArn");
        assert_eq!(world.answer(&service, &event).await, ALL_DONE);
        assert_eq!(world.journal.keys().len(), runs, "{servers}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_records_own_key_may_be_the_key() {
    let records = [keyed(1, "order-1"), keyed(2, "order-2"), keyed(3, "order-1")];
    assert_eq!(runs(Key::attribute("key"), records).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_record_key_that_is_not_a_text_has_its_bytes_only() {
    let records = || [keyed(1, b"\xff\x00"), keyed(2, b"\xff\x01"), keyed(3, b"\xff\x00")];
    assert_eq!(runs(Key::attribute("keyBase64"), records()).await, 2);
    let world = World::new();
    let answer = world.answer(&service(&world, Key::attribute("key")), &event(records())).await;
    assert!(answer.contains(r#""offset":1"#) && world.journal.keys().is_empty(), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_header_may_be_the_key_whatever_its_letters() {
    let texts = ["München", "Zürich", "München", "☕"];
    let records = texts.iter().zip(1..).map(|(text, offset)| headed(offset, text.as_bytes()));
    assert_eq!(runs(Key::header("id"), records).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_header_that_is_not_a_text_is_missing() {
    for header in [json!([-1, -2]), json!([300_000]), json!([]), json!({}), Value::Null, json!("AQ==")] {
        let world = World::new();
        let mut record = record(0, 1, &order("x"));
        record["headers"] = json!([{ "id": header }, { "other": [97] }]);
        let event = event([record]);
        let answer = world.answer(&service(&world, Key::header("id")), &event).await;
        assert!(answer.contains(r#""offset":1"#) && world.journal.keys().is_empty(), "{header}: {answer}");
        assert_eq!(world.answer(&service(&world, Key::header("other")), &event).await, ALL_DONE, "{header}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_may_have_no_headers_at_all() {
    let (mut null, mut absent) = (record(0, 1, &order("1")), record(0, 2, &order("2")));
    null["headers"] = Value::Null;
    absent.as_object_mut().unwrap().remove("headers");
    assert_eq!(runs(Key::message_id(), [null, absent]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_the_value_may_be_the_key() {
    let records = [record(0, 1, &order("A")), record(1, 1, &order("B")), record(1, 2, &order("A"))];
    assert_eq!(runs(Key::pointer("/order_id"), records).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_the_id_and_attributes_of_its_record() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.kafka(Key::message_id(), move |_: Value, context: RecordContext| {
        let attributes = ["topic", "partition", "offset", "timestamp", "key", "keyBase64"];
        let attributes = attributes.map(|name| context.record().attribute(name).unwrap_or("-").to_owned());
        journal.ran(format!(
            "{} {attributes:?} {:?}",
            context.record().message_id(),
            context.record().header("source")
        ));
        async { Ok::<_, Failure>(()) }
    });
    let file = std::fs::read_to_string("events/kafka-msk.json").unwrap();
    assert_eq!(world.answer(&service, &file).await, ALL_DONE);
    let expected = concat!(
        r#"orders-0-100@1795255200000 ["orders", "0", "100", "1795255200000", "0c6f9c1e-6c0f-4f0b-9a5d-3b0f7f3c8a11", "#,
        r#""MGM2ZjljMWUtNmMwZi00ZjBiLTlhNWQtM2IwZjdmM2M4YTEx"] Some("Kassa München")"#
    );
    assert_eq!(world.journal.keys()[0], expected);
}
