//! The key and value of a Kafka record.

use std::fmt;

/// The key and value of a record, for decoders of values that are not JSON.
///
/// An example for the framing of Confluent's serializers, with Avro or Protobuf in key and value:
///
/// ```
/// use lambda_once::{BoxError, Classify, Failure, Idempotency, Key, MemoryStore};
/// use lambda_once::batch::{RecordInfo, kafka::{Kafka, KafkaMessage}};
///
/// # struct Order;
/// # struct Registry;
/// # impl Registry { fn schema(&self, _: u32) -> Option<&()> { None } }
/// # fn avro(_: &(), _: &[u8]) -> Result<Order, BoxError> { Ok(Order) }
/// /// Returns the schema id and the payload. <https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format>
/// fn unframed(bytes: &[u8]) -> Result<(u32, &[u8]), BoxError> {
///     let Some(([0, id @ ..], payload)) = bytes.split_first_chunk::<5>() else {
///         return Err("the value is not framed".into());
///     };
///     Ok((u32::from_be_bytes(*id), payload))
/// }
///
/// async fn index(order: Option<Order>) -> Result<(), Failure> {
///     Ok(())
/// }
///
/// let registry = Registry; // the registered schemas, read in init
/// let decode = move |_: &RecordInfo, message: &KafkaMessage| {
///     let Some(value) = message.value() else { return Ok(None) };
///     let (id, payload) = unframed(value)?;
///     // Registered since then, and available in the next delivery.
///     let schema = registry.schema(id).ok_or("the schema is not known").transient()?;
///     avro(schema, payload).map(Some)
/// };
/// let once = Idempotency::new(MemoryStore::new());
/// let service = once.batch(Kafka, Key::message_id(), decode, index);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaMessage {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
}

impl KafkaMessage {
    /// Returns the bytes of the value, or `None` if the record is a tombstone.
    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// Returns the bytes of the key, or `None` if the record has none.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }
}

/// The value, or `null` if the record is a tombstone.
impl AsRef<[u8]> for KafkaMessage {
    fn as_ref(&self) -> &[u8] {
        self.value().unwrap_or(b"null")
    }
}

/// Shows no bytes.
impl fmt::Debug for KafkaMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaMessage").field("bytes", &self.value.as_ref().map(Vec::len)).finish_non_exhaustive()
    }
}
