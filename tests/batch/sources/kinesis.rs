//! Kinesis: the contents of a record, and its keys.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use lambda_once::{
    BoxError, BoxFuture, Failure, Key, RecordContext,
    batch::{
        BatchService, DeadLetter, DeadLetters, RecordInfo,
        envelope::{Content, Envelope, EnvelopeError, Message},
        kinesis::{Kinesis, KinesisEvent},
    },
    record::Status,
};
use serde_json::{Value, json};

use crate::{
    sources::streams::{checkpoint, sequence_number},
    world::{ALL_DONE, Job, World, base64, order, unreadable, work},
};

pub(crate) const STREAM: &str = "arn:aws:kinesis:us-east-1:123456789012:stream/orders";

pub(crate) fn event_id(number: usize) -> String {
    format!("shardId-000000000006:{}", sequence_number(number))
}

/// Returns a record as Lambda delivers it.
pub(crate) fn record(number: usize, partition_key: &str, data: impl AsRef<[u8]>) -> Value {
    json!({
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": partition_key,
            "sequenceNumber": sequence_number(number),
            "data": base64(data),
            "approximateArrivalTimestamp": 1_795_255_200.987,
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": event_id(number),
        "eventName": "aws:kinesis:record",
        "invokeIdentityArn": "arn:aws:iam::123456789012:role/orders",
        "awsRegion": "us-east-1",
        "eventSourceARN": STREAM,
    })
}

fn event(records: impl IntoIterator<Item = Value>) -> Value {
    json!({ "Records": records.into_iter().collect::<Vec<_>>() })
}

fn service(
    world: &World,
    key: Key,
) -> BatchService<Kinesis, impl lambda_once::batch::Handler<Job, (Job,)> + use<>, Job, (Job,)> {
    world.once.kinesis(key, world.handler())
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_the_id_and_attributes_of_its_record() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.kinesis(Key::message_id(), move |_: Value, context: RecordContext| {
        let attributes = ["partitionKey", "sequenceNumber", "approximateArrivalTimestamp"];
        let attributes = attributes.map(|name| context.record().attribute(name).unwrap().to_owned());
        journal.ran(format!("{} {} {attributes:?}", context.record().source().unwrap(), context.record().message_id()));
        async { Ok::<_, Failure>(()) }
    });
    assert_eq!(world.answer(&service, &event([record(2, "customer-7", "{}")])).await, ALL_DONE);
    let expected = r#"["customer-7", "10000", "1795255200.987"]"#;
    assert_eq!(world.journal.keys(), [format!("{STREAM} shardId-000000000006:10000 {expected}")]);
}

#[tokio::test(start_paused = true)]
async fn an_event_id_identifies_one_record_of_its_stream() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    let mut elsewhere = record(0, "a", order("elsewhere").to_string());
    elsewhere["eventSourceARN"] = json!("arn:aws:kinesis:us-east-1:123456789012:stream/refunds");
    let here = record(0, "a", order("here").to_string());
    for records in [vec![here.clone(), elsewhere.clone()], vec![here], vec![elsewhere]] {
        assert_eq!(world.answer(&service, &event(records)).await, ALL_DONE);
    }
    assert_eq!(world.journal.keys(), ["here", "elsewhere"]);
}

