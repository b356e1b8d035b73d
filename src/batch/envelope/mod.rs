//! Unwraps messages that AWS services deliver in an envelope: SNS, EventBridge and S3.
//!
//! ```
//! use lambda_once::{Failure, Key, batch::envelope::Sns, testing};
//!
//! #[derive(serde::Deserialize)]
//! struct Order { order_id: String }
//!
//! async fn book(order: Order) -> Result<(), Failure> {
//!     Ok(())
//! }
//!
//! // The queue is subscribed to a topic.
//! let service = testing::engine().sqs(Key::pointer("/order_id"), book).envelope(Sns);
//! ```
//!
//! [`BatchService::envelope`](super::BatchService::envelope) sets the envelope of a service's records. Keys, payloads,
//! the handler's type, attributes and headers then come from the message inside. A message that is sent again is
//! replayed even though the ids, timestamps and signatures around it differ.
//!
//! | records | service |
//! |---|---|
//! | SNS → SQS, with and without raw message delivery | `once.sqs(key, handler).envelope(Sns)` |
//! | EventBridge → SQS | `once.sqs(key, handler).envelope(EventBridge)` |
//! | S3 → SQS | `once.sqs(key, handler).envelope(S3)` |
//! | S3 → SNS → SQS | `once.sqs(key, handler).envelope((Sns, S3))` |
//! | EventBridge → SNS → SQS | `once.sqs(key, handler).envelope((Sns, EventBridge))` |
//! | S3 → SNS → Lambda | `once.sns(key, handler).envelope(S3)` |
//! | EventBridge → SNS → Lambda | `once.sns(key, handler).envelope(EventBridge)` |
//!
//! An S3 event that arrives through EventBridge is an EventBridge event, and its detail is an [`S3Detail`].
//!
//! # Rules
//!
//! 1. [`Key::message_id`](crate::Key::message_id) and [`RecordInfo::message_id`](super::RecordInfo::message_id) are the
//!    id inside: SNS's `MessageId`, EventBridge's `id`, or the fields that identify an S3 event. [`RecordInfo::id`]
//!    remains the id of the record around it, which the response, the log and the reports use.
//! 2. An envelope with several messages makes several records, each with its own key, claim and outcome, in their
//!    order. The message around them is reported once if any of them fails. On redelivery, those that are done are
//!    replayed.
//! 3. In a FIFO queue the message group determines the order. A failure also blocks later messages in the same
//!    envelope.
//! 4. A malformed envelope permanently fails only its own record ([`ErrorKind::Payload`](crate::ErrorKind::Payload)).
//!    The error states how to fix it, and contains nothing of the payload. An envelope with several messages is
//!    malformed if one of them has no id, or if two with different payloads have the same id. Two with the same id and
//!    the same payload are duplicates: the first runs, and the second gets its outcome.
//! 5. An ignored message (`s3:TestEvent`) is acknowledged, and its outcome is [`Ignored`](crate::OutcomeKind::Ignored).
//! 6. A dead-letter queue gets the record with its envelope, so that it can be redriven. Messages of an envelope with
//!    several are sent one by one, each in an envelope of the same kind.

use std::{borrow::Cow, error::Error, fmt};

mod eventbridge;
mod nested;
mod s3;
mod s3_detail;
mod s3_record;
mod s3_sequencer;
mod sns;
mod unwrapped;

pub use eventbridge::EventBridge;
pub(super) use eventbridge::unquoted;
pub use s3::S3;
pub use s3_detail::S3Detail;
pub use s3_record::S3Record;
pub(super) use sns::Attribute;
pub use sns::Sns;
pub(super) use unwrapped::NothingInside;

#[allow(unused_imports, reason = "for the documentation above")]
use super::RecordInfo;

