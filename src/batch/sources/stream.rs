//! The parts that Kinesis and DynamoDB streams share: order, checkpoints and the state of a window.
//!
//! ```
//! use lambda_once::{Failure, Key, batch::stream::StreamOrder, testing};
//!
//! #[derive(serde::Deserialize)]
//! struct Reading { celsius: f64 }
//!
//! async fn store(reading: Reading) -> Result<(), Failure> {
//!     Ok(())
//! }
//!
//! // Within a batch a failed reading blocks only readings of its sensor. The shard still resumes from it.
//! let service = testing::engine().kinesis(Key::message_id(), store).order(StreamOrder::Key);
//! ```

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::encoding::failures;
use crate::{
    batch::record::RecordInfo,
    error::{Error, ErrorKind, ErrorStatus},
};

/// The attribute that identifies a record in a stream.
pub(super) const SEQUENCE_NUMBER: &str = "sequenceNumber";

/// The scope in which the order of a stream's records is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamOrder {
    /// The shard. The records of a batch run one after the other, and a failure blocks all records behind it.
    #[default]
    Shard,
    /// The partition key in Kinesis, or the item in DynamoDB. Records of different keys run concurrently, and a failure
    /// blocks only records of its key. The stream still resumes from the first failure, and finished records behind it
    /// are replayed.
    Key,
    /// No order. All records run concurrently, and a failure blocks none. The stream still resumes from the first
    /// failure, and finished records behind it are replayed.
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

/// The state of a tumbling window, byte for byte, because its numbers may have more digits than any type here.
#[derive(Clone, Deserialize, Serialize)]
#[serde(transparent)]
pub struct WindowState(Box<RawValue>);

impl WindowState {
    /// Returns the JSON as received.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for WindowState {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

/// Shows no state, because it may contain payloads.
impl fmt::Debug for WindowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowState").field("bytes", &self.as_json().len()).finish()
    }
}

/// The response to a batch of a stream, with the record that Lambda resumes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StreamResponse {
    /// The sequence number of the first record that failed, if any, which is the only item of `batchItemFailures`.
    /// Lambda resumes from it, so further items would have no effect.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html>
    #[serde(rename = "batchItemFailures", serialize_with = "as_failures")]
    pub checkpoint: Option<String>,
    /// The state of a tumbling window as received. Handlers do not change it.
    /// <https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-windows.html>
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<WindowState>,
}

fn as_failures<S: Serializer>(checkpoint: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    failures(checkpoint.as_slice(), serializer)
}

impl StreamResponse {
    /// Makes the lowest sequence number that failed the checkpoint (B9).
    pub(super) fn new(state: Option<WindowState>, failed: &[Arc<RecordInfo>]) -> Self {
        let numbers = failed.iter().filter_map(|record| record.source_attribute(SEQUENCE_NUMBER));
        let checkpoint = numbers.min_by_key(|number| magnitude(number));
        Self { checkpoint: checkpoint.map(str::to_owned), state }
    }
}

/// Returns a key that orders decimal numbers of any length.
fn magnitude(number: &str) -> (usize, &str) {
    let digits = number.trim_start_matches('0');
    (digits.len(), digits)
}

/// Returns the error for an event with a record that the response could not identify.
pub(super) fn unnamed(source: &str) -> Error {
    let message = format!("a record of the event has no sequence number: this is not an event from {source}");
    Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_states_are_equal_if_their_json_is_the_same_text() {
        let state = |json: &str| serde_json::from_str::<WindowState>(json).unwrap();
        assert_eq!(state(r#"{"sum":1}"#), state(r#"{"sum":1}"#));
        assert_ne!(state(r#"{"sum":1}"#), state(r#"{"sum":1.0}"#));
    }

    // Tests B9.
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
