//! Kinesis data streams as a source.
//!
//! ```
//! use lambda_once::{Failure, Key, testing::{self, kinesis}};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order { order_id: String }
//!
//! async fn book(order: Order) -> Result<(), Failure> {
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let service = testing::engine().kinesis(Key::pointer("/order_id"), book);
//! let batch = kinesis::batch(["7", "8"].map(|id| testing::record(&Order { order_id: id.into() })));
//! testing::deliver_twice(&service, &batch).await.assert_once();
//! # }
//! ```

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Number;

use super::{
    encoding::base64,
    stream::{SEQUENCE_NUMBER, StreamOrder, StreamResponse, WindowState, unnamed},
};
use crate::{
    batch::{
        handler::Handler,
        messaging::Messaging,
        raw_json::{keeps_json, listed},
        record::RecordInfo,
        service::BatchService,
        source::{FailureReporting, Source},
    },
    decoding::decode,
    error::Error,
    idempotency::handle::Idempotency,
    key::selector::Key,
};

/// Records of a Kinesis data stream, in the order of their shard.
///
/// A record's id is its `eventID` (the shard and the sequence number), which is unique within the stream. Its
/// attributes are `partitionKey`, `sequenceNumber` and `approximateArrivalTimestamp` (seconds).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Kinesis {
    order: StreamOrder,
}

/// A batch of a Kinesis data stream, with or without a tumbling window.
/// <https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html>
#[doc(hidden)]
#[derive(Debug, Deserialize)]
pub struct KinesisEvent {
    #[serde(rename = "Records")]
    records: Vec<KinesisRecord>,
    #[serde(default)]
    state: Option<WindowState>,
}

/// A record of a `KinesisEvent`.
#[doc(hidden)]
#[derive(Deserialize)]
pub struct KinesisRecord {
    kinesis: Data,
    #[serde(rename = "eventID", default)]
    event_id: Option<String>,
    #[serde(rename = "eventSourceARN", default)]
    stream: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    #[serde(default)]
    partition_key: String,
    #[serde(default)]
    sequence_number: String,
    #[serde(deserialize_with = "base64")]
    data: Vec<u8>,
    #[serde(default)]
    approximate_arrival_timestamp: Option<Number>,
}

/// Returns the stream's ARN. A consumer's ARN extends it, for example by the time of its registration.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_ConsumerDescription.html>
fn stream(mut source: String) -> String {
    if let Some(end) = source.find("/consumer/") {
        source.truncate(end);
    }
    source
}

impl std::fmt::Debug for KinesisRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KinesisRecord").field("event_id", &self.event_id).finish_non_exhaustive()
    }
}

impl Source for Kinesis {
    type Event = KinesisEvent;
    type Record = KinesisRecord;
    /// The state of a tumbling window.
    type Rest = Option<WindowState>;
    type Body = Vec<u8>;
    type Response = StreamResponse;

    const OPERATION: &'static str = "kinesis";
    // Also without an order, because a failure causes redelivery of all records behind it.
    const WAITS_FOR_LEASE: bool = true;
    const REPORTING: FailureReporting = FailureReporting::FirstFailure;

    fn split(&self, event: KinesisEvent) -> Result<(Vec<KinesisRecord>, Option<WindowState>), Error> {
        if event.records.iter().any(|record| record.kinesis.sequence_number.is_empty()) {
            return Err(unnamed("Kinesis"));
        }
        Ok((event.records, event.state))
    }

    fn lane<'a>(&self, record: &'a KinesisRecord) -> Option<Cow<'a, str>> {
        self.order.lane(|| Cow::Borrowed(&record.kinesis.partition_key))
    }

    fn open(&self, record: KinesisRecord) -> (RecordInfo, Vec<u8>) {
        let Data { partition_key, sequence_number, data, approximate_arrival_timestamp } = record.kinesis;
        let id = record.event_id.unwrap_or_else(|| sequence_number.clone());
        let mut info = RecordInfo::local(record.stream.map(stream), id)
            .with_attribute("partitionKey", partition_key)
            .with_attribute(SEQUENCE_NUMBER, sequence_number);
        if let Some(time) = approximate_arrival_timestamp {
            info = info.with_attribute("approximateArrivalTimestamp", time.to_string());
        }
        (info, data)
    }

    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        // A record's id consists of its shard, a colon and its number.
        let shard = record.id().split_once(':').map(|(shard, _)| shard);
        Messaging { partition: shard, ..Messaging::of("aws.kinesis", record.source()) }
    }

    fn respond(&self, state: Option<WindowState>, failed: &[Arc<RecordInfo>]) -> Result<StreamResponse, Error> {
        Ok(StreamResponse::new(state, failed))
    }
}

keeps_json!(Kinesis, listed);

impl<H, T, Args> BatchService<Kinesis, H, T, Args> {
    /// Sets the scope in which the order of records is kept. Default: the shard.
    pub fn order(self, order: StreamOrder) -> Self {
        self.map_source(|source| source.order = order)
    }
}

impl Idempotency {
    /// Makes a service for a Kinesis data stream, which runs `handler` for each record, once per `key`. The data is
    /// JSON.
    ///
    /// The records of a partition key have the order of their shard. A stream with the record distribution strategy
    /// `AUTO` ignores partition keys, so that the records of one key are in several shards without order. Use
    /// `ordered_by` for such streams.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_runtime::Error> {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::stream::StreamOrder};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Reading { sensor: String, celsius: f64 }
    ///
    /// async fn store(reading: Reading) -> Result<(), Failure> {
    ///     Ok(())
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// let service = once.kinesis(Key::message_id(), store).order(StreamOrder::Key);
    /// lambda_runtime::run(service).await
    /// # }
    /// ```
    #[track_caller]
    pub fn kinesis<H, T, Args>(&self, key: Key, handler: H) -> BatchService<Kinesis, H, T, Args>
    where
        H: Handler<T, Args>,
        T: DeserializeOwned + Send + 'static,
    {
        self.batch(Kinesis::default(), key, |_, data| decode(data).map_err(Into::into), handler)
    }
}
