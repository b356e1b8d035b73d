//! The metadata of a record: id, source, attributes and headers.

use std::{any::Any, borrow::Cow, collections::HashMap, fmt, sync::Arc};

use crate::key::delivery::MessageMetadata;

/// The metadata of a record, such as its id, attributes and headers.
#[derive(Clone)]
pub struct RecordInfo {
    id: String,
    source: Option<String>,
    /// Whether the id is unique only within its source.
    is_local: bool,
    receive_count: Option<u32>,
    receipt: Option<String>,
    attributes: Attributes,
    headers: Vec<(Cow<'static, str>, String)>,
    /// Data that few records have.
    extra: Option<Box<Extra>>,
}

#[derive(Clone, Default)]
struct Extra {
    /// The id of the message in its envelope.
    message_id: Option<String>,
    /// The attributes of the message in its envelope.
    attributes: Vec<(Cow<'static, str>, String)>,
    /// Binary headers.
    bytes: Vec<(String, Vec<u8>)>,
    /// The record as received in the event, if it is kept.
    raw: Option<Arc<dyn Any + Send + Sync>>,
}

/// Texts by name, as a map from the source or listed one by one.
#[derive(Clone, Default)]
struct Attributes {
    listed: Vec<(Cow<'static, str>, String)>,
    given: HashMap<String, String>,
}

impl Attributes {
    fn get(&self, name: &str) -> Option<&str> {
        last(&self.listed, name).or_else(|| self.given.get(name).map(String::as_str))
    }
}

/// Returns the last value with this name.
fn last<'a>(listed: &'a [(Cow<'static, str>, String)], name: &str) -> Option<&'a str> {
    listed.iter().rev().find(|(listed, _)| listed == name).map(|(_, text)| &**text)
}

impl RecordInfo {
    /// Creates a record with an id that no other record of any queue or stream has. It must be the same in every
    /// delivery.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            source: None,
            is_local: false,
            receive_count: None,
            receipt: None,
            attributes: Attributes::default(),
            headers: Vec::new(),
            extra: None,
        }
    }

    /// Creates a record with an id that is unique only within its source, such as an offset in a partition. `source`
    /// must also be the same in every delivery.
    pub fn within(source: impl Into<String>, id: impl Into<String>) -> Self {
        Self { source: Some(source.into()), is_local: true, ..Self::new(id) }
    }

    /// Creates a record with an id that is unique only within its source, if the event names that.
    pub(super) fn local(source: Option<String>, id: String) -> Self {
        match source {
            Some(source) => Self::within(source, id),
            None => Self::new(id),
        }
    }

    /// Sets its origin, such as the ARN of a queue or stream. A record made by [`within`](Self::within) keeps its
    /// source.
    #[must_use]
    pub fn with_source(mut self, source: Option<String>) -> Self {
        if !self.is_local {
            self.source = source;
        }
        self
    }

    /// Sets the number of its deliveries so far, including this one.
    #[must_use]
    pub fn with_receive_count(mut self, count: u32) -> Self {
        self.receive_count = Some(count);
        self
    }

    /// Sets the handle of this delivery, for calls to the source about it.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Option<String>) -> Self {
        self.receipt = receipt;
        self
    }

    /// Adds an attribute set by the source. If a name occurs several times, the last one counts.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        self.attributes.listed.push((name.into(), text.into()));
        self
    }

    /// Adds an attribute of the message in the record's envelope. For keys and handlers it replaces the source's
    /// attribute of the same name, which may still identify the record to the source.
    #[must_use]
    pub(super) fn with_inner_attribute(mut self, name: Cow<'static, str>, text: String) -> Self {
        self.extra.get_or_insert_default().attributes.push((name, text));
        self
    }

    /// Sets the attributes set by the source.
    #[must_use]
    #[cfg(feature = "sqs")]
    pub(super) fn with_attributes(mut self, attributes: HashMap<String, String>) -> Self {
        self.attributes.given = attributes;
        self
    }

    /// Adds an attribute or header set by the sender. If a name occurs several times, the last one counts.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    /// Adds a binary attribute or header set by the sender. If a name occurs several times, the last one counts.
    #[must_use]
    pub fn with_header_bytes(mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.extra.get_or_insert_default().bytes.push((name.into(), bytes.into()));
        self
    }

    /// Sets the record as received in the event, for [`raw`](Self::raw).
    #[must_use]
    pub fn with_raw(mut self, record: impl Any + Send + Sync) -> Self {
        self.extra.get_or_insert_default().raw = Some(Arc::new(record));
        self
    }

