//! Builds batches of SQS queues, standard and FIFO.
//!
//! ```
//! use lambda_once::testing::{self, Redeliver, sqs};
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let batch = sqs::fifo([
//!     testing::record(&order).attribute("MessageGroupId", "customer 1").header("tenant", "a"),
//!     testing::bytes("no order").id("m-7").attribute("ApproximateReceiveCount", 3),
//! ]);
//! let event = batch.delivery(2);
//! assert_eq!(event.records[1].attributes["ApproximateReceiveCount"], "4");
//! ```

use aws_lambda_events::sqs::SqsEvent;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    parts,
    records::{Batch, Record},
};
use crate::{clock::Timestamp, record::digits, testing::unique};

const RECEIVE_COUNT: &str = "ApproximateReceiveCount";

/// Makes a batch of a standard queue, sent now. Each message without an id gets a unique one. Every delivery increases
/// the receive count by one, and has new receipt handles. A message with a `MessageGroupId` makes the queue a fair one.
///
/// # Panics
///
/// If a body is not UTF-8, or a receive count is not a number.
pub fn batch(messages: impl IntoIterator<Item = Record>) -> Batch<SqsEvent> {
    in_queue("arn:aws:sqs:us-east-1:123456789012:orders", messages)
}

/// Makes a batch of a FIFO queue, sent now. Messages without a `MessageGroupId` share one. The default
/// `MessageDeduplicationId` is derived from the message's content.
///
/// # Panics
///
/// As for [`batch`].
pub fn fifo(messages: impl IntoIterator<Item = Record>) -> Batch<SqsEvent> {
    in_queue("arn:aws:sqs:us-east-1:123456789012:orders.fifo", messages)
}

fn in_queue(arn: &str, messages: impl IntoIterator<Item = Record>) -> Batch<SqsEvent> {
    let sent = parts::now();
    // Each message with its number in the queue.
    let messages: Vec<_> = messages.into_iter().map(|message| (unique::number(), message)).collect();
    Batch::new(arn, move |head, delivery| {
        let wire = |(number, message): &(u64, Record)| wire(message, &head.source, sent, *number, delivery);
        let records: Vec<Value> = messages.iter().map(wire).collect();
        parts::event(&json!({ "Records": records }))
    })
}

fn wire(message: &Record, source: &str, sent: Timestamp, number: u64, delivery: u32) -> Value {
    let id = message.id.clone().unwrap_or_else(|| unique::uuid(number));
    let sent = sent.as_millis().to_string();
    let first = message.found(RECEIVE_COUNT).map_or(1, parts::number::<u32>);
    let receive_count = first.saturating_add(delivery.saturating_sub(1));
    let mut attributes: Map<String, Value> = [
        ("SentTimestamp", sent.clone()),
        ("SenderId", "AIDACKCEVSQ6C2EXAMPLE".to_owned()),
        ("ApproximateFirstReceiveTimestamp", sent),
    ]
    .into_iter()
    .map(|(name, text)| (name.to_owned(), text.into()))
    .collect();
    let body = message.text();
    if source.ends_with(".fifo") {
        let digest = digits(&Sha256::digest(body), &mut [0; 64]).to_owned();
        attributes.insert("MessageGroupId".to_owned(), "group".into());
        attributes.insert("MessageDeduplicationId".to_owned(), digest.into());
        attributes.insert("SequenceNumber".to_owned(), format!("188{number:017}").into());
    }
    attributes.extend(message.attributes.iter().map(|(name, text)| (name.clone(), text.as_str().into())));
    attributes.insert(RECEIVE_COUNT.to_owned(), receive_count.to_string().into());
    let headers = message.written_headers(|bytes| match str::from_utf8(bytes) {
        Ok(text) => {
            json!({ "stringValue": text, "stringListValues": [], "binaryListValues": [], "dataType": "String" })
        }
        Err(_) => {
            let bytes = parts::base64(bytes);
            json!({ "binaryValue": bytes, "stringListValues": [], "binaryListValues": [], "dataType": "Binary" })
        }
    });
    json!({
        "messageId": id,
        "receiptHandle": format!("{id}/{receive_count}"),
        "body": body,
        "attributes": attributes,
        "messageAttributes": headers,
        "eventSource": "aws:sqs",
        "eventSourceARN": source,
        "awsRegion": "us-east-1",
    })
}
