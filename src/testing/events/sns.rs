//! Builds messages of SNS topics, for a function or a queue.
//!
//! ```
//! use lambda_once::testing::{self, sns};
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let event = sns::event(testing::record(&order).attribute("Subject", "shipped").header("tenant", "a"));
//! ```

use serde_json::{Value, json};

use super::{
    parts,
    records::{Batch, Known, Record},
};
use crate::{batch::sns::SnsEvent, testing::unique};

const KNOWN: Known = Known { attributes: &["TopicArn", "Subject", "Timestamp"], has_ids: true, has_headers: true };
const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:orders";

/// Makes an SNS event with this message, as delivered to a function. By default it has the current time, a unique id
/// and no subject. Every delivery is the same.
///
/// # Panics
///
/// If an attribute is unknown, or the body is not UTF-8.
#[track_caller]
pub fn event(message: Record) -> Batch<SnsEvent> {
    let message = message.with_known(KNOWN);
    let topic = message.found("TopicArn").unwrap_or(TOPIC).to_owned();
    Batch::new(topic, move |head, _| {
        parts::event(&json!({ "Records": [{
            "EventVersion": "1.0",
            "EventSubscriptionArn": format!("{}:00000000-0000-4000-8000-000000000000", head.source),
            "EventSource": "aws:sns",
            "Sns": notification(&message, &head.source, "SigningCertUrl", "UnsubscribeUrl"),
        }] }))
    })
}

/// Makes the message as delivered to a queue that is subscribed to the topic.
///
/// ```
/// use lambda_once::testing::{self, sns, sqs};
///
/// let order = testing::record(&serde_json::json!({ "order_id": "7" }));
/// let batch = sqs::batch([sns::in_sqs(&order), sns::in_sqs_raw(&order)]);
/// ```
///
/// # Panics
///
/// As for [`event`].
#[cfg(feature = "sqs")]
#[track_caller]
pub fn in_sqs(message: &Record) -> Record {
    let message = message.clone().with_known(KNOWN);
    let topic = message.found("TopicArn").unwrap_or(TOPIC);
    let mut body = notification(&message, topic, "SigningCertURL", "UnsubscribeURL");
    if body["Subject"].is_null() {
        body.as_object_mut().map(|body| body.remove("Subject"));
    }
    if message.headers.is_empty() {
        body.as_object_mut().map(|body| body.remove("MessageAttributes"));
    }
    super::records::record(&body)
}

/// Makes the message as delivered to a queue with raw message delivery.
#[cfg(feature = "sqs")]
pub fn in_sqs_raw(message: &Record) -> Record {
    Record { headers: message.headers.clone(), ..super::records::bytes(message.data()) }
}

/// Builds the notification. The names of its URLs differ in the events of functions.
fn notification(message: &Record, topic: &str, certificate_url: &str, unsubscribe_url: &str) -> Value {
    let headers = message.written_headers(|bytes| match str::from_utf8(bytes) {
        Ok(text) => json!({ "Type": "String", "Value": text }),
        Err(_) => json!({ "Type": "Binary", "Value": parts::base64(bytes) }),
    });
    json!({
        "Type": "Notification",
        "MessageId": message.id.clone().unwrap_or_else(|| unique::uuid(message.number)),
        "TopicArn": topic,
        "Subject": message.found("Subject").or(message.subject),
        "Message": message.text(),
        "Timestamp": message.found("Timestamp").map_or_else(|| parts::rfc3339(message.created), str::to_owned),
        "SignatureVersion": "1",
        "Signature": "EXAMPLE",
        certificate_url: "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-example.pem",
        unsubscribe_url: "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
        "MessageAttributes": headers,
    })
}
