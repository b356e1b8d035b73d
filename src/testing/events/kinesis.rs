//! Builds batches of Kinesis data streams.
//!
//! ```
//! use lambda_once::testing::{self, kinesis};
//!
//! let reading = serde_json::json!({ "sensor": "s-1", "celsius": 21.5 });
//! let batch = kinesis::batch([testing::record(&reading).attribute("partitionKey", "s-1"), testing::bytes([0, 255])]);
//! ```

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    parts,
    records::{Batch, Known, Record},
};
use crate::{batch::kinesis::KinesisEvent, clock::Timestamp, testing::unique};

const KNOWN: Known = Known { attributes: &["partitionKey", "sequenceNumber"], has_ids: false, has_headers: false };

/// Makes a batch of a shard, arrived now. Every delivery is the same.
///
/// The default partition key is the same for all records. Each record without a sequence number, which is a part of its
/// id, gets a unique one, in ascending order.
///
/// # Panics
///
/// If an attribute is unknown.
#[track_caller]
pub fn batch(records: impl IntoIterator<Item = Record>) -> Batch<KinesisEvent> {
    let arrived = parts::now();
    // Each record with its number in the stream.
    let records: Vec<(u64, Record)> =
        records.into_iter().map(|record| (unique::number(), record.with_known(KNOWN))).collect();
    Batch::new("arn:aws:kinesis:us-east-1:123456789012:stream/orders", move |head, _| {
        let wire = |(number, record): &(u64, Record)| wire(record, &head.source, arrived, *number);
        parts::stream_event(records.iter().map(wire).collect(), head.state.as_deref(), &head.source)
    })
}

fn wire(record: &Record, source: &str, arrived: Timestamp, number: u64) -> Value {
    let drawn = || format!("4959033827149025660855969253836157109{number:019}");
    let sequence_number = record.found("sequenceNumber").map_or_else(drawn, str::to_owned);
    json!({
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": record.found("partitionKey").unwrap_or("key"),
            "sequenceNumber": sequence_number,
            "data": parts::base64(record.data()),
            "approximateArrivalTimestamp": parts::seconds(arrived),
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": format!("shardId-000000000000:{sequence_number}"),
        "eventName": "aws:kinesis:record",
        "invokeIdentityArn": "arn:aws:iam::123456789012:role/testing",
        "awsRegion": "us-east-1",
        "eventSourceARN": source,
    })
}

impl Batch<KinesisEvent> {
    /// Sets the state of a tumbling window.
    ///
    /// # Panics
    ///
    /// If it cannot be serialized as JSON.
    #[must_use]
    pub fn state<T: Serialize + ?Sized>(self, state: &T) -> Self {
        self.with_state(state)
    }
}