#[tokio::test(start_paused = true)]
async fn a_producers_repeat_is_recognized_by_a_key_from_the_record() {
    for key in [Key::pointer("/order_id"), Key::attribute("partitionKey")] {
        let world = World::new();
        let again = [0, 1].map(|number| record(number, "order-1", order("order-1").to_string()));
        assert_eq!(world.answer(&service(&world, key), &event(again)).await, ALL_DONE);
        assert_eq!(world.journal.keys(), ["order-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn data_may_be_any_bytes() {
    let world = World::new();
    let journal = world.journal.clone();
    let decode = |_: &RecordInfo, data: &Vec<u8>| Ok(data.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    let service = world.once.batch(Kinesis::default(), Key::message_id(), decode, move |sum: u64| {
        journal.ran(sum.to_string());
        async { Ok::<_, Failure>(()) }
    });
    let records = [record(0, "a", b"\xff\xfe\x00"), record(1, "a", b"")];
    assert_eq!(world.answer(&service, &event(records)).await, ALL_DONE);
    assert_eq!(world.journal.keys(), ["509", "0"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_missing_is_a_checkpoint() {
    let world = World::new();
    let records = [record(0, "", order("0").to_string())];
    let service = service(&world, Key::attribute("partitionKey"));
    assert_eq!(world.answer(&service, &event(records)).await, checkpoint(0));
}

// Tests B2.
#[tokio::test(start_paused = true)]
async fn a_missing_sequence_number_fails_the_invocation_before_any_claim() {
    for number in [json!(""), Value::Null] {
        let mut nameless = record(1, "a", "{}");
        match number {
            Value::Null => drop(nameless["kinesis"].as_object_mut().unwrap().remove("sequenceNumber")),
            number => nameless["kinesis"]["sequenceNumber"] = number,
        }
        let world = World::new();
        let service = service(&world, Key::message_id());
        let message = world.refuse(&service, &event([record(0, "a", order("0").to_string()), nameless])).await;
        assert!(message.contains("no sequence number"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_without_an_event_id_is_its_sequence_number() {
    let world = World::new();
    let mut bare = record(0, "a", order("0").to_string());
    bare["eventID"] = Value::Null;
    bare.as_object_mut().unwrap().remove("eventSourceARN");
    bare["kinesis"].as_object_mut().unwrap().remove("approximateArrivalTimestamp");
    assert_eq!(world.answer(&service(&world, Key::message_id()), &event([bare])).await, ALL_DONE);
    assert_eq!(world.status_in("kinesis", &sequence_number(0)).await, Some(Status::Completed));
}

#[test]
fn an_event_of_something_else_is_not_read() {
    let mut record = record(0, "a", "{}");
    record["kinesis"]["data"] = json!("c2VjcmV0?");
    let error = unreadable::<KinesisEvent>(&event([record.clone()]));
    assert!(error.starts_with("Records[0].kinesis.data: not base64"), "{error}");
    record.as_object_mut().unwrap().remove("kinesis");
    assert!(unreadable::<KinesisEvent>(&event([record])).contains("missing field `kinesis`"));
    assert!(unreadable::<KinesisEvent>(&"{}").contains("missing field `Records`"));
    unreadable::<KinesisEvent>(&r#"{"Records":null}"#);
}

/// A dead-letter destination that accepts every record.
#[derive(Clone, Debug, Default)]
struct Letters(Arc<AtomicUsize>);

impl DeadLetters for Letters {
    fn send<'a>(&'a self, _: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn no_delivery_is_known_to_be_the_last_one_of_a_record() {
    let (world, letters) = (World::new(), Letters::default());
    let service = service(&world, Key::message_id()).dead_letters(letters.clone()).max_receive_count(1);
    let event = event([record(0, "a", work("0", "transient", 0).to_string()), record(1, "a", order("1").to_string())]);
    assert_eq!(world.answer(&service, &event).await, checkpoint(0));
    assert_eq!(letters.0.load(Ordering::Relaxed), 0, "a retry may help it");
}

/// An envelope whose messages have an attribute with the name of the sequence number.
#[derive(Clone, Debug)]
struct Numbered;

impl Envelope for Numbered {
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
        let message = Message::new(String::from_utf8_lossy(body)).with_attribute("sequenceNumber", "7");
        Ok(Content::Messages(vec![message]))
    }
}

#[tokio::test(start_paused = true)]
async fn an_attribute_of_an_envelope_does_not_become_the_checkpoint() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.kinesis(Key::message_id(), move |job: Job, context: RecordContext| {
        journal.ran(context.record().attribute("sequenceNumber").unwrap());
        async move { if job.act == "transient" { Err(Failure::transient("not now")) } else { Ok(()) } }
    });
    let records = [record(0, "a", order("0").to_string()), record(1, "a", work("1", "transient", 0).to_string())];
    assert_eq!(world.answer(&service.envelope(Numbered), &event(records)).await, checkpoint(1));
    assert_eq!(world.journal.keys(), ["7", "7"], "handlers get the envelope's");
}

#[tokio::test(start_paused = true)]
async fn a_record_is_the_same_whichever_consumer_of_its_stream_brings_it() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    let by = |source: String| {
        let mut record = record(0, "a", order("A").to_string());
        record["eventSourceARN"] = json!(source);
        event([record])
    };
    let consumers = ["/consumer/fan-out:1600000000", "/consumer/fan-out:1700000000", "/consumer/other:1600000000"];
    for source in [""].into_iter().chain(consumers) {
        assert_eq!(world.answer(&service, &by(format!("{STREAM}{source}"))).await, ALL_DONE);
    }
    assert_eq!(world.journal.keys(), ["A"]);
}
