//! Messages in the envelopes of SNS, EventBridge and S3 within a queue, with changes in any place, also inside.

use std::collections::BTreeSet;

use lambda_once::{
    Key,
    batch::envelope::{Envelope, EventBridge, S3, Sns},
    testing,
};
use lambda_once_fuzz::{input::Input, target};
use serde_json::Value;

use crate::events::{Served, Taken, failures, mutated, none, served};

/// Returns the text of a file with an envelope.
macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../../../tests/batch/envelopes/events/", $name, ".json"))
    };
}

/// Serves a mutated file. Returns the result, the bodies of the messages that were acknowledged, and the values that
/// the handler took.
fn unwrapped(bytes: &[u8], envelope: impl Envelope, files: &[&str]) -> Option<(Served, Vec<Value>, Taken)> {
    let event = mutated(&mut Input::new(bytes), files)?;
    let taken = Taken::default();
    let served = served(&testing::engine().sqs(Key::message_id(), taken.handler()).envelope(envelope), &event, &taken)?;
    let records = event.value["Records"].as_array().cloned().unwrap_or_default();
    let mut acknowledged = Vec::new();
    if let Some(response) = &served.response {
        let failed = failures(response);
        for id in &failed {
            assert!(records.iter().any(|record| record["messageId"] == *id), "{id} is not in the event");
        }
        let others = records.iter().filter(|record| !failed.contains(&record["messageId"]));
        acknowledged
            .extend(others.map(|record| serde_json::from_str(record["body"].as_str().unwrap()).unwrap_or_default()));
        for (id, reported) in &served.reports {
            assert!(!reported || failed.contains(&Value::from(&**id)), "{id} is reported, and not in the response");
        }
    }
    Some((served, acknowledged, taken))
}

/// Returns the JSON in a text.
fn inside(text: &Value) -> Option<Value> {
    serde_json::from_str(text.as_str()?).ok()
}

target!(
    /// SNS in SQS, with and without raw delivery.
    sns,
    |bytes| {
        let files = [sample!("sns-in-sqs"), sample!("sns-fifo-in-sqs"), sample!("sns-raw-in-sqs")];
        let Some((served, acknowledged, taken)) = unwrapped(bytes, Sns, &files) else { return none() };
        for body in acknowledged {
            // A body that is not a notification is the message itself.
            let payloads = [inside(&body["Message"]), Some(body.clone())];
            assert!(payloads.iter().flatten().any(|payload| taken.has(payload)), "lost: {body}");
        }
        served.kind
    }
);

target!(
    /// EventBridge in SQS.
    eventbridge,
    |bytes| {
        let Some((served, acknowledged, taken)) = unwrapped(bytes, EventBridge, &[sample!("eventbridge-in-sqs")]) else {
            return none();
        };
        for body in acknowledged {
            let detail = inside(&body["detail"]).unwrap_or_else(|| body["detail"].clone());
            assert!(taken.has(&detail), "lost: {body}");
        }
        served.kind
    }
);

/// Returns the objects of the notifications of S3.
fn objects<'a>(notifications: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    let records = notifications.into_iter().filter_map(|notification| notification["Records"].as_array()).flatten();
    records.map(|record| format!("{} {}", record["s3"]["bucket"]["name"], record["s3"]["object"]["key"])).collect()
}

target!(
    /// S3 in SQS. An object for each run.
    s3,
    |bytes| {
        let files = [sample!("s3-in-sqs")];
        let Some((served, acknowledged, taken)) = unwrapped(bytes, S3, &files) else { return none() };
        assert!(objects(&acknowledged).len() <= taken.count(), "lost: {acknowledged:?}");
        served.kind
    }
);

target!(
    /// S3 in SNS in SQS.
    s3_in_sns,
    |bytes| {
        let files = [sample!("s3-in-sns-in-sqs")];
        let Some((served, acknowledged, taken)) = unwrapped(bytes, (Sns, S3), &files) else { return none() };
        let notifications: Vec<Value> =
            acknowledged.iter().map(|body| inside(&body["Message"]).unwrap_or_else(|| body.clone())).collect();
        assert!(objects(&notifications).len() <= taken.count(), "lost: {acknowledged:?}");
        served.kind
    }
);
