//! Builds batches of Kafka topics, of Amazon MSK or self-managed clusters.
//!
//! ```
//! use lambda_once::testing::{self, kafka};
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let batch = kafka::batch([
//!     testing::record(&order).attribute("topic", "orders").attribute("partition", 1).attribute("key", "7"),
//!     kafka::tombstone().attribute("key", "6"),
//! ]);
//! ```

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};

use super::{
    parts,
    records::{Batch, Known, Record},
};
use crate::{batch::kafka::KafkaEvent, testing::unique};

const KNOWN: Known = Known {
    attributes: &["topic", "partition", "offset", "timestamp", "key", "keyBase64"],
    has_ids: false,
    has_headers: true,
};

/// Makes a record without a value.
pub fn tombstone() -> Record {
    Record::new(None)
}

/// Makes a batch of a cluster in Amazon MSK, or of a self-managed one if its [source](Batch::source) is not an ARN.
/// Every delivery is the same.
///
/// The default topic is `orders`, the default partition 0. Each record without an offset gets a unique one, in
/// ascending order. An event lists its records by partition. The reports of records from several partitions are in the
/// order in which the source processes them, with the partitions taking turns.
///
/// # Panics
///
/// If an attribute is unknown, or is not a number although it must be.
#[track_caller]
pub fn batch(records: impl IntoIterator<Item = Record>) -> Batch<KafkaEvent> {
    let records: Vec<(u64, Record)> =
        records.into_iter().map(|record| (unique::number(), record.with_known(KNOWN))).collect();
    let created = parts::now().as_millis();
    let cluster = "arn:aws:kafka:us-east-1:123456789012:cluster/orders/00000000-0000-4000-8000-000000000000-1";
    Batch::new(cluster, move |head, _| {
        let mut partitions: Map<String, Value> = Map::new();
        for (number, record) in &records {
            let record = wire(record, *number, created);
            let name = format!("{}-{}", record["topic"].as_str().unwrap_or_default(), record["partition"]);
            if let Value::Array(records) = partitions.entry(name).or_insert_with(|| json!([])) {
                records.push(record);
            }
        }
        let mut event =
            json!({ "eventSource": "SelfManagedKafka", "bootstrapServers": head.source, "records": partitions });
        if head.source.starts_with("arn:") {
            event["eventSource"] = "aws:kafka".into();
            event["eventSourceArn"] = head.source.as_str().into();
            event["bootstrapServers"] = "b-1.orders.example.c1.kafka.us-east-1.amazonaws.com:9092".into();
        }
        parts::event(&event)
    })
}

fn wire(record: &Record, number: u64, created: u64) -> Value {
    // Java's bytes are signed.
    let header = |value: &[u8]| value.iter().map(|byte| byte.cast_signed()).collect::<Vec<i8>>();
    let mut wire = json!({
        "topic": record.found("topic").unwrap_or("orders"),
        "partition": record.found("partition").map_or(0, parts::number::<u32>),
        "offset": record.found("offset").map_or(i64::try_from(number).unwrap_or(i64::MAX), parts::number),
        "timestamp": record.found("timestamp").map_or(created, parts::number),
        "timestampType": "CREATE_TIME",
        "headers": record.headers.iter().map(|(name, value)| json!({ name: header(value) })).collect::<Vec<_>>(),
    });
    let key = record.found("keyBase64").map(str::to_owned);
    let key = key.or_else(|| record.found("key").map(|key| BASE64_STANDARD.encode(key)));
    for (name, base64) in [("key", key), ("value", record.body().map(parts::base64))] {
        if let Some(base64) = base64 {
            wire[name] = base64.into();
        }
    }
    wire
}
