//! Kafka topics of Amazon MSK or self-managed clusters as a source.
//!
//! ```
//! use lambda_once::{Failure, Key, testing::{self, kafka}};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order { order_id: String }
//!
//! async fn book(order: Order) -> Result<(), Failure> {
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let service = testing::engine().kafka(Key::pointer("/order_id"), book);
//! let batch = kafka::batch(["7", "8"].map(|id| testing::record(&Order { order_id: id.into() })));
//! testing::deliver_twice(&service, &batch).await.assert_once();
//! # }
//! ```

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    fmt,
    marker::PhantomData,
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, DeserializeOwned},
};
use serde_json::value::RawValue;

mod message;

pub use message::KafkaMessage;

use super::encoding::{failures, optional_base64};
use crate::{
    batch::{
        handler::Handler, messaging::Messaging, raw_json::keeps_json, record::RecordInfo, service::BatchService,
        source::Source,
    },
    decoding::decode,
    error::{Error, ErrorKind, ErrorStatus},
    idempotency::handle::Idempotency,
    key::selector::Key,
};

/// Records of Kafka topics, in the order of their partitions. Partitions run concurrently.
///
/// A record's id consists of its topic, partition, offset and timestamp, as in `orders-0-100@1595035749700`, and is
/// unique within the cluster. The timestamp distinguishes the records of a recreated topic from earlier ones with the
/// same offsets. The attributes are `topic`, `partition`, `offset`, `timestamp` (milliseconds), `keyBase64` (the key's
/// bytes) and, if these are UTF-8, `key`. A record without a value, a tombstone, has the body `null`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kafka;

/// A batch of Kafka records.
/// <https://docs.aws.amazon.com/lambda/latest/dg/with-msk.html>
#[doc(hidden)]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KafkaEvent {
    #[serde(default)]
    event_source_arn: Option<String>,
    #[serde(default)]
    bootstrap_servers: Option<String>,
    #[serde(deserialize_with = "partitions")]
    records: Vec<(String, Vec<KafkaRecord>)>,
}

/// A record of a `KafkaEvent`.
#[doc(hidden)]
#[derive(Deserialize)]
pub struct KafkaRecord {
    /// The name of its partition in the event, and the cluster. Set when the event is split.
    #[serde(skip)]
    place: Option<Arc<Place>>,
    #[serde(default)]
    topic: String,
    partition: i64,
    offset: i64,
    #[serde(default)]
    timestamp: Option<i64>,
    #[serde(default)]
    key: Option<String>,
    #[serde(default, deserialize_with = "optional_base64")]
    value: Option<Vec<u8>>,
    #[serde(default)]
    headers: Option<Vec<BTreeMap<String, HeaderValue>>>,
}

/// The value of a header.
#[derive(Deserialize)]
#[serde(untagged)]
enum HeaderValue {
    /// Signed bytes, as in Java.
    Bytes(Vec<i16>),
    /// No value, in any notation.
    Nothing(de::IgnoredAny),
}

struct Place {
    partition: String,
    cluster: Option<String>,
}

/// The response to a batch of Kafka records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KafkaResponse {
    /// The records that failed. Lambda resumes from the first one of each partition.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html>
    #[serde(serialize_with = "failures")]
    pub batch_item_failures: Vec<KafkaIdentifier>,
}

/// The position of a record in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub struct KafkaIdentifier {
    /// The topic and the number of the partition, as in `orders-0`.
    pub partition: String,
    /// The offset in the partition.
    pub offset: i64,
}

impl KafkaIdentifier {
    fn of(record: &RecordInfo) -> Option<Self> {
        let [topic, partition, offset] = ["topic", "partition", "offset"].map(|name| record.source_attribute(name));
        Some(Self { partition: format!("{}-{}", topic?, partition?), offset: offset?.parse().ok()? })
    }
}

/// Deserializes the partitions of an event, in its order.
fn partitions<'de, D: Deserializer<'de>, R: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<(String, Vec<R>)>, D::Error> {
    struct Partitions<R>(PhantomData<R>);

    impl<'de, R: Deserialize<'de>> de::Visitor<'de> for Partitions<R> {
        type Value = Vec<(String, Vec<R>)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the records of each partition")
        }

        fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut partitions = Vec::new();
            while let Some(partition) = map.next_entry()? {
                partitions.push(partition);
            }
            Ok(partitions)
        }
    }

    deserializer.deserialize_map(Partitions(PhantomData))
}

/// Interleaves the records of partitions, which have no order among each other, so that none waits until others are
/// done.
fn in_turn<R>(mut records: Vec<(usize, R)>) -> Vec<R> {
    records.sort_by_key(|(i, _)| *i);
    records.into_iter().map(|(_, record)| record).collect()
}

/// Returns the records of an event, in the order of [`Source::split`].
fn json_records(event: &RawValue) -> serde_json::Result<Vec<Box<RawValue>>> {
    #[derive(Deserialize)]
    struct Event {
        #[serde(deserialize_with = "partitions")]
        records: Vec<(String, Vec<Box<RawValue>>)>,
    }

    let Event { records } = serde_json::from_str(event.get())?;
    Ok(in_turn(records.into_iter().flat_map(|(_, records)| records.into_iter().enumerate()).collect()))
}

keeps_json!(Kafka, json_records);

