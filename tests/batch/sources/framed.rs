//! Kafka records with Confluent framing. The bytes are from `confluent-kafka` 2.16 (PyPI) and its in-memory registry.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lambda_once::{
    BoxError, Classify, ErrorKind, Failure, Key, OutcomeKind, PermanentFailures, RecordContext,
    batch::{
        RecordInfo,
        kafka::{Kafka, KafkaMessage},
    },
    testing::{self, kafka},
};

use crate::testing::journal::Journal;

/// Schema 1, `{"name": "Order", "fields": [order_id: string, cents: long]}`, of `{"order_id": "o-1", "cents": -4990}`.
const AVRO: [u8; 11] = [0, 0, 0, 0, 1, 6, b'o', b'-', b'1', 0xfb, 0x4d];
/// Schema 2, `"string"`, of `"customer 7"`.
const AVRO_KEY: &str = "\0\0\0\0\u{2}\u{14}customer 7";
/// Schema 3, the first message of its file, `google.protobuf.Duration { seconds: 7, nanos: 5 }`.
const PROTOBUF: [u8; 10] = [0, 0, 0, 0, 3, 0, 8, 7, 0x10, 5];
/// Schema 4, the third message of its file, `google.protobuf.ListValue` of the string `x`.
const PROTOBUF_THIRD: [u8; 12] = [0, 0, 0, 0, 4, 2, 4, 0x0a, 3, 0x1a, 1, b'x'];

/// Removes the framing, as in the documentation.
fn unframed(bytes: &[u8]) -> Result<(u32, &[u8]), BoxError> {
    let Some(([0, id @ ..], payload)) = bytes.split_first_chunk::<5>() else {
        return Err("the value is not framed".into());
    };
    Ok((u32::from_be_bytes(*id), payload))
}

/// Returns a zigzag varint, and the bytes after it.
fn varint(bytes: &[u8]) -> Result<(i64, &[u8]), BoxError> {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).ok_or("too short")?;
    let (varint, rest) = bytes.split_at(end + 1);
    let raw = varint.iter().rev().fold(0_u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    Ok(((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed(), rest))
}

fn string(bytes: &[u8]) -> Result<(String, &[u8]), BoxError> {
    let (length, rest) = varint(bytes)?;
    let (text, rest) = rest.split_at_checked(usize::try_from(length)?).ok_or("too short")?;
    Ok((String::from_utf8(text.to_vec())?, rest))
}

#[derive(Clone, Debug, PartialEq)]
struct Order {
    customer: Option<String>,
    order_id: String,
    cents: i64,
}

fn order(message: &KafkaMessage) -> Result<Option<Order>, BoxError> {
    let Some(value) = message.value() else { return Ok(None) };
    let (1, payload) = unframed(value)? else { return Err("another schema".into()) };
    let (order_id, rest) = string(payload)?;
    let (cents, _) = varint(rest)?;
    let customer = message.key().map(|key| string(unframed(key)?.1).map(|(text, _)| text)).transpose()?;
    Ok(Some(Order { customer, order_id, cents }))
}

#[tokio::test]
async fn avro_in_key_and_value_is_decoded_by_a_custom_decoder() {
    let journal = Journal::<Option<Order>>::new();
    let service = testing::engine().batch(Kafka, Key::message_id(), |_, message| order(message), journal.handler());
    let batch = kafka::batch([
        testing::bytes(AVRO).attribute("key", AVRO_KEY),
        testing::bytes(AVRO),
        kafka::tombstone().attribute("key", AVRO_KEY),
    ]);
    testing::deliver_twice(&service, &batch).await.assert_once();
    let order = |customer: Option<&str>| {
        Some(Order { customer: customer.map(str::to_owned), order_id: "o-1".to_owned(), cents: -4990 })
    };
    assert_eq!(journal.payloads(), [order(Some("customer 7")), order(None), None]);
}

#[tokio::test]
async fn protobuf_has_the_index_of_its_message_in_front() {
    let journal = Journal::<(u32, Vec<i64>, Vec<u8>)>::new();
    let decode = |_: &RecordInfo, message: &KafkaMessage| {
        let (id, rest) = unframed(message.value().ok_or("a tombstone")?)?;
        let (count, mut rest) = varint(rest)?;
        // A single zero denotes the first message.
        let mut index = if count == 0 { vec![0] } else { Vec::new() };
        for _ in 0..count {
            let next;
            (next, rest) = varint(rest)?;
            index.push(next);
        }
        Ok((id, index, rest.to_vec()))
    };
    let service = testing::engine().batch(Kafka, Key::message_id(), decode, journal.handler());
    let batch = kafka::batch([testing::bytes(PROTOBUF), testing::bytes(PROTOBUF_THIRD)]);
    testing::deliver_twice(&service, &batch).await.assert_once();
    let expected = [(3, vec![0], PROTOBUF[6..].to_vec()), (4, vec![2], PROTOBUF_THIRD[7..].to_vec())];
    assert_eq!(journal.payloads(), expected);
}

#[tokio::test]
async fn a_schema_not_known_yet_is_retried_and_an_unframed_value_is_not() {
    let is_registered = Arc::new(AtomicBool::new(false));
    let registry = Arc::clone(&is_registered);
    let decode = move |_: &RecordInfo, message: &KafkaMessage| {
        if message.value().is_some_and(|value| value.starts_with(&[0])) && !registry.load(Ordering::SeqCst) {
            Err("the schema is not known").transient()?;
        }
        order(message)
    };
    let handle = |_: Option<Order>, context: RecordContext| async move {
        assert_eq!(context.record().attribute("topic"), Some("orders"));
        Ok::<_, Failure>(())
    };
    let service = testing::engine()
        .batch(Kafka, Key::message_id(), decode, handle)
        .permanent_failures(PermanentFailures::Acknowledge);
    let batch = kafka::batch([testing::bytes(AVRO), testing::bytes(*b"{}").attribute("partition", 1)]);
    let delivered = testing::deliver(&service, &batch).await;
    assert_eq!(delivered.outcomes(), [Err(ErrorKind::Decode), Err(ErrorKind::Payload)]);
    assert_eq!(delivered.reported().len(), 1, "the schema may come");
    is_registered.store(true, Ordering::SeqCst);
    let delivered = testing::deliver(&service, &batch).await;
    assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Executed), Err(ErrorKind::Payload)]);
    assert!(delivered.reported().is_empty());
}
