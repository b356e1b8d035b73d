//! Batches of an ActiveMQ broker of Amazon MQ.
//!
//! ```
//! use lambda_once::testing::activemq;
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let batch = activemq::batch([activemq::message(&order).queue("orders").header("tenant", "a")]);
//! ```

use serde::Serialize;
use serde_json::{Value, json};

use super::parts;
use crate::{
    batch::mq::MqEvent,
    clock::Timestamp,
    testing::{Redeliver, unique},
};

/// A message, before a broker has it.
#[derive(Clone, Debug)]
pub struct Message {
    data: Vec<u8>,
    id: Option<String>,
    queue: String,
    correlation_id: String,
    headers: Vec<(String, String)>,
}

/// A batch of a broker. Every delivery has the same messages, `redelivered` from the second one on.
#[derive(Clone, Debug)]
pub struct Batch {
    source: String,
    sent: Timestamp,
    /// Each with a number of its own.
    messages: Vec<(u64, Message)>,
}

/// A message whose data is this, in JSON.
///
/// # Panics
///
/// If it cannot be JSON.
pub fn message<T: Serialize + ?Sized>(data: &T) -> Message {
    bytes(parts::json(data))
}

/// A message with this data.
pub fn bytes(data: impl Into<Vec<u8>>) -> Message {
    Message {
        data: data.into(),
        id: None,
        queue: "orders".to_owned(),
        correlation_id: String::new(),
        headers: Vec::new(),
    }
}

/// Messages of a broker, sent now. Each that has no id gets one of its own.
pub fn batch(messages: impl IntoIterator<Item = Message>) -> Batch {
    Batch {
        source: parts::BROKER.to_owned(),
        sent: parts::now(),
        messages: messages.into_iter().map(|message| (unique::number(), message)).collect(),
    }
}

impl Message {
    /// Its id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Its queue. Default: `orders`.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Its correlation id. Default: none.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = id.into();
        self
    }

    /// A property that its sender sets.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    fn wire(&self, sent: Timestamp, number: u64, delivery: u32) -> Value {
        let properties = parts::object(&self.headers, |text| text.into());
        let drawn = || format!("ID:orders-1.mq.us-east-1.amazonaws.com-34859-1598944546501-4:12:1:1:{number}");
        json!({
            "messageID": self.id.clone().unwrap_or_else(drawn),
            "messageType": "jms/bytes-message",
            "timestamp": sent.as_millis(),
            "deliveryMode": 1,
            "correlationID": self.correlation_id,
            "replyTo": "null",
            "destination": { "physicalName": self.queue },
            "redelivered": delivery > 1,
            "type": "",
            "expiration": 0,
            "priority": 0,
            "data": parts::base64(&self.data),
            "brokerInTime": sent.as_millis(),
            "brokerOutTime": sent.as_millis(),
            "properties": properties,
        })
    }
}

impl Batch {
    /// The ARN of the broker.
    #[must_use]
    pub fn source(mut self, arn: impl Into<String>) -> Self {
        self.source = arn.into();
        self
    }
}

impl Redeliver for Batch {
    type Event = MqEvent;

    fn delivery(&self, number: u32) -> MqEvent {
        let wire = |(place, message): &(u64, Message)| message.wire(self.sent, *place, number);
        let messages: Vec<Value> = self.messages.iter().map(wire).collect();
        parts::event(&json!({ "eventSource": "aws:mq", "eventSourceArn": self.source, "messages": messages }))
    }
}
