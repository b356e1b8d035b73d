//! Builds batches of an ActiveMQ broker of Amazon MQ.
//!
//! ```
//! use lambda_once::testing::{self, activemq};
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let batch = activemq::batch([testing::record(&order).attribute("queue", "orders").header("tenant", "a")]);
//! ```

use serde_json::{Value, json};

use super::{
    parts,
    records::{Batch, Known, Record, text},
};
use crate::{batch::mq::MqEvent, clock::Timestamp, testing::unique};

const KNOWN: Known = Known { attributes: &["queue", "correlationId"], has_ids: true, has_headers: true };

/// Makes a batch of a broker, sent now. Each message without an id gets a unique one. The default queue is `orders`.
/// Every delivery has the same messages, with `redelivered` set from the second one on.
///
/// # Panics
///
/// If an attribute is unknown, or a header is not UTF-8.
#[track_caller]
pub fn batch(messages: impl IntoIterator<Item = Record>) -> Batch<MqEvent> {
    let sent = parts::now();
    let messages: Vec<(u64, Record)> =
        messages.into_iter().map(|message| (unique::number(), message.with_known(KNOWN))).collect();
    Batch::new(parts::BROKER, move |head, delivery| {
        let wire = |(number, message): &(u64, Record)| wire(message, sent, *number, delivery);
        let messages: Vec<Value> = messages.iter().map(wire).collect();
        parts::event(&json!({ "eventSource": "aws:mq", "eventSourceArn": head.source, "messages": messages }))
    })
}

fn wire(message: &Record, sent: Timestamp, number: u64, delivery: u32) -> Value {
    let drawn = || format!("ID:orders-1.mq.us-east-1.amazonaws.com-34859-1598944546501-4:12:1:1:{number}");
    json!({
        "messageID": message.id.clone().unwrap_or_else(drawn),
        "messageType": "jms/bytes-message",
        "timestamp": sent.as_millis(),
        "deliveryMode": 1,
        "correlationID": message.found("correlationId").unwrap_or_default(),
        "replyTo": "null",
        "destination": { "physicalName": message.found("queue").unwrap_or("orders") },
        "redelivered": delivery > 1,
        "type": "",
        "expiration": 0,
        "priority": 0,
        "data": parts::base64(message.data()),
        "brokerInTime": sent.as_millis(),
        "brokerOutTime": sent.as_millis(),
        "properties": message.written_headers(|bytes| text(bytes, "a property").into()),
    })
}
