//! Batches of SQS queues, standard and FIFO.
//!
//! ```
//! use lambda_once::testing::{Redeliver, sqs};
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let batch = sqs::fifo([
//!     sqs::message(&order).group("customer 1").header("tenant", "a"),
//!     sqs::text("no order").id("m-7").receive_count(3),
//! ]);
//! let event = batch.delivery(2);
//! assert_eq!(event.records[1].attributes["ApproximateReceiveCount"], "4");
//! ```

use aws_lambda_events::sqs::SqsEvent;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::parts;
use crate::{
    clock::Timestamp,
    record::Fingerprint,
    testing::{Redeliver, unique},
};

const STANDARD: &str = "arn:aws:sqs:us-east-1:123456789012:orders";
const FIFO: &str = "arn:aws:sqs:us-east-1:123456789012:orders.fifo";

/// A message, before a queue has it.
#[derive(Clone, Debug)]
pub struct Message {
    id: Option<String>,
    body: String,
    group: Option<String>,
    receive_count: u32,
    attributes: Vec<(String, String)>,
    headers: Vec<(String, String)>,
}

/// A batch of a queue. Every delivery has the same messages, with a receive count that is higher by one and another
/// receipt handle.
#[derive(Clone, Debug)]
pub struct Batch {
    source: String,
    sent: Timestamp,
    /// Each with the number that it has in the queue.
    messages: Vec<(u64, Message)>,
}

/// A message whose body is this, in JSON.
///
/// # Panics
///
/// If it cannot be JSON.
pub fn message<T: Serialize + ?Sized>(body: &T) -> Message {
    text(parts::json(body))
}

/// A message with this body.
pub fn text(body: impl Into<String>) -> Message {
    Message { id: None, body: body.into(), group: None, receive_count: 1, attributes: Vec::new(), headers: Vec::new() }
}

/// Messages of a standard queue, sent now. Each that has no id gets one of its own.
pub fn batch(messages: impl IntoIterator<Item = Message>) -> Batch {
    let messages = messages.into_iter().map(|message| (unique::number(), message)).collect();
    Batch { source: STANDARD.to_owned(), sent: parts::now(), messages }
}

/// Messages of a FIFO queue, sent now. Those without a group have one in common. The deduplication id of a message is made
/// of its content, unless it is set.
pub fn fifo(messages: impl IntoIterator<Item = Message>) -> Batch {
    batch(messages).source(FIFO)
}

impl Message {
    /// Its id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Its message group. In a standard queue that makes the queue a fair one, and gives it no order.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Its deduplication id.
    #[must_use]
    pub fn deduplication_id(self, id: impl Into<String>) -> Self {
        self.attribute("MessageDeduplicationId", id)
    }

    /// How often it has been delivered, the first delivery of the batch included. Default: 1.
    #[must_use]
    pub fn receive_count(mut self, count: u32) -> Self {
        self.receive_count = count;
        self
    }

    /// An attribute that the queue sets, such as `SentTimestamp`.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.attributes.push((name.into(), text.into()));
        self
    }

    /// A message attribute of the type String, which the sender sets.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    fn wire(&self, source: &str, sent: Timestamp, number: u64, delivery: u32) -> Value {
        let id = self.id.clone().unwrap_or_else(|| unique::uuid(number));
        let sent = sent.as_millis().to_string();
        let receive_count = self.receive_count.saturating_add(delivery.saturating_sub(1));
        let mut attributes: Map<String, Value> = [
            ("ApproximateReceiveCount", receive_count.to_string()),
            ("SentTimestamp", sent.clone()),
            ("SenderId", "AIDACKCEVSQ6C2EXAMPLE".to_owned()),
            ("ApproximateFirstReceiveTimestamp", sent),
        ]
        .into_iter()
        .map(|(name, text)| (name.to_owned(), text.into()))
        .collect();
        let is_fifo = source.ends_with(".fifo");
        if let Some(group) = self.group.as_deref().or(is_fifo.then_some("group")) {
            attributes.insert("MessageGroupId".to_owned(), group.into());
        }
        if is_fifo {
            let digest = Fingerprint::from_bytes(Sha256::digest(&self.body).into());
            attributes.insert("MessageDeduplicationId".to_owned(), digest.to_hex().into());
            attributes.insert("SequenceNumber".to_owned(), format!("188{number:017}").into());
        }
        attributes.extend(parts::object(&self.attributes, |text| text.into()));
        let header = |text: &str| json!({ "stringValue": text, "stringListValues": [], "binaryListValues": [], "dataType": "String" });
        let headers = parts::object(&self.headers, header);
        json!({
            "messageId": id,
            "receiptHandle": format!("{id}/{receive_count}"),
            "body": self.body,
            "attributes": attributes,
            "messageAttributes": headers,
            "eventSource": "aws:sqs",
            "eventSourceARN": source,
            "awsRegion": "us-east-1",
        })
    }
}

impl Batch {
    /// The ARN of the queue. One that ends in `.fifo` is that of a FIFO queue.
    #[must_use]
    pub fn source(mut self, arn: impl Into<String>) -> Self {
        self.source = arn.into();
        self
    }
}

impl Redeliver for Batch {
    type Event = SqsEvent;

    fn delivery(&self, number: u32) -> SqsEvent {
        let wire = |(place, message): &(u64, Message)| message.wire(&self.source, self.sent, *place, number);
        let records: Vec<Value> = self.messages.iter().map(wire).collect();
        parts::event(&json!({ "Records": records }))
    }
}
