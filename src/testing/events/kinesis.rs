//! Batches of Kinesis data streams.
//!
//! ```
//! use lambda_once::testing::kinesis;
//!
//! let reading = serde_json::json!({ "sensor": "s-1", "celsius": 21.5 });
//! let batch = kinesis::batch([kinesis::record(&reading).partition_key("s-1"), kinesis::bytes([0, 255])]);
//! ```

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::parts;
use crate::{
    batch::kinesis::KinesisEvent,
    clock::Timestamp,
    testing::{Redeliver, unique},
};

/// A record, before a stream has it.
#[derive(Clone, Debug)]
pub struct Record {
    data: Vec<u8>,
    partition_key: String,
    sequence_number: Option<String>,
}

/// A batch of one shard of a stream. Every delivery is the same.
#[derive(Clone, Debug)]
pub struct Batch {
    source: String,
    arrived: Timestamp,
    state: Option<Box<RawValue>>,
    /// Each with the number that it has in the stream.
    records: Vec<(u64, Record)>,
}

/// A record whose data is this, in JSON.
///
/// # Panics
///
/// If it cannot be JSON.
pub fn record<T: Serialize + ?Sized>(data: &T) -> Record {
    bytes(parts::json(data))
}

/// A record with this data.
pub fn bytes(data: impl Into<Vec<u8>>) -> Record {
    Record { data: data.into(), partition_key: "key".to_owned(), sequence_number: None }
}

/// Records of a shard, arrived now. Each that has no sequence number gets one of its own, which follows on the one before.
pub fn batch(records: impl IntoIterator<Item = Record>) -> Batch {
    Batch {
        source: "arn:aws:kinesis:us-east-1:123456789012:stream/orders".to_owned(),
        arrived: parts::now(),
        state: None,
        records: records.into_iter().map(|record| (unique::number(), record)).collect(),
    }
}

impl Record {
    /// Its partition key. Default: the same for all.
    #[must_use]
    pub fn partition_key(mut self, key: impl Into<String>) -> Self {
        self.partition_key = key.into();
        self
    }

    /// Its sequence number, which is a part of its id.
    #[must_use]
    pub fn sequence_number(mut self, number: impl Into<String>) -> Self {
        self.sequence_number = Some(number.into());
        self
    }

    fn wire(&self, source: &str, arrived: Timestamp, number: u64) -> Value {
        let drawn = || format!("4959033827149025660855969253836157109{number:019}");
        let sequence_number = self.sequence_number.clone().unwrap_or_else(drawn);
        json!({
            "kinesis": {
                "kinesisSchemaVersion": "1.0",
                "partitionKey": self.partition_key,
                "sequenceNumber": sequence_number,
                "data": parts::base64(&self.data),
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
}

impl Batch {
    /// The ARN of the stream.
    #[must_use]
    pub fn source(mut self, arn: impl Into<String>) -> Self {
        self.source = arn.into();
        self
    }

    /// The state of a tumbling window.
    ///
    /// # Panics
    ///
    /// If it cannot be JSON.
    #[must_use]
    pub fn state<T: Serialize + ?Sized>(mut self, state: &T) -> Self {
        self.state = Some(parts::raw(state));
        self
    }
}

impl Redeliver for Batch {
    type Event = KinesisEvent;

    fn delivery(&self, _: u32) -> KinesisEvent {
        let wire = |(number, record): &(u64, Record)| record.wire(&self.source, self.arrived, *number);
        let records: Vec<Value> = self.records.iter().map(wire).collect();
        parts::stream_event(records, self.state.as_deref(), &self.source)
    }
}
