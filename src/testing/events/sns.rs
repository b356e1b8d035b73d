//! Messages of SNS topics, which come one at a time.
//!
//! ```
//! use lambda_once::testing::sns;
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let message = sns::message(&order).subject("shipped").header("tenant", "a");
//! ```

use serde::Serialize;
use serde_json::json;

use super::parts;
use crate::{
    batch::sns::SnsEvent,
    testing::{Redeliver, unique},
};

/// A message. Every delivery is the same.
#[derive(Clone, Debug)]
pub struct Message {
    text: String,
    id: String,
    source: String,
    subject: Option<String>,
    published: String,
    headers: Vec<(String, String)>,
}

/// A message that is this, in JSON. It is published now, and has an id of its own.
///
/// # Panics
///
/// If it cannot be JSON.
pub fn message<T: Serialize + ?Sized>(message: &T) -> Message {
    text(parts::json(message))
}

/// A message with this text. It is published now, and has an id of its own.
pub fn text(message: impl Into<String>) -> Message {
    Message {
        text: message.into(),
        id: unique::uuid(unique::number()),
        source: "arn:aws:sns:us-east-1:123456789012:orders".to_owned(),
        subject: None,
        published: parts::rfc3339(parts::now()),
        headers: Vec::new(),
    }
}

impl Message {
    /// Its id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// The ARN of the topic.
    #[must_use]
    pub fn source(mut self, arn: impl Into<String>) -> Self {
        self.source = arn.into();
        self
    }

    /// Its subject. Default: none.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// When it was published, as RFC 3339 writes it.
    #[must_use]
    pub fn timestamp(mut self, time: impl Into<String>) -> Self {
        self.published = time.into();
        self
    }

    /// A message attribute of the type String.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }
}

impl Redeliver for Message {
    type Event = SnsEvent;

    fn delivery(&self, _: u32) -> SnsEvent {
        let header = |text: &str| json!({ "Type": "String", "Value": text });
        let headers = parts::object(&self.headers, header);
        parts::event(&json!({ "Records": [{
            "EventVersion": "1.0",
            "EventSubscriptionArn": format!("{}:00000000-0000-4000-8000-000000000000", self.source),
            "EventSource": "aws:sns",
            "Sns": {
                "Type": "Notification",
                "MessageId": self.id,
                "TopicArn": self.source,
                "Subject": self.subject,
                "Message": self.text,
                "Timestamp": self.published,
                "SignatureVersion": "1",
                "Signature": "EXAMPLE",
                "SigningCertUrl": "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-example.pem",
                "UnsubscribeUrl": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
                "MessageAttributes": headers,
            },
        }] }))
    }
}
