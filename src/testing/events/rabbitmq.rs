//! Batches of a RabbitMQ broker of Amazon MQ.
//!
//! ```
//! use lambda_once::testing::rabbitmq;
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let batch = rabbitmq::batch([rabbitmq::message(&order).id("m-7").header("tenant", "a")]);
//! ```

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::parts;
use crate::{batch::mq::MqEvent, testing::Redeliver};

/// A message, before a broker has it.
#[derive(Clone, Debug)]
pub struct Message {
    data: Vec<u8>,
    id: Option<String>,
    queue: String,
    correlation_id: Option<String>,
    headers: Vec<(String, String)>,
}

/// A batch of a broker. Every delivery has the same messages, `redelivered` from the second one on.
#[derive(Clone, Debug)]
pub struct Batch {
    source: String,
    messages: Vec<Message>,
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
    Message { data: data.into(), id: None, queue: "orders::/".to_owned(), correlation_id: None, headers: Vec::new() }
}

/// Messages of a broker. An event has them by queue, in the order of the queues' names.
pub fn batch(messages: impl IntoIterator<Item = Message>) -> Batch {
    Batch { source: parts::BROKER.to_owned(), messages: messages.into_iter().collect() }
}

impl Message {
    /// Its id. Default: none, as it is the publisher who sets one, and not the broker.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Its queue and its virtual host. Default: `orders::/`.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Its correlation id. Default: none.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// A header that its publisher sets.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    fn wire(&self, delivery: u32) -> Value {
        // Java's bytes are signed.
        let bytes = |text: &str| text.bytes().map(|byte| byte.cast_signed()).collect::<Vec<i8>>();
        let headers = parts::object(&self.headers, |text| json!({ "bytes": bytes(text) }));
        json!({
            "basicProperties": {
                "contentType": "application/json",
                "contentEncoding": null,
                "headers": headers,
                "deliveryMode": 2,
                "priority": null,
                "correlationId": self.correlation_id,
                "replyTo": null,
                "expiration": null,
                "messageId": self.id,
                "timestamp": null,
                "type": null,
                "userId": null,
                "appId": null,
                "clusterId": null,
                "bodySize": self.data.len(),
            },
            "redelivered": delivery > 1,
            "data": parts::base64(&self.data),
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
        let mut queues: Map<String, Value> = Map::new();
        for message in &self.messages {
            if let Value::Array(messages) = queues.entry(&message.queue).or_insert_with(|| json!([])) {
                messages.push(message.wire(number));
            }
        }
        parts::event(&json!({
            "eventSource": "aws:rmq",
            "eventSourceArn": self.source,
            "rmqMessagesByQueue": queues,
        }))
    }
}
