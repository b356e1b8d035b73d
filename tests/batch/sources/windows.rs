//! Tumbling windows, whose state is returned unchanged.

use lambda_once::Error;
use serde_json::{Value, json};

use crate::{
    sources::streams::{SHARD, Stream, on_both_streams, sequence_number},
    world::{World, order, work},
};

on_both_streams! {
    a_state_is_returned_byte_for_byte
    a_state_is_returned_together_with_a_checkpoint
    the_last_event_of_a_window_may_have_no_records
    outside_a_window_the_response_has_no_state
}

/// Numbers that none of our types can represent, unsorted members, and one that occurs in two places.
const STATE: &str =
    r#"{"z":{"sum":123456789012345678901234567890.10,"n":1e400},"a":[-0,1.0,9007199254740993],"":null}"#;

/// Invokes a service in a window with the text of an event, because `Value` could not represent the state either.
async fn in_window<S: Stream>(world: &World, state: &str, records: &[(&str, Value)]) -> Result<String, Error> {
    let mut event = S::event(0, records);
    event["window"] = json!({ "start": "2026-11-21T10:00:00Z", "end": "2026-11-21T10:02:00Z" });
    event["shardId"] = json!("shardId-000000000006");
    event["isFinalInvokeForWindow"] = json!(false);
    event["state"] = json!("STATE");
    S::invoke(world, SHARD, &event.to_string().replace(r#""STATE""#, state)).await
}

async fn a_state_is_returned_byte_for_byte<S: Stream>() {
    for state in [STATE, "{}", r#"{"1":"282","2":"715"}"#] {
        let answer = in_window::<S>(&World::new(), state, &[("a", order("0"))]).await.unwrap();
        assert_eq!(answer, format!(r#"{{"batchItemFailures":[],"state":{state}}}"#));
    }
}

async fn a_state_is_returned_together_with_a_checkpoint<S: Stream>() {
    let records = [order("0"), work("1", "transient", 0)].map(|job| ("a", job));
    let answer = in_window::<S>(&World::new(), STATE, &records).await.unwrap();
    let failure = format!(r#"{{"itemIdentifier":"{}"}}"#, sequence_number(1));
    assert_eq!(answer, format!(r#"{{"batchItemFailures":[{failure}],"state":{STATE}}}"#));
}

async fn the_last_event_of_a_window_may_have_no_records<S: Stream>() {
    let answer = in_window::<S>(&World::new(), STATE, &[]).await.unwrap();
    assert_eq!(answer, format!(r#"{{"batchItemFailures":[],"state":{STATE}}}"#));
}

async fn outside_a_window_the_response_has_no_state<S: Stream>() {
    let answer = in_window::<S>(&World::new(), "null", &[("a", order("0"))]).await.unwrap();
    assert_eq!(answer, r#"{"batchItemFailures":[]}"#);
}
