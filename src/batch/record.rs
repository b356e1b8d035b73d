//! The metadata of a record: id, source, attributes, headers.

use std::{any::Any, borrow::Cow, collections::HashMap, fmt, sync::Arc};

use crate::key::delivery::MessageMetadata;

/// What a source says of a record: its id, and what stands on its outside.
#[derive(Clone)]
pub struct RecordInfo {
    id: String,
    source: Option<String>,
    /// Whether the id is unique within its source only.
    is_local: bool,
    receive_count: Option<u32>,
    receipt: Option<String>,
    attributes: Attributes,
    headers: Vec<(Cow<'static, str>, String)>,
    /// What few records have.
    extra: Option<Box<Extra>>,
}

#[derive(Clone, Default)]
struct Extra {
    /// The id of the message in its envelope.
    message_id: Option<String>,
    /// Headers that are not texts.
    bytes: Vec<(String, Vec<u8>)>,
    /// The record as the event has it, where that is kept.
    raw: Option<Arc<dyn Any + Send + Sync>>,
}

/// Texts by name: as a source gives them, or listed one by one.
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

/// Of several with one name the last counts.
fn last<'a>(listed: &'a [(Cow<'static, str>, String)], name: &str) -> Option<&'a str> {
    listed.iter().rev().find(|(listed, _)| listed == name).map(|(_, text)| &**text)
}

impl RecordInfo {
    /// A record with an id that no other record has, whatever queue or stream it comes from. It must be the same in every
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

    /// A record with an id that is unique within its source only, such as an offset in a partition. `source` must be the same
    /// in every delivery too.
    pub fn within(source: impl Into<String>, id: impl Into<String>) -> Self {
        Self { source: Some(source.into()), is_local: true, ..Self::new(id) }
    }

    /// A record with an id that is unique within its source only, and this source, if the event names it.
    pub(super) fn local(source: Option<String>, id: String) -> Self {
        match source {
            Some(source) => Self::within(source, id),
            None => Self::new(id),
        }
    }

    /// Where it comes from: the ARN of a queue or a stream. A record that was made by [`within`](Self::within) has that as its
    /// source, and keeps it.
    #[must_use]
    pub fn with_source(mut self, source: Option<String>) -> Self {
        if !self.is_local {
            self.source = source;
        }
        self
    }

    /// How often it has been delivered, this delivery included.
    #[must_use]
    pub fn with_receive_count(mut self, count: u32) -> Self {
        self.receive_count = Some(count);
        self
    }

    /// The handle of this delivery, for calls to the source about it.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Option<String>) -> Self {
        self.receipt = receipt;
        self
    }

    /// An attribute that the source has set. Of several with one name the last counts.
    #[must_use]
    pub fn with_attribute(mut self, name: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        self.attributes.listed.push((name.into(), text.into()));
        self
    }

    /// Attributes that the source has set.
    #[must_use]
    #[cfg(feature = "sqs")]
    pub(super) fn with_attributes(mut self, attributes: HashMap<String, String>) -> Self {
        self.attributes.given = attributes;
        self
    }

    /// An attribute or a header that the sender has set. Of several with one name the last counts.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<Cow<'static, str>>, text: impl Into<String>) -> Self {
        self.headers.push((name.into(), text.into()));
        self
    }

    /// An attribute or a header that the sender has set, and that is not a text. Of several with one name the last counts.
    #[must_use]
    pub fn with_header_bytes(mut self, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.extra.get_or_insert_default().bytes.push((name.into(), bytes.into()));
        self
    }

    /// The record as the event has it, for [`raw`](Self::raw).
    #[must_use]
    pub fn with_raw(mut self, record: impl Any + Send + Sync) -> Self {
        self.extra.get_or_insert_default().raw = Some(Arc::new(record));
        self
    }

    /// The id of the message in the record's envelope. No other message has it, wherever it comes from.
    #[must_use]
    pub fn with_message_id(mut self, id: impl Into<String>) -> Self {
        self.extra.get_or_insert_default().message_id = Some(id.into());
        self
    }

    /// The id by which the source's answer and the log name the record; empty for a RabbitMQ message whose publisher has set none.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the id of the message: that of the one in the record's [envelope](super::envelope), if it had one with an id, else
    /// the record's own. The same in every delivery. Empty for a RabbitMQ message whose publisher has set none.
    /// [`Key::message_id`](crate::Key::message_id) selects it.
    pub fn message_id(&self) -> &str {
        self.inner_id().unwrap_or(&self.id)
    }

    fn inner_id(&self) -> Option<&str> {
        self.extra.as_ref()?.message_id.as_deref()
    }

    /// Returns where it comes from: the ARN of the queue or the stream; of a self-managed Kafka cluster its bootstrap servers; of a
    /// broker its ARN and the queue; of an event its `source`.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Returns how often it has been delivered, this delivery included (`ApproximateReceiveCount`); 1 if the source does not say.
    pub fn receive_count(&self) -> u32 {
        self.receive_count.unwrap_or(1)
    }

    /// Whether its source says how often it has been delivered.
    pub(super) fn counts_deliveries(&self) -> bool {
        self.receive_count.is_some()
    }

    /// Whether no delivery follows this one, by the source's own count.
    pub(super) fn is_last_of(&self, max_receive_count: u32) -> bool {
        self.receive_count.is_some_and(|count| count >= max_receive_count)
    }

    /// The handle of this delivery, for calls to the source about it: the receipt handle of a message in SQS.
    pub fn receipt(&self) -> Option<&str> {
        self.receipt.as_deref()
    }

    /// All attributes and headers that the sender has set, in no particular order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, text)| (&**name, &**text))
    }

    /// The headers that are not texts, in no particular order.
    pub fn binary_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let bytes = self.extra.as_ref().map_or(&[][..], |extra| &extra.bytes);
        bytes.iter().map(|(name, bytes)| (&**name, &**bytes))
    }

    /// The record as the event has it, if it is kept and of this type: see
    /// [`BatchService::with_raw`](super::BatchService::with_raw).
    pub fn raw<R: Any>(&self) -> Option<&R> {
        self.extra.as_ref()?.raw.as_ref()?.downcast_ref()
    }

    /// Returns an attribute that the source has set, such as `SentTimestamp` of a message in SQS.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)
    }

    /// Returns an attribute or a header that the sender has set. Of an SQS message those of the types String and Number.
    pub fn header(&self, name: &str) -> Option<&str> {
        last(&self.headers, name)
    }

    /// The bytes of an attribute or a header that the sender has set, whether they are a text or not: of the type Binary in SQS
    /// and SNS, not UTF-8 in Kafka and RabbitMQ.
    pub fn header_bytes(&self, name: &str) -> Option<&[u8]> {
        let text = last(&self.headers, name).map(str::as_bytes);
        let bytes = self.extra.as_ref().map_or(&[][..], |extra| &extra.bytes);
        text.or_else(|| bytes.iter().rev().find(|(listed, _)| listed == name).map(|(_, bytes)| &**bytes))
    }
}

/// Shows no headers: they are the sender's.
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
        self.attributes.get(name)
    }

    fn header(&self, name: &str) -> Option<&str> {
        last(&self.headers, name)
    }

    fn header_bytes(&self, name: &str) -> Option<&[u8]> {
        self.header_bytes(name)
    }
}