    /// Sets the id of the message in the record's envelope. No other message of any source has it.
    #[must_use]
    pub fn with_message_id(mut self, id: impl Into<String>) -> Self {
        self.extra.get_or_insert_default().message_id = Some(id.into());
        self
    }

    /// Returns the id that the response to the source and the log use. Empty for a RabbitMQ message whose publisher has
    /// set none.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the id of the message in the record's [envelope](super::envelope), if it has one, or else the record's
    /// id. It is the same in every delivery. Empty for a RabbitMQ message whose publisher has set
    /// none. [`Key::message_id`](crate::Key::message_id) selects it.
    pub fn message_id(&self) -> &str {
        self.inner_id().unwrap_or(&self.id)
    }

    fn inner_id(&self) -> Option<&str> {
        self.extra.as_ref()?.message_id.as_deref()
    }

    /// Returns the record's origin: the ARN of a queue or stream, the bootstrap servers of a self-managed Kafka
    /// cluster, the ARN of a broker with the queue, or the `source` of an event.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Returns the number of deliveries so far, including this one (`ApproximateReceiveCount`), or 1 if the source does
    /// not count them.
    pub fn receive_count(&self) -> u32 {
        self.receive_count.unwrap_or(1)
    }

    /// Returns whether its source counts deliveries.
    pub(super) fn counts_deliveries(&self) -> bool {
        self.receive_count.is_some()
    }

    /// Returns whether this is the last delivery, by the source's count.
    pub(super) fn is_last_of(&self, max_receive_count: u32) -> bool {
        self.receive_count.is_some_and(|count| count >= max_receive_count)
    }

    /// Returns the handle of this delivery for calls to the source, such as the receipt handle of an SQS message.
    pub fn receipt(&self) -> Option<&str> {
        self.receipt.as_deref()
    }

    /// Returns all attributes and headers set by the sender, in no particular order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, text)| (&**name, &**text))
    }

    /// Returns the binary headers, in no particular order.
    pub fn binary_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let bytes = self.extra.as_ref().map_or(&[][..], |extra| &extra.bytes);
        bytes.iter().map(|(name, bytes)| (&**name, &**bytes))
    }

    /// Returns the record as received in the event, if it is kept and has this type. See
    /// [`BatchService::with_raw`](super::BatchService::with_raw).
    pub fn raw<R: Any>(&self) -> Option<&R> {
        self.extra.as_ref()?.raw.as_ref()?.downcast_ref()
    }

    /// Returns an attribute set by the source, such as `SentTimestamp` of an SQS message, or the attribute of this name
    /// that the record's [envelope](super::envelope) has added.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let inner = self.extra.as_ref().and_then(|extra| last(&extra.attributes, name));
        inner.or_else(|| self.source_attribute(name))
    }

    /// Returns an attribute set by the source, regardless of the record's envelope.
    pub(super) fn source_attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)
    }

    /// Returns an attribute or header set by the sender. For SQS, only attributes of the types String and Number.
    pub fn header(&self, name: &str) -> Option<&str> {
        last(&self.headers, name)
    }

    /// Returns the bytes of an attribute or header set by the sender, text or not. Binary values are those of type
    /// Binary in SQS and SNS, and those that are not UTF-8 in Kafka and RabbitMQ.
    pub fn header_bytes(&self, name: &str) -> Option<&[u8]> {
        let text = last(&self.headers, name).map(str::as_bytes);
        let bytes = self.extra.as_ref().map_or(&[][..], |extra| &extra.bytes);
        text.or_else(|| bytes.iter().rev().find(|(listed, _)| listed == name).map(|(_, bytes)| &**bytes))
    }
}

/// Shows no headers, because they may contain the sender's data.
impl fmt::Debug for RecordInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordInfo")
            .field("id", &self.id)
            .field("source", &self.source)
            .field("receive_count", &self.receive_count())
            .finish_non_exhaustive()
    }
}

impl MessageMetadata for RecordInfo {
    fn message_id(&self) -> Option<&str> {
        Some(self.message_id())
    }

    fn id_namespace(&self) -> Option<&str> {
        self.source.as_deref().filter(|_| self.is_local && self.inner_id().is_none())
    }

    fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attribute(name)
    }

    fn header(&self, name: &str) -> Option<&str> {
        last(&self.headers, name)
    }

    fn header_bytes(&self, name: &str) -> Option<&[u8]> {
        self.header_bytes(name)
    }
}