/// A format in which messages are wrapped. [The module](self) lists the formats of AWS. A pair nests the second in the
/// first.
///
/// ```
/// use lambda_once::batch::envelope::{Content, Envelope, EnvelopeError, Message};
/// use serde_json::value::RawValue;
///
/// /// Structured CloudEvents: <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>
/// #[derive(Clone, Debug)]
/// struct CloudEvents;
///
/// #[derive(serde::Deserialize)]
/// struct CloudEvent { id: String, source: String, r#type: String, data: Box<RawValue> }
///
/// impl Envelope for CloudEvents {
///     fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
///         let event: CloudEvent = serde_json::from_slice(body)
///             .map_err(|_| EnvelopeError::new("the body is not a CloudEvent with data in JSON"))?;
///         let message = Message::new(event.data.get())
///             .with_id(format!("{} {}", event.source, event.id))
///             .with_attribute("type", event.r#type);
///         Ok(Content::Messages(vec![message]))
///     }
/// }
/// # let event = br#"{"specversion":"1.0","id":"1","source":"/orders","type":"placed","data":{"order_id":"7"}}"#;
/// # assert!(matches!(CloudEvents.open(event), Ok(Content::Messages(messages)) if messages.len() == 1));
/// ```
pub trait Envelope: Clone + fmt::Debug + Send + Sync + 'static {
    /// Takes the messages out of a record's body. If it panics, the record is reported, under every policy.
    ///
    /// # Errors
    ///
    /// If the body is not in this envelope, or the envelope is malformed. No retry can help.
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError>;
}

/// The contents of a record's body.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Content {
    /// The message itself, without an envelope.
    Bare,
    /// No message. The record is acknowledged, and its outcome is [`Ignored`](crate::OutcomeKind::Ignored).
    Nothing,
    /// Messages in an envelope. An empty list is the same as [`Nothing`](Content::Nothing). If there are several, each
    /// needs an id, and two with the same id must be duplicates. Otherwise the record is malformed, and none of them
    /// runs.
    Messages(Vec<Message>),
}

/// A message from an envelope.
#[derive(Clone)]
pub struct Message {
    body: String,
    /// The text that keys are selected from and payloads compared by, if that is not the body.
    compared: Option<String>,
    id: Option<String>,
    attributes: Vec<(Cow<'static, str>, String)>,
    headers: Vec<(String, String)>,
    /// Binary headers.
    binary_headers: Vec<(String, Vec<u8>)>,
    /// Wraps the message in a new envelope.
    rewrap: Option<fn(&str) -> String>,
}

impl Message {
    /// Creates a message with this body.
    pub fn new(body: impl Into<String>) -> Self {
        Self {
            body: body.into(),
            compared: None,
            id: None,
            attributes: Vec::new(),
            headers: Vec::new(),
            binary_headers: Vec::new(),
            rewrap: None,
        }
    }

    /// Sets the id. No other message from any source may have it, except a duplicate.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the text that keys are selected from and payloads are compared by. Default: the body.
    #[must_use]
    pub fn compared_by(mut self, payload: impl Into<String>) -> Self {
        self.compared = Some(payload.into());
        self
    }

    /// Adds an attribute to the attributes of the record around it. It replaces one of the same name for keys and
    /// handlers, but not in responses and calls to the source, which identify the record by the source's attributes.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        self.attributes.push((name.into(), text.into()));
        self
    }

    /// Adds a header to the headers of the record around it.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    /// Adds a binary header to the headers of the record around it.
    #[must_use]
    pub fn with_header_bytes(mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.binary_headers.push((name.into(), bytes.into()));
        self
    }

    /// Sets the function that wraps the body again for a dead-letter queue. It is called if the envelope holds several
    /// messages. If it panics, the record is reported. Default: the body is sent unwrapped.
    #[must_use]
    pub fn rewrapped_by(mut self, rewrap: fn(&str) -> String) -> Self {
        self.rewrap = Some(rewrap);
        self
    }

    /// Adds an attribute if there is a text.
    fn with_some(self, name: &'static str, text: Option<String>) -> Self {
        match text {
            Some(text) => self.with_attribute(name, text),
            None => self,
        }
    }
}

/// Shows no payload.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// The reason why no message could be taken out of a body. Its text is logged and sent to dead-letter queues, so it
/// must contain nothing of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeError(Cow<'static, str>);

impl EnvelopeError {
    /// Creates an error whose message states the problem and how to fix it.
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for EnvelopeError {}
