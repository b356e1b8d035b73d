//! Decoders that see the whole record.

use base64::{Engine, prelude::BASE64_STANDARD};

use super::{Kafka, KafkaValue};
use crate::{
    batch::{handler::Handler, record::RecordInfo, service::BatchService},
    error::BoxError,
    idempotency::handle::Idempotency,
    key::selector::Key,
};

/// A record, for [decoders](Idempotency::kafka_decoding) of more than its value.
#[derive(Clone, Copy, Debug)]
pub struct KafkaMessage<'a> {
    record: &'a RecordInfo,
    value: &'a KafkaValue,
}

impl<'a> KafkaMessage<'a> {
    /// The bytes of the value; `None` if the record is a tombstone.
    pub fn value(&self) -> Option<&'a [u8]> {
        self.value.0.as_deref()
    }

    /// The bytes of the record's key; `None` if it has none.
    pub fn key(&self) -> Option<Vec<u8>> {
        BASE64_STANDARD.decode(self.record.attribute("keyBase64")?).ok()
    }

    /// What else is known of the record: topic, headers, timestamp.
    pub fn record(&self) -> &'a RecordInfo {
        self.record
    }
}

impl Idempotency {
    /// Like [`kafka_with`](Self::kafka_with), where `decode` needs the record's key, its headers or its topic too: for the framing
    /// of Confluent's serializers, for instance, with Avro or Protobuf in key and value.
    ///
    /// ```
    /// use lambda_once::{BoxError, Classify, Failure, Idempotency, Key, MemoryStore, batch::kafka::KafkaMessage};
    ///
    /// # struct Order;
    /// # struct Registry;
    /// # impl Registry { fn schema(&self, _: u32) -> Option<&()> { None } }
    /// # fn avro(_: &(), _: &[u8]) -> Result<Order, BoxError> { Ok(Order) }
    /// /// The schema's id and the payload. <https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format>
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
    /// let registry = Registry; // what is registered, read in init
    /// let decode = move |message: KafkaMessage<'_>| {
    ///     let Some(value) = message.value() else { return Ok(None) };
    ///     let (id, payload) = unframed(value)?;
    ///     // Registered since then: it is there in the next delivery.
    ///     let schema = registry.schema(id).ok_or("the schema is not known").transient()?;
    ///     avro(schema, payload).map(Some)
    /// };
    /// let once = Idempotency::new(MemoryStore::new());
    /// let service = once.kafka_decoding(Key::message_id(), decode, index);
    /// ```
    #[track_caller]
    pub fn kafka_decoding<H, T, Args>(
        &self,
        key: Key,
        decode: impl Fn(KafkaMessage<'_>) -> Result<T, BoxError> + Send + Sync + 'static,
        handler: H,
    ) -> BatchService<Kafka, H, T, Args>
    where
        H: Handler<T, Args>,
        T: Send + 'static,
    {
        self.batch_of(Kafka, key, move |record, value: &KafkaValue| decode(KafkaMessage { record, value }), handler)
    }
}