/// Shows no key, value or header.
impl fmt::Debug for KafkaRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaRecord")
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl Source for Kafka {
    type Event = KafkaEvent;
    type Record = KafkaRecord;
    type Rest = ();
    type Body = KafkaMessage;
    type Response = KafkaResponse;

    const OPERATION: &'static str = "kafka";

    fn split(&self, event: KafkaEvent) -> Result<(Vec<KafkaRecord>, ()), Error> {
        let cluster = event.event_source_arn.or_else(|| event.bootstrap_servers.as_deref().map(sorted));
        let mut records = Vec::with_capacity(event.records.iter().map(|(_, records)| records.len()).sum());
        for (partition, of_partition) in event.records {
            let place = Arc::new(Place { partition, cluster: cluster.clone() });
            for (i, mut record) in of_partition.into_iter().enumerate() {
                if !is_in(&record, &place.partition) {
                    let partition = &place.partition;
                    let message = format!(
                        "a record under `{partition}` is not of that topic and partition: this is not an event from Kafka"
                    );
                    return Err(Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", message));
                }
                record.place = Some(Arc::clone(&place));
                records.push((i, record));
            }
        }
        Ok((in_turn(records), ()))
    }

    fn lane<'a>(&self, record: &'a KafkaRecord) -> Option<Cow<'a, str>> {
        record.place.as_ref().map(|place| Cow::Borrowed(&*place.partition))
    }

    fn open(&self, record: KafkaRecord) -> (RecordInfo, KafkaMessage) {
        let KafkaRecord { place, topic, partition, offset, timestamp, key, value, headers } = record;
        // A recreated topic begins at offset 0 again.
        let id = match timestamp {
            Some(timestamp) => format!("{topic}-{partition}-{offset}@{timestamp}"),
            None => format!("{topic}-{partition}-{offset}"),
        };
        let mut info = RecordInfo::local(place.and_then(|place| place.cluster.clone()), id)
            .with_attribute("topic", topic)
            .with_attribute("partition", partition.to_string())
            .with_attribute("offset", offset.to_string());
        if let Some(timestamp) = timestamp {
            info = info.with_attribute("timestamp", timestamp.to_string());
        }
        let key_bytes = key.as_ref().and_then(|key| BASE64_STANDARD.decode(key).ok());
        if let Some(key) = key {
            if let Some(text) = key_bytes.as_deref().and_then(|bytes| str::from_utf8(bytes).ok()) {
                info = info.with_attribute("key", text);
            }
            info = info.with_attribute("keyBase64", key);
        }
        for (name, value) in headers.unwrap_or_default().into_iter().flatten() {
            if let HeaderValue::Bytes(bytes) = value
                && let Some(bytes) = unsigned(&bytes)
            {
                info = match String::from_utf8(bytes) {
                    Ok(text) => info.with_header(name, text),
                    Err(error) => info.with_header_bytes(name, error.into_bytes()),
                };
            }
        }
        (info, KafkaMessage { key: key_bytes, value })
    }

    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        let topic = Messaging::of("kafka", record.source_attribute("topic"));
        Messaging { partition: record.source_attribute("partition"), ..topic }
    }

    /// Names the partition and offset of each record that failed (B9).
    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<KafkaResponse, Error> {
        let failed: HashSet<_> = failed.iter().filter_map(|record| KafkaIdentifier::of(record)).collect();
        let mut batch_item_failures: Vec<_> = failed.into_iter().collect();
        batch_item_failures.sort_unstable();
        Ok(KafkaResponse { batch_item_failures })
    }
}

/// Sorts the servers of a self-managed cluster, because Lambda may list them in any order.
fn sorted(servers: &str) -> String {
    let mut servers: Vec<&str> = servers.split(',').map(str::trim).collect();
    servers.sort_unstable();
    servers.join(",")
}

/// Returns whether the record belongs to this partition of the event, whose exact name the response must contain.
fn is_in(record: &KafkaRecord, partition: &str) -> bool {
    let number = partition.strip_prefix(&*record.topic).and_then(|rest| rest.strip_prefix('-'));
    !record.topic.is_empty() && number.is_some_and(|number| number == record.partition.to_string())
}

/// Returns a header's bytes.
fn unsigned(bytes: &[i16]) -> Option<Vec<u8>> {
    bytes.iter().map(|byte| u8::try_from(byte.rem_euclid(256)).ok()).collect()
}

impl Idempotency {
    /// Makes a service for Kafka topics, which runs `handler` for each record, once per `key`. The value is JSON, and a
    /// tombstone is `null`.
    ///
    /// The event source mapping must be in provisioned mode, with `FunctionResponseTypes: [ReportBatchItemFailures]`.
    /// Otherwise Lambda supports no partial response for Kafka, and would resume behind the failed records. Without
    /// provisioned mode, use [`FullBatchFailure::Error`](crate::batch::FullBatchFailure::Error) and a batch size of 1.
    ///
    /// **The event source mapping must be in the consumption mode `Stream`**, the default. In the mode `Queue`, several
    /// pollers read a partition concurrently and without order, and Kafka counts the deliveries of each record. A
    /// record that fails would block those behind it in its partition, which would also use up deliveries until Kafka
    /// gives them up.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_runtime::Error> {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Order { order_id: String }
    ///
    /// // `None` is a tombstone.
    /// async fn index(order: Option<Order>) -> Result<(), Failure> {
    ///     Ok(())
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// lambda_runtime::run(once.kafka(Key::message_id(), index)).await
    /// # }
    /// ```
    #[track_caller]
    pub fn kafka<H, T, Args>(&self, key: Key, handler: H) -> BatchService<Kafka, H, T, Args>
    where
        H: Handler<T, Args>,
        T: DeserializeOwned + Send + 'static,
    {
        self.batch(Kafka, key, |_, message| decode(message.as_ref()).map_err(Into::into), handler)
    }
}
