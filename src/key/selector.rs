//! Selects the key of an operation from a delivery.

use std::{any::TypeId, borrow::Cow, fmt, sync::Arc};

#[cfg(feature = "jmespath")]
use super::expression::Expression;
use super::{
    delivery::Delivery,
    json_text::{MAX_STEPS, json_in},
    missing::{is_empty, is_missing, missing_path},
    pointer::{Pointer, find},
    text::write_string,
};
use crate::error::{BoxError, Error};
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
use crate::{key::text::text, panics::catch_panic, record::stored_text};

type Closure = dyn Fn(&Delivery<'_>) -> Result<Option<String>, BoxError> + Send + Sync;

/// Selects the key of an operation from a delivery.
///
/// ```
/// use lambda_once::Key;
///
/// // One order is one operation, however often and in how many messages it is sent.
/// let key = Key::pointer("/order_id");
/// // Order ids are unique within a customer only.
/// let key = Key::composite([Key::pointer("/customer_id"), Key::pointer("/order_id")]);
/// ```
#[derive(Clone)]
pub struct Key(Selector);

#[derive(Clone)]
enum Selector {
    Pointer {
        text: Arc<str>,
        parsed: Option<Pointer>,
    },
    #[cfg(feature = "jmespath")]
    Jmespath(Arc<Expression>),
    MessageId,
    DeduplicationId,
    Attribute(Cow<'static, str>),
    Header(Arc<str>),
    /// With its type, if that says all: it captures nothing.
    Closure(Arc<Closure>, Option<TypeId>),
    All(Arc<[Key]>),
    Json {
        within: Arc<Key>,
        text: Arc<str>,
        parsed: Option<Pointer>,
    },
}

impl Key {
    /// The value at a JSON Pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) in the body, such as
    /// `/order_id` or `/detail/items/0/id`. Its type counts: `1`, `"1"` and `1.0` are three keys. The empty pointer is the whole
    /// body, in canonical form; it is the only one whose value may hold `null` or something empty.
    ///
    /// A body that is not JSON is an error of that delivery. A pointer that is not one (`order_id` without the slash) is
    /// an error of every invocation, before anything is claimed; `validate` of the service or layer finds it in init.
    pub fn pointer(pointer: &str) -> Self {
        Self(Selector::Pointer { text: pointer.into(), parsed: Pointer::parse(pointer) })
    }

    /// What a [JMESPath](https://jmespath.org) expression finds in the body, such as `order_id` or `detail.[user, id]`.
    ///
    /// Where it finds a value of the body, that is the same key as with a pointer to the value. Finding `null`, or anything
    /// empty or partly empty, means that the key is missing; so does a part that finds `null`
    /// ([`Payload::Part`](crate::Payload::Part)), since JMESPath does not tell it from a part that is not there.
    ///
    /// Besides the functions of the JMESPath specification there are three, under the names that AWS Powertools gives them:
    ///
    /// * `powertools_json(text)`: the value that a JSON text within the body stands for.
    /// * `powertools_base64(text)`: the text that is encoded in Base64. White space in it is ignored.
    /// * `powertools_base64_gzip(text)`: the text that is compressed by gzip and encoded in Base64, of 16 MiB at most, such as
    ///   the data of CloudWatch Logs.
    ///
    /// A body that the expression cannot be
    /// applied to, such as one with a text that is not JSON, is an error of that delivery. An expression that does not
    /// parse, or that calls a function that there is not, is an error of every invocation; `validate` of the service or
    /// layer finds it in init.
    ///
    /// ```
    /// use lambda_once::Key;
    ///
    /// let key = Key::jmespath("order_id");
    /// // Each part must be there.
    /// let key = Key::jmespath("[customer.id, order_id]");
    /// // A JSON text within the body.
    /// let key = Key::jmespath("powertools_json(request).order_id");
    /// // A delivery of CloudWatch Logs.
    /// let key = Key::jmespath("powertools_json(powertools_base64_gzip(awslogs.data)).logEvents[0].id");
    /// ```
    ///
    /// For messages in the envelopes of SNS, EventBridge and S3 there is `BatchService::envelope` instead, which takes the payload
    /// out of the envelope too.
    ///
    /// Numbers keep their digits on the way through an expression, also in `to_string`. What is compared, sorted or
    /// computed is a 64-bit float, as in other implementations; a computed number of 2^53 or more is an error of that
    /// delivery, since two that differ may have become one.
    #[cfg(feature = "jmespath")]
    pub fn jmespath(expression: &str) -> Self {
        Self(Selector::Jmespath(Arc::new(Expression::new(expression))))
    }

    /// The id that the queue gave the message, or the record's place in its stream, together with the stream where places
    /// of two streams could be equal.
    ///
    /// It protects against redelivery by the source, and against nothing else: a producer that sends again, and a redrive
    /// from a dead-letter queue, make a new id. A key from the body covers those too.
    pub fn message_id() -> Self {
        Self(Selector::MessageId)
    }

    /// The deduplication id of a message in an SQS FIFO queue, together with the queue's ARN and the message group. The id is
    /// the sender's, or the hash of the body.
    ///
    /// SQS compares the ids of a queue or, with `DeduplicationScope: messageGroup`, those of a group. The same id in two groups
    /// is two operations here in either case: one that is sent again has to be sent to the same group.
    ///
    /// SQS itself drops a second message with the same id for five minutes only, so senders may use one again later. Then
    /// that is another operation for them, and the same one here: choose this key only if ids are unique for as long as
    /// records are kept. A message that has moved to a FIFO dead-letter queue has its message id instead.
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html>
    pub fn deduplication_id() -> Self {
        Self(Selector::DeduplicationId)
    }

    /// An attribute that the source has set. The documentation of each source lists them.
    ///
    /// `partitionKey` in Kinesis and the record's `key` in Kafka are keys only where they name one event. As a rule they name
    /// what the events are about, such as a customer, and all events of a customer would be one operation.
    pub fn attribute(name: impl Into<String>) -> Self {
        Self(Selector::Attribute(name.into().into()))
    }

    /// The text of an attribute that the sender has put on an SQS message, of the type String or Number. The same as
    /// [`header`](Self::header), in the words of SQS.
    pub fn message_attribute(name: impl Into<String>) -> Self {
        Self::header(name)
    }

    /// The text of a header that the sender has put on the record, as in Kafka. One that is not UTF-8 is missing.
    pub fn header(name: impl Into<String>) -> Self {
        Self(Selector::Header(name.into().into()))
    }

    /// What a function makes of the delivery. `Ok(None)` and an empty string mean that there is no key.
    ///
    /// ```
    /// use lambda_once::Key;
    ///
    /// let key = Key::from_fn(|delivery| {
    ///     let body = std::str::from_utf8(delivery.body())?;
    ///     Ok(body.split(',').next().map(str::to_owned))
    /// });
    /// ```
    pub fn from_fn<F>(select: F) -> Self
    where
        F: Fn(&Delivery<'_>) -> Result<Option<String>, BoxError> + Send + Sync + 'static,
    {
        let identity = (size_of::<F>() == 0).then(TypeId::of::<F>);
        Self(Selector::Closure(Arc::new(select), identity))
    }

    /// The value at a JSON Pointer within the JSON that this key selects as a text.
    ///
    /// A text that is not JSON, and a value that is no text, are errors of that delivery. There can be up to eight such steps; more
    /// are an error of every invocation, as a malformed pointer is.
    ///
    /// ```
    /// use lambda_once::Key;
    ///
    /// // {"request": "{\"order_id\": 7}"}
    /// let key = Key::pointer("/request").parse_json("/order_id");
    /// // JSON in a header.
    /// let key = Key::header("context").parse_json("/trace/id");
    /// ```
    ///
    /// It selects a key, and the payload stays the whole body: give [`Payload::Part`](crate::Payload::Part) the same text if the
    /// rest of the body differs from delivery to delivery.
    #[must_use]
    pub fn parse_json(self, pointer: &str) -> Self {
        Self(Selector::Json { within: Arc::new(self), text: pointer.into(), parsed: Pointer::parse(pointer) })
    }

    /// All of these together. Each must select something.
    pub fn composite(keys: impl IntoIterator<Item = Self>) -> Self {
        Self(Selector::All(keys.into_iter().collect()))
    }

    /// Finds what can be known to be wrong before any delivery.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.json_steps() > MAX_STEPS {
            return Err(Error::config("a key takes at most eight steps into JSON within a text"));
        }
        match &self.0 {
            Selector::Pointer { text, parsed: None } => Err(not_a_pointer(text)),
            #[cfg(feature = "jmespath")]
            Selector::Jmespath(expression) => expression.check(),
            Selector::All(keys) if keys.is_empty() => {
                Err(Error::config("Key::composite needs at least one key, or all deliveries would share one record"))
            }
            Selector::All(keys) => keys.iter().try_for_each(Self::check),
            Selector::Json { text, parsed: None, .. } => Err(not_a_pointer(text)),
            Selector::Json { within, .. } => within.check(),
            _ => Ok(()),
        }
    }

    fn json_steps(&self) -> usize {
        let inner = |key: &Self| match &key.0 {
            Selector::Json { within, .. } => Some(Arc::clone(within)),
            _ => None,
        };
        std::iter::successors(inner(self), |key| inner(key)).count()
    }

    /// Whether it selects from the outside of a message, or a part of it does.
    #[cfg(feature = "invocation")]
    pub(crate) fn is_for_messages(&self) -> bool {
        match &self.0 {
            Selector::MessageId | Selector::DeduplicationId | Selector::Attribute(_) | Selector::Header(_) => true,
            #[cfg(feature = "jmespath")]
            Selector::Jmespath(_) => false,
            Selector::Pointer { .. } | Selector::Closure(..) => false,
            Selector::All(keys) => keys.iter().any(Self::is_for_messages),
            Selector::Json { within, .. } => within.is_for_messages(),
        }
    }

    /// Whether it selects the same of every delivery. What a function captures cannot be compared, so a key by such a function equals
    /// no other, not even its clone.
    #[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Selector::Closure(_, ours), Selector::Closure(_, theirs)) => ours.is_some() && ours == theirs,
            (Selector::All(ours), Selector::All(theirs)) => {
                ours.len() == theirs.len() && ours.iter().zip(theirs.iter()).all(|(ours, theirs)| ours.is_same(theirs))
            }
            (Selector::Json { within, text, .. }, Selector::Json { within: other, text: other_text, .. }) => {
                text == other_text && within.is_same(other)
            }
            // The others hold nothing that they do not show.
            _ => format!("{self:?}") == format!("{other:?}"),
        }
    }

    /// The key of a delivery in canonical JSON. `buffer` is for a key that is not in the body as it is.
    pub(crate) fn select<'a>(&self, delivery: &Delivery<'a>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        self.look_up(delivery, buffer, is_missing)
    }

    /// Selects a label: a string as plain text, anything else as JSON. What is missing, and a function that fails, gives none.
    #[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
    pub(crate) fn label(&self, delivery: &Delivery<'_>) -> Option<Arc<str>> {
        let mut buffer = Vec::new();
        let selected = catch_panic(|| self.select(delivery, &mut buffer).ok().map(<[u8]>::to_vec))??;
        let label = match selected.first() {
            Some(b'"') => text(&selected),
            _ => String::from_utf8(selected).ok()?,
        };
        Some(stored_text(&label))
    }

    pub(super) fn look_up<'a>(
        &self,
        delivery: &Delivery<'a>,
        buffer: &'a mut Vec<u8>,
        is_missing: fn(&[u8]) -> bool,
    ) -> Result<&'a [u8], Error> {
        buffer.clear();
        match &self.0 {
            Selector::Pointer { text, parsed } => {
                let Some(pointer) = parsed else { return Err(not_a_pointer(text)) };
                let json = delivery.body.canonical().map_err(|problem| {
                    Error::payload(format!("`{text}` cannot be looked up in the body: {problem}"))
                })?;
                return match find(json, pointer) {
                    Some(value) if !is_missing(value) => Ok(value),
                    // A whole body is its canonical form, whatever it holds.
                    Some(value) if text.is_empty() && !is_empty(value) => Ok(value),
                    Some(value) => {
                        let path = format!("{text}{}", missing_path(value));
                        Err(Error::key_missing(format!("the body has `null` or something empty at `{path}`")))
                    }
                    None if json == b"null" => Err(Error::key_missing(format!(
                        "the body is `null`, as in a Kafka tombstone, so it has nothing at `{text}`: choose a key that it has, such \
                         as `Key::attribute(\"key\")`, or acknowledge it by `ignore`"
                    ))),
                    None => Err(Error::key_missing(format!("the body has nothing at `{text}`"))),
                };
            }
            #[cfg(feature = "jmespath")]
            Selector::Jmespath(expression) => {
                let json = delivery.body.canonical().map_err(|problem| {
                    Error::payload(format!("{expression} cannot be looked up in the body: {problem}"))
                })?;
                match expression.search(json)? {
                    value if value == b"null" || is_missing(&value) => {
                        let message = format!("{expression} finds nothing in the body, or something empty");
                        return Err(Error::key_missing(message));
                    }
                    value => *buffer = value,
                }
            }
            Selector::MessageId => {
                let id = delivery.message_id().filter(|id| !id.is_empty());
                let id = id.ok_or_else(|| {
                    Error::key_missing(
                        "the delivery has no message id: a message of RabbitMQ has one only if its publisher sets it; choose a \
                         key from the body, such as `Key::pointer(\"/order_id\")`, or from a header",
                    )
                })?;
                match delivery.metadata.id_namespace() {
                    None => write_string(buffer, id),
                    Some(namespace) => write_strings(buffer, &[namespace, id]),
                }
            }
            Selector::DeduplicationId => {
                let id = delivery.attribute("MessageDeduplicationId").filter(|id| !id.is_empty());
                let id = id
                    .ok_or_else(|| Error::key_missing("the delivery has no deduplication id: the queue is not FIFO"))?;
                let group = delivery.attribute("MessageGroupId");
                let [queue, group] = [delivery.metadata.source(), group].map(Option::unwrap_or_default);
                write_strings(buffer, &[queue, group, id]);
            }
            Selector::Attribute(name) => {
                let text = delivery.attribute(name).filter(|text| !text.is_empty());
                let text = text.ok_or_else(|| Error::key_missing(format!("the delivery has no attribute `{name}`")))?;
                write_string(buffer, text);
            }
            Selector::Header(name) => {
                let text = delivery.header(name).filter(|text| !text.is_empty());
                let text = text.ok_or_else(|| {
                    Error::key_missing(format!("the sender has set no attribute or header `{name}` that is a text"))
                })?;
                write_string(buffer, text);
            }
            Selector::Closure(select, _) => {
                let key = select(delivery)
                    .map_err(|source| Error::payload("the key's function failed").with_source(source))?
                    .filter(|key| !key.is_empty());
                let key = key.ok_or_else(|| Error::key_missing("the key's function found no key"))?;
                write_string(buffer, &key);
            }
            Selector::All(keys) => {
                let mut part = Vec::new();
                for key in keys.iter() {
                    buffer.push(if buffer.is_empty() { b'[' } else { b',' });
                    buffer.extend_from_slice(key.look_up(delivery, &mut part, is_missing)?);
                }
                buffer.push(b']');
            }
            Selector::Json { within, text, parsed } => {
                let Some(pointer) = parsed else { return Err(not_a_pointer(text)) };
                let mut selected = Vec::new();
                let json = json_in(within.look_up(delivery, &mut selected, is_missing)?, within)?;
                match find(&json, pointer) {
                    Some(value) if !is_missing(value) => buffer.extend_from_slice(value),
                    _ => {
                        let message =
                            format!("the JSON at {within:?} has nothing at `{text}`, or something empty in it");
                        return Err(Error::key_missing(message));
                    }
                }
            }
        }
        Ok(buffer)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Selector::Pointer { text, .. } => write!(f, "Key::pointer({text:?})"),
            #[cfg(feature = "jmespath")]
            Selector::Jmespath(expression) => write!(f, "Key::jmespath({:?})", expression.text()),
            Selector::MessageId => f.write_str("Key::message_id()"),
            Selector::DeduplicationId => f.write_str("Key::deduplication_id()"),
            Selector::Attribute(name) => write!(f, "Key::attribute({name:?})"),
            Selector::Header(name) => write!(f, "Key::header({name:?})"),
            Selector::Closure(..) => f.write_str("Key::from_fn(..)"),
            Selector::All(keys) => f.debug_tuple("Key::composite").field(keys).finish(),
            Selector::Json { within, text, .. } => write!(f, "{within:?}.parse_json({text:?})"),
        }
    }
}

/// An array of texts.
fn write_strings(buffer: &mut Vec<u8>, texts: &[&str]) {
    for (i, text) in texts.iter().enumerate() {
        buffer.push(if i == 0 { b'[' } else { b',' });
        write_string(buffer, text);
    }
    buffer.push(b']');
}

fn not_a_pointer(text: &str) -> Error {
    Error::config(format!("`{text}` is not a JSON Pointer: write `/` before each member's name, as in `/order_id`"))
}
