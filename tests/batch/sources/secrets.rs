//! `Debug` shows no payload, header or state.

use std::fmt::Debug;

use lambda_once::batch::{
    RecordInfo, Source, dynamodb::DynamoDbStream, eventbridge::EventBridge, kafka::Kafka, kinesis::Kinesis, mq::Mq,
    sns::Sns,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    sources::{dynamodb, kafka, kinesis, mq, sns},
    world::{base64, order, parse},
};

/// Returns the `Debug` output of an event, its records and their contexts, and the bodies.
fn shown<S: Source>(source: &S, event: &Value) -> (String, Vec<S::Body>)
where
    S::Event: DeserializeOwned + Debug,
    S::Record: Debug,
{
    let event: S::Event = parse(&event.to_string()).unwrap();
    let mut shown = format!("{event:?}");
    let records = source.split(event).unwrap().0;
    shown += &format!("{records:?}");
    let (infos, bodies): (Vec<RecordInfo>, Vec<S::Body>) =
        records.into_iter().map(|record| source.open(record)).unzip();
    assert!(!infos.is_empty());
    (shown + &format!("{infos:?}"), bodies)
}

fn hides(shown: &str) {
    for secret in ["secret", "115, 101, 99, 114, 101, 116", &base64("secret")] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn an_event_and_its_records_show_no_payload() {
    let secret = order("secret");
    let mut windowed = json!({ "Records": [kinesis::record(0, "a", "secret")] });
    windowed["state"] = json!({ "sum": "secret" });
    hides(&shown(&Kinesis::default(), &windowed).0);

    let (text, changes) =
        shown(&DynamoDbStream::default(), &json!({ "Records": [dynamodb::record(0, "secret", &secret)] }));
    hides(&(text + &format!("{changes:?}")));

    let mut record = kafka::record(0, 1, &json!("secret"));
    record["key"] = json!(base64("secret"));
    record["headers"] = json!([{ "id": b"secret" }]);
    let (text, values) = shown(&Kafka, &kafka::event([record]));
    hides(&(text + &format!("{values:?}")));

    let mut active = mq::active("ID:1", &secret);
    active["properties"] = json!({ "id": "secret" });
    hides(&shown(&Mq, &mq::active_event([active])).0);
    let mut rabbit = mq::rabbit(None, &secret);
    rabbit["basicProperties"]["headers"] = json!({ "id": { "bytes": b"secret" } });
    hides(&shown(&Mq, &mq::rabbit_event([("orders::/", rabbit)])).0);

    let mut message = sns::event("m-1", &secret);
    message["Records"][0]["Sns"]["MessageAttributes"]["order_id"]["Value"] = json!("secret");
    hides(&shown(&Sns, &message).0);

    let (text, details) = shown(&EventBridge, &json!({ "id": "e-1", "detail": secret }));
    hides(&(text + &format!("{details:?}")));
}
