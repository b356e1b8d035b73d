//! Parts that the events of several sources share.

use std::str::FromStr;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    clock::{Clock, Timestamp},
    testing::TokioClock,
};

pub(super) fn now() -> Timestamp {
    TokioClock.now()
}

/// Serializes a payload as JSON.
pub(super) fn json<T: Serialize + ?Sized>(payload: &T) -> String {
    serde_json::to_string(payload).unwrap_or_else(|error| panic!("the payload cannot be JSON: {error}"))
}

/// Parses an attribute that is a number.
pub(super) fn number<N: FromStr>(text: &str) -> N {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is not a valid number for this attribute"))
}

/// Returns a JSON text unchanged.
pub(super) fn raw_text(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap_or_else(|error| panic!("not JSON: {error}"))
}

/// The ARN of a broker.
pub(super) const BROKER: &str =
    "arn:aws:mq:us-east-1:123456789012:broker:orders:b-00000000-0000-4000-8000-000000000000";

pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// The event of a stream with a tumbling window.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WindowEvent<'a> {
    #[serde(rename = "Records")]
    records: Vec<Value>,
    state: &'a RawValue,
    window: Value,
    shard_id: &'a str,
    #[serde(rename = "eventSourceARN")]
    source: &'a str,
    is_final_invoke_for_window: bool,
    is_window_terminated_early: bool,
}

/// Makes the event of a stream, with a tumbling window if there is a state.
pub(super) fn stream_event<E: DeserializeOwned>(records: Vec<Value>, state: Option<&RawValue>, source: &str) -> E {
    let Some(state) = state else { return event(&json!({ "Records": records })) };
    event(&WindowEvent {
        records,
        state,
        window: json!({ "start": "2027-01-31T12:00:00Z", "end": "2027-01-31T12:05:00Z" }),
        shard_id: "shardId-000000000000",
        source,
        is_final_invoke_for_window: false,
        is_window_terminated_early: false,
    })
}

/// Serializes a value as raw JSON.
pub(super) fn raw<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|error| panic!("it cannot be JSON: {error}"))
}

/// Deserializes an event as Lambda's runtime does.
pub(super) fn event<E: DeserializeOwned>(event: &impl Serialize) -> E {
    serde_json::from_str(&json(event)).unwrap_or_else(|error| panic!("not an event of this source: {error}"))
}

/// Returns a time in seconds with a fraction, as in streams.
pub(super) fn seconds(time: Timestamp) -> f64 {
    std::time::Duration::from_millis(time.as_millis()).as_secs_f64()
}

/// Formats a time by RFC 3339, such as `2027-01-31T12:00:00.000Z`.
pub(super) fn rfc3339(time: Timestamp) -> String {
    let (day, second) = (time.seconds_rounded_down() / 86_400, time.seconds_rounded_down() % 86_400);
    // Years are counted from March, so that the leap day comes last. An era of 400 years begins 719,468 days before
    // 1970.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year + u64::from(month >= 10), if month < 10 { month + 3 } else { month - 9 });
    let (hour, minute, second, milli) = (second / 3_600, second / 60 % 60, second % 60, time.as_millis() % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_with_the_date_of_its_day() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_seconds(seconds)), date);
        }
    }
}
