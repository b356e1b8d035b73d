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
/// // Order ids are unique only within a customer.
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
    /// Includes its type if the closure captures nothing, so that the type identifies it.
    Closure(Arc<Closure>, Option<TypeId>),
    All(Arc<[Key]>),
    Json {
        within: Arc<Key>,
        text: Arc<str>,
        parsed: Option<Pointer>,
    },
}

impl Key {
    /// Selects the value at a JSON Pointer ([RFC 6901](https://www.rfc-editor.org/rfc/rfc6901)) in the body, such as
    /// `/order_id` or `/detail/items/0/id`. Types are distinguished: `1`, `"1"` and `1.0` are three keys. The empty
    /// pointer selects the whole body in canonical form. It is the only pointer whose value may contain `null` or empty
    /// values.
    ///
    /// A body that is not JSON is an error of that delivery. A malformed pointer (`order_id` without the slash) is an
    /// error of every invocation, before anything is claimed. `validate` of the service or layer detects it in init.
    pub fn pointer(pointer: &str) -> Self {
        Self(Selector::Pointer { text: pointer.into(), parsed: Pointer::parse(pointer) })
    }

    /// Selects the result of a [JMESPath](https://jmespath.org) expression on the body, such as `order_id` or
    /// `detail.[user, id]`.
    ///
    /// If it finds a value of the body, the key is the same as with a pointer to that value. The key is missing if the
    /// result is `null`, empty or partly empty. A part ([`Payload::Part`](crate::Payload::Part)) is missing if the
    /// result is `null`, because JMESPath does not distinguish that from an absent part.
    ///
    /// In addition to the functions of the JMESPath specification, these functions of AWS Powertools are available:
    ///
    /// * `powertools_json(text)`: the value of a JSON string in the body.
    /// * `powertools_base64(text)`: the decoded text of a string in Base64. White space is ignored.
    /// * `powertools_base64_gzip(text)`: the decoded text, of at most 16 MiB, of a string that is compressed by gzip
    ///   and encoded in Base64, such as the data of CloudWatch Logs.
    ///
    /// If the expression cannot be applied to a body, for example because a string is not JSON, that is an error of the
    /// delivery. If the expression does not parse, or calls an unknown function, that is an error of every invocation.
    /// `validate` of the service or layer detects it in init.
    ///
    /// ```
    /// use lambda_once::Key;
    ///
    /// let key = Key::jmespath("order_id");
    /// // Each part must exist.
    /// let key = Key::jmespath("[customer.id, order_id]");
    /// // A JSON string in the body.
    /// let key = Key::jmespath("powertools_json(request).order_id");
    /// // A delivery of CloudWatch Logs.
    /// let key = Key::jmespath("powertools_json(powertools_base64_gzip(awslogs.data)).logEvents[0].id");
    /// ```
    ///
    /// For messages in envelopes of SNS, EventBridge and S3, use `BatchService::envelope`, which also unwraps the
    /// payload.
    ///
    /// Numbers keep their digits in an expression, also in `to_string`. Comparisons, sorting and arithmetic use 64-bit
    /// floats, as in other implementations. A computed number of 2^53 or more is an error of that delivery, because
    /// different numbers may have become equal.
    #[cfg(feature = "jmespath")]
    pub fn jmespath(expression: &str) -> Self {
        Self(Selector::Jmespath(Arc::new(Expression::new(expression))))
    }

    /// Selects the id that the queue gave the message, or the record's position in its stream, together with the stream
    /// if positions in two streams could be equal.
    ///
    /// It protects only against redelivery by the source. A producer that sends again and a redrive from a dead-letter
    /// queue create a new id. A key from the body covers these cases too.
    pub fn message_id() -> Self {
        Self(Selector::MessageId)
    }

