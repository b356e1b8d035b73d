//! Builds batches of a RabbitMQ broker of Amazon MQ.
//!
//! ```
//! use lambda_once::testing::{self, rabbitmq};
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let batch = rabbitmq::batch([testing::record(&order).id("m-7").header("tenant", "a")]);
//! ```

use serde_json::{Map, Value, json};

use super::{
    parts,
    records::{Batch, Known, Record},
};
use crate::batch::mq::MqEvent;

const KNOWN: Known = Known { attributes: &["queue", "correlationId"], has_ids: true, has_headers: true };

/// Makes a batch of a broker. By default a message has no id, because its publisher sets it. The default `queue`, with
/// its virtual host, is `orders::/`. An event lists its messages by queue, sorted by the queues' names. Every delivery
/// has the same messages, with `redelivered` set from the second one on.
///
/// # Panics
///
/// If an attribute is unknown.
#[track_caller]
pub fn batch(messages: impl IntoIterator<Item = Record>) -> Batch<MqEvent> {
    let messages: Vec<Record> = messages.into_iter().map(|message| message.with_known(KNOWN)).collect();
    Batch::new(parts::BROKER, move |head, delivery| {
        let mut queues: Map<String, Value> = Map::new();
        for message in &messages {
            let queue = message.found("queue").unwrap_or("orders::/");
            if let Value::Array(messages) = queues.entry(queue).or_insert_with(|| json!([])) {
                messages.push(wire(message, delivery));
            }
        }
        parts::event(&json!({
            "eventSource": "aws:rmq",
            "eventSourceArn": head.source,
            "rmqMessagesByQueue": queues,
        }))
    })
}

fn wire(message: &Record, delivery: u32) -> Value {
    // Java's bytes are signed.
    let signed = |bytes: &[u8]| bytes.iter().map(|byte| byte.cast_signed()).collect::<Vec<i8>>();
    json!({
        "basicProperties": {
            "contentType": "application/json",
            "contentEncoding": null,
            "headers": message.written_headers(|bytes| json!({ "bytes": signed(bytes) })),
            "deliveryMode": 2,
            "priority": null,
            "correlationId": message.found("correlationId"),
            "replyTo": null,
            "expiration": null,
            "messageId": message.id,
            "timestamp": null,
            "type": null,
            "userId": null,
            "appId": null,
            "clusterId": null,
            "bodySize": message.data().len(),
        },
        "redelivered": delivery > 1,
        "data": parts::base64(message.data()),
    })
}
