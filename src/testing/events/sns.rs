//! Messages of SNS topics, which come to a function one at a time, or by a queue.
//!
//! ```
//! use lambda_once::testing::sns;
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let message = sns::message(&order).subject("shipped").header("tenant", "a");
//! ```

use serde::Serialize;
use serde_json::{Value, json};

use super::parts;
use crate::testing::unique;
use crate::{batch::sns::SnsEvent, testing::Redeliver};

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

    /// The message by which a queue that is subscribed to the topic brings it.
    ///
    /// ```
    /// # #[cfg(feature = "sqs")] {
    /// use lambda_once::testing::{sns, sqs};
    ///
    /// let order = serde_json::json!({ "order_id": "7" });
    /// let batch = sqs::batch([sns::message(&order).in_sqs(), sns::message(&order).in_sqs_raw()]);
    /// # }
    /// ```
    #[cfg(feature = "sqs")]
    #[must_use]
    pub fn in_sqs(&self) -> super::sqs::Message {
        let mut body = self.notification("SigningCertURL", "UnsubscribeURL");
        if self.subject.is_none() {
            body.as_object_mut().map(|body| body.remove("Subject"));
        }
        if self.headers.is_empty() {
            body.as_object_mut().map(|body| body.remove("MessageAttributes"));
        }
        super::sqs::message(&body)
    }

    /// The same with raw message delivery.
    #[cfg(feature = "sqs")]
    #[must_use]
    pub fn in_sqs_raw(&self) -> super::sqs::Message {
        let message = super::sqs::text(&self.text);
        self.headers.iter().fold(message, |message, (name, text)| message.header(name, text))
    }

    /// The notification; in the events of functions its URLs have other names.
    fn notification(&self, certificate_url: &str, unsubscribe_url: &str) -> Value {
        let header = |text: &str| json!({ "Type": "String", "Value": text });
        json!({
            "Type": "Notification",
            "MessageId": self.id,
            "TopicArn": self.source,
            "Subject": self.subject,
            "Message": self.text,
            "Timestamp": self.published,
            "SignatureVersion": "1",
            "Signature": "EXAMPLE",
            certificate_url: "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-example.pem",
            unsubscribe_url: "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
            "MessageAttributes": parts::object(&self.headers, header),
        })
    }
}

impl Redeliver for Message {
    type Event = SnsEvent;

    fn delivery(&self, _: u32) -> SnsEvent {
        parts::event(&json!({ "Records": [{
            "EventVersion": "1.0",
            "EventSubscriptionArn": format!("{}:00000000-0000-4000-8000-000000000000", self.source),
            "EventSource": "aws:sns",
            "Sns": self.notification("SigningCertUrl", "UnsubscribeUrl"),
        }] }))
    }
}