    /// Selects the deduplication id of a message in an SQS FIFO queue, together with the queue's ARN and the message
    /// group. The id is set by the sender, or is the hash of the body.
    ///
    /// SQS compares the ids of a queue or, with `DeduplicationScope: messageGroup`, of a group. Here the same id
    /// in two groups is always two operations, so a message that is sent again must be sent to the same group.
    ///
    /// SQS drops a second message with the same id only for five minutes, so senders may reuse an id later for a
    /// different operation, which would be the same one here. Use this key only if ids are unique for as long as
    /// records are kept. A message that has moved to a FIFO dead-letter queue has its message id instead.
    /// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html>
    pub fn deduplication_id() -> Self {
        Self(Selector::DeduplicationId)
    }

    /// Selects an attribute set by the source. The documentation of each source lists them.
    ///
    /// `partitionKey` in Kinesis and the record's `key` in Kafka are suitable keys only if they identify one event.
    /// Usually they identify an entity, such as a customer, and all events of a customer would be one operation.
    pub fn attribute(name: impl Into<String>) -> Self {
        Self(Selector::Attribute(name.into().into()))
    }

    /// Selects the text of an attribute that the sender has set on an SQS message, of the type String or Number.
    /// Equivalent to [`header`](Self::header), with the term of SQS.
    pub fn message_attribute(name: impl Into<String>) -> Self {
        Self::header(name)
    }

    /// Selects the text of a header that the sender has set on the record, as in Kafka. A header that is not UTF-8 is
    /// missing.
    pub fn header(name: impl Into<String>) -> Self {
        Self(Selector::Header(name.into().into()))
    }

    /// Computes the key with a closure. `Ok(None)` and an empty string mean that there is no key.
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

    /// Selects the value at a JSON Pointer in the JSON string that this key selects.
    ///
    /// A string that is not JSON, and a value that is not a string, are errors of that delivery. Up to eight such steps
    /// are allowed. More are an error of every invocation, like a malformed pointer.
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
    /// This affects only the key, and the payload remains the whole body. Set [`Payload::Part`](crate::Payload::Part)
    /// to the same string if the rest of the body differs between deliveries.
    #[must_use]
    pub fn parse_json(self, pointer: &str) -> Self {
        Self(Selector::Json { within: Arc::new(self), text: pointer.into(), parsed: Pointer::parse(pointer) })
    }

    /// Combines these keys. Each must select a value.
    pub fn composite(keys: impl IntoIterator<Item = Self>) -> Self {
        Self(Selector::All(keys.into_iter().collect()))
    }

    /// Reports errors that can be detected before any delivery.
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

    /// Returns whether it, or a part of it, selects what only a queue or stream adds to a message.
    #[cfg(any(feature = "http", feature = "invocation"))]
    pub(crate) fn is_for_messages(&self) -> bool {
        self.has_part(|part| matches!(part, Selector::MessageId | Selector::DeduplicationId | Selector::Attribute(_)))
    }

    /// Returns whether it, or a part of it, selects a header.
    #[cfg(feature = "invocation")]
    pub(crate) fn is_for_headers(&self) -> bool {
        self.has_part(|part| matches!(part, Selector::Header(_)))
    }

    #[cfg(any(feature = "http", feature = "invocation"))]
    fn has_part(&self, is: fn(&Selector) -> bool) -> bool {
        match &self.0 {
            Selector::All(keys) => keys.iter().any(|key| key.has_part(is)),
            Selector::Json { within, .. } => within.has_part(is),
            part => is(part),
        }
    }

    /// Returns whether it selects the same from every delivery. The captures of a closure cannot be compared, so a key
    /// with a capturing closure equals no other, not even its clone.
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
            // The other selectors are fully visible in their `Debug` output.
            _ => format!("{self:?}") == format!("{other:?}"),
        }
    }

    /// Returns the key of a delivery in canonical JSON. `buffer` holds a key that is not a part of the body.
    pub(crate) fn select<'a>(&self, delivery: &Delivery<'a>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        self.look_up(delivery, buffer, is_missing)
    }

    /// Selects a label: a string as plain text, anything else as JSON. Returns `None` if it is missing or a closure
    /// fails.
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
                    // A whole body may contain anything.
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

/// Writes an array of strings.
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
