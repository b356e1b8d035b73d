//! Batches of Kafka topics, in Amazon MSK and self-managed.
//!
//! ```
//! use lambda_once::testing::kafka;
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let batch = kafka::batch([
//!     kafka::record(&order).topic("orders").partition(1).key("7").header("tenant", "a"),
//!     kafka::tombstone().key("6"),
//! ]);
//! ```

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::parts;
use crate::{
    batch::kafka::KafkaEvent,
    clock::Timestamp,
    testing::{Redeliver, unique},
};

/// A record, before a topic has it.
#[derive(Clone, Debug)]
pub struct Record {
    value: Option<Vec<u8>>,
    topic: String,
    partition: u32,
    offset: Option<i64>,
    key: Option<Vec<u8>>,
    headers: Vec<(String, Vec<u8>)>,
}

/// A batch of a cluster. Every delivery is the same.
#[derive(Clone, Debug)]
pub struct Batch {
    source: Option<String>,
    servers: String,
    created: Timestamp,
    records: Vec<Record>,
}

/// A record whose value is this, in JSON.
///
/// # Panics
///
/// If it cannot be JSON.
pub fn record<T: Serialize + ?Sized>(value: &T) -> Record {
    bytes(parts::json(value))
}

/// A record with this value.
pub fn bytes(value: impl Into<Vec<u8>>) -> Record {
    Record { value: Some(value.into()), ..tombstone() }
}

/// A record without a value.
pub fn tombstone() -> Record {
    Record { value: None, topic: "orders".to_owned(), partition: 0, offset: None, key: None, headers: Vec::new() }
}

/// Records of a cluster in Amazon MSK, created now. Each that has no offset gets one of its own, higher than those before.
///
/// An event has its records by partition: what is said of each of several partitions' records is in the order in which the
/// source takes them, one of each partition in turn.
pub fn batch(records: impl IntoIterator<Item = Record>) -> Batch {
    let placed = |record: Record| {
        let drawn = || i64::try_from(unique::number()).unwrap_or(i64::MAX);
        Record { offset: Some(record.offset.unwrap_or_else(drawn)), ..record }
    };
    Batch {
        source: Some(
            "arn:aws:kafka:us-east-1:123456789012:cluster/orders/00000000-0000-4000-8000-000000000000-1".into(),
        ),
        servers: "b-1.orders.example.c1.kafka.us-east-1.amazonaws.com:9092".to_owned(),
        created: parts::now(),
        records: records.into_iter().map(placed).collect(),
    }
}

impl Record {
    /// Its topic. Default: `orders`.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = topic.into();
        self
    }

    /// Its partition. Default: 0.
    #[must_use]
    pub fn partition(mut self, partition: u32) -> Self {
        self.partition = partition;
        self
    }

    /// Its offset in its partition.
    #[must_use]
    pub fn offset(mut self, offset: i64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Its key. Default: none.
    #[must_use]
    pub fn key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// A header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    fn wire(&self, created: Timestamp) -> Value {
        // Java's bytes are signed.
        let header = |value: &[u8]| value.iter().map(|byte| byte.cast_signed()).collect::<Vec<i8>>();
        let mut record = json!({
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": created.as_millis(),
            "timestampType": "CREATE_TIME",
            "headers": self.headers.iter().map(|(name, value)| json!({ name: header(value) })).collect::<Vec<_>>(),
        });
        for (name, bytes) in [("key", &self.key), ("value", &self.value)] {
            if let Some(bytes) = bytes {
                record[name] = parts::base64(bytes).into();
            }
        }
        record
    }
}

impl Batch {
    /// The ARN of the cluster.
    #[must_use]
    pub fn source(mut self, arn: impl Into<String>) -> Self {
        self.source = Some(arn.into());
        self
    }

    /// A self-managed cluster with these bootstrap servers, joined by commas. It has no ARN.
    #[must_use]
    pub fn self_managed(mut self, servers: impl Into<String>) -> Self {
        self.source = None;
        self.servers = servers.into();
        self
    }
}

impl Redeliver for Batch {
    type Event = KafkaEvent;

    fn delivery(&self, _: u32) -> KafkaEvent {
        let mut partitions: Map<String, Value> = Map::new();
        for record in &self.records {
            let partition =
                partitions.entry(format!("{}-{}", record.topic, record.partition)).or_insert_with(|| json!([]));
            if let Value::Array(records) = partition {
                records.push(record.wire(self.created));
            }
        }
        let mut event = json!({
            "eventSource": if self.source.is_some() { "aws:kafka" } else { "SelfManagedKafka" },
            "bootstrapServers": self.servers,
            "records": partitions,
        });
        if let Some(source) = &self.source {
            event["eventSourceArn"] = source.as_str().into();
        }
        parts::event(&event)
    }
}
