//! Shared by Kinesis and DynamoDB streams: order within a shard, checkpoints, and the state of a window.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::encoding::failures;
use crate::{
    batch::record::RecordInfo,
    error::{Error, ErrorKind, ErrorStatus},
};

/// The attribute by which a stream knows its records.
pub(super) const SEQUENCE_NUMBER: &str = "sequenceNumber";

/// What the order of a stream's records is kept within.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamOrder {
    /// The shard: the records of a batch run one after the other, and a failure blocks everything behind it.
    #[default]
    Shard,
    /// The partition key in Kinesis, the item in DynamoDB: records of different ones run side by side, and a failure holds
    /// up its own only. The stream goes back to the first failure all the same, and what was done behind it is replayed.
    Key,
    /// None: all records run side by side, and a failure holds up nothing. The stream goes back to the first failure all the
    /// same, and what was done behind it is replayed.
    None,
}

impl StreamOrder {
    pub(super) fn lane<'a>(self, key: impl FnOnce() -> Cow<'a, str>) -> Option<Cow<'a, str>> {
        match self {
            Self::Shard => Some(Cow::Borrowed("")),
            Self::Key => Some(key()),
            Self::None => None,
        }
    }
}

/// The state of a tumbling window, byte for byte: its numbers may have more digits than any type of ours.
#[derive(Clone, Deserialize, Serialize)]
#[serde(transparent)]
pub struct WindowState(Box<RawValue>);

impl WindowState {
    /// As it came, in JSON.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for WindowState {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

/// Shows no state: it is made of payloads.
impl fmt::Debug for WindowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowState").field("bytes", &self.as_json().len()).finish()
    }
}

/// The answer to a batch of a stream: where Lambda shall go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StreamResponse {
    /// The sequence number of the first record that failed, if any did: the one item of `batchItemFailures`. Lambda goes on from
    /// there, so more would say nothing.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html>
    #[serde(rename = "batchItemFailures", serialize_with = "as_failures")]
    pub checkpoint: Option<String>,
    /// The state of a tumbling window, as it came: handlers do not change it.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-windows.html>
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<WindowState>,
}

fn as_failures<S: Serializer>(checkpoint: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    failures(checkpoint.as_slice(), serializer)
}

impl StreamResponse {
    pub(super) fn new(state: Option<WindowState>, failed: &[Arc<RecordInfo>]) -> Self {
        let numbers = failed.iter().filter_map(|record| record.attribute(SEQUENCE_NUMBER));
        let checkpoint = numbers.min_by_key(|number| magnitude(number));
        Self { checkpoint: checkpoint.map(str::to_owned), state }
    }
}

/// Orders decimal numbers of any length.
fn magnitude(number: &str) -> (usize, &str) {
    let digits = number.trim_start_matches('0');
    (digits.len(), digits)
}

/// An event in which a record could not be named.
pub(super) fn unnamed(source: &str) -> Error {
    let message = format!("a record of the event has no sequence number: this is not an event from {source}");
    Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_sequence_number_of_any_length_is_the_checkpoint() {
        let record = |number: &str| Arc::new(RecordInfo::new("").with_attribute(SEQUENCE_NUMBER, number));
        let checkpoint = |numbers: &[&str]| {
            let failed: Vec<_> = numbers.iter().map(|number| record(number)).collect();
            StreamResponse::new(None, &failed).checkpoint
        };
        assert_eq!(checkpoint(&[]), None);
        assert_eq!(checkpoint(&["10", "9", "11"]).as_deref(), Some("9"));
        assert_eq!(checkpoint(&["0010", "9"]).as_deref(), Some("9"));
        let long = "49590338271490256608559692538361571095921575989136588898";
        assert_eq!(
            checkpoint(&[long, "49590338271490256608559692540925702759324208523137515618"]).as_deref(),
            Some(long)
        );
    }
}
