//! Records for any source, and batches of them.

use std::{fmt, sync::Arc};

use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};

#[cfg(feature = "dynamodb-streams")]
use super::dynamodb::{Change, View};
use super::parts;
use crate::{
    clock::Timestamp,
    testing::{Redeliver, unique},
};

/// A record or message for any source.
///
/// Attributes are set by the source. Their names are the same as in [`Key::attribute`](crate::Key::attribute) and
/// [`RecordInfo::attribute`](crate::batch::RecordInfo::attribute).
///
/// ```
/// # #[cfg(feature = "sqs")] {
/// use lambda_once::testing::{self, kafka, kinesis, sqs};
///
/// let order = serde_json::json!({ "order_id": "7" });
/// let queue = sqs::fifo([testing::record(&order).id("m-7").attribute("MessageGroupId", "customer 1")]);
/// let stream = kinesis::batch([testing::record(&order).attribute("partitionKey", "customer 1")]);
/// let topic = kafka::batch([testing::record(&order).attribute("key", "7").attribute("partition", 1).header("tenant", "a")]);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Record {
    /// Unique to this record and its copies.
    pub(super) number: u64,
    pub(super) created: Timestamp,
    pub(super) body: Option<Vec<u8>>,
    pub(super) id: Option<String>,
    pub(super) attributes: Vec<(String, String)>,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    /// The default subject of a message in a topic.
    pub(super) subject: Option<&'static str>,
    /// The change of a record of a DynamoDB stream, instead of a body.
    #[cfg(feature = "dynamodb-streams")]
    pub(super) change: Option<Box<Change>>,
}

/// Makes a record with this body in JSON.
///
/// # Panics
///
/// If it cannot be serialized as JSON.
pub fn record<T: Serialize + ?Sized>(body: &T) -> Record {
    bytes(parts::json(body))
}

/// Makes a record with this body.
pub fn bytes(body: impl Into<Vec<u8>>) -> Record {
    Record::new(Some(body.into()))
}

impl Record {
    pub(super) fn new(body: Option<Vec<u8>>) -> Self {
        Self {
            number: unique::number(),
            created: parts::now(),
            body,
            id: None,
            attributes: Vec::new(),
            headers: Vec::new(),
            subject: None,
            #[cfg(feature = "dynamodb-streams")]
            change: None,
        }
    }

    /// Sets the id, if its source assigns ids. By default it is unique, or missing in RabbitMQ.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets an attribute of the source.
    ///
    /// For SQS these are its system attributes, such as `MessageGroupId`. `ApproximateReceiveCount` is the
    /// count of the first delivery. For an unknown name the source panics with a list of the known ones.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.attributes.push((name.into(), value.to_string()));
        self
    }

    /// Sets a header, attribute or property of the sender. It is text if the value is UTF-8.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Checks that it sets only parts that its source has.
    #[track_caller]
    pub(super) fn with_known(self, known: Known) -> Self {
        for (name, _) in &self.attributes {
            let attributes = known.attributes;
            assert!(attributes.contains(&&**name), "this source sets no attribute `{name}`, but {attributes:?}");
        }
        assert!(known.has_ids || self.id.is_none(), "in this source the id of a record follows from its place");
        assert!(known.has_headers || self.headers.is_empty(), "the records of this source have no headers");
        self
    }

    pub(super) fn found(&self, name: &str) -> Option<&str> {
        self.attributes.iter().rev().find(|(listed, _)| listed == name).map(|(_, value)| &**value)
    }

    pub(super) fn body(&self) -> Option<&[u8]> {
        self.body.as_deref()
    }

    /// Returns the body, for a source whose records always have one.
    pub(super) fn data(&self) -> &[u8] {
        self.body().unwrap_or_else(|| panic!("only Kafka has records without a value"))
    }

    /// Returns the body, for a source whose bodies are text.
    pub(super) fn text(&self) -> &str {
        text(self.data(), "the body")
    }

    /// Returns the headers, with their values converted by this function.
    pub(super) fn written_headers(&self, value: impl Fn(&[u8]) -> Value) -> Map<String, Value> {
        self.headers.iter().map(|(name, bytes)| (name.clone(), value(bytes))).collect()
    }
}

/// The parts of a record that a source has.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) attributes: &'static [&'static str],
    pub(super) has_ids: bool,
    pub(super) has_headers: bool,
}

/// Converts bytes to text.
pub(super) fn text<'a>(bytes: &'a [u8], what: &str) -> &'a str {
    str::from_utf8(bytes).unwrap_or_else(|_| panic!("{what} must be UTF-8 in this source"))
}

/// An event of a source for several deliveries, with the same records and the source's changes to them, such as the
/// receive count.
#[derive(Clone)]
pub struct Batch<E> {
    pub(super) head: Head,
    deliver: Arc<Deliver<E>>,
}

/// A function that makes the event of a delivery by its number.
type Deliver<E> = dyn Fn(&Head, u32) -> E + Send + Sync;

/// The parts of an event besides its records.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) source: String,
    pub(super) state: Option<Box<RawValue>>,
    #[cfg(feature = "dynamodb-streams")]
    pub(super) view: View,
}

impl<E> Batch<E> {
    pub(super) fn new(source: impl Into<String>, deliver: impl Fn(&Head, u32) -> E + Send + Sync + 'static) -> Self {
        let head = Head {
            source: source.into(),
            state: None,
            #[cfg(feature = "dynamodb-streams")]
            view: View::default(),
        };
        Self { head, deliver: Arc::new(deliver) }
    }

    /// Sets the source: the ARN of a queue (FIFO if it ends in `.fifo`), stream, topic, cluster or broker, the
    /// bootstrap servers of a self-managed Kafka cluster, or the `source` of an EventBridge event.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.head.source = source.into();
        self
    }

    pub(super) fn with_state<T: Serialize + ?Sized>(mut self, state: &T) -> Self {
        self.head.state = Some(parts::raw(state));
        self
    }
}

impl<E> Redeliver for Batch<E> {
    type Event = E;

    fn delivery(&self, number: u32) -> E {
        (self.deliver)(&self.head, number)
    }
}

impl<E> fmt::Debug for Batch<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("source", &self.head.source).finish_non_exhaustive()
    }
}
