//! Messages in the envelopes of SNS, EventBridge and S3.
//!
//! The files in `events/` come from other projects. Those in queues were made by `moto` 5.2, an implementation of AWS
//! services for tests. The rest are from AWS's documentation: the fixtures of `aws_lambda_events` 1.2, and the examples
//! of S3 events on EventBridge.

mod eventbridge;
mod ignored;
mod malformed;
mod order;
mod s3;
mod s3_by_eventbridge;
mod sns;

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use lambda_once::batch::{BatchService, Handler, Processed, Source};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};

/// Returns the records of an event file.
macro_rules! events {
    ($name:literal) => {
        serde_json::from_str::<aws_lambda_events::sqs::SqsEvent>(include_str!(concat!("events/", $name, ".json")))
            .unwrap()
    };
}
pub(crate) use events;

/// Delivers an event once.
pub(crate) async fn deliver<S: Source, H: Handler<T, A>, T: Send + 'static, A: 'static>(
    service: &BatchService<S, H, T, A>,
    event: S::Event,
) -> Processed<S::Response> {
    service.process(LambdaEvent::new(event, lambda_once::testing::context(lambda_once::testing::TIME_LEFT))).await
}

/// Returns a batch of queue messages with these bodies, `m-1` and so on.
pub(crate) fn batch(bodies: &[&str]) -> SqsEvent {
    batch_of("arn:aws:sqs:us-east-1:123456789012:orders", bodies)
}

pub(crate) fn batch_of(queue: &str, bodies: &[&str]) -> SqsEvent {
    let message = |(i, body): (usize, &&str)| {
        json!({
            "messageId": format!("m-{}", i + 1), "body": body, "eventSourceARN": queue,
            "attributes": { "MessageGroupId": "group", "ApproximateReceiveCount": "1" }, "messageAttributes": {},
        })
    };
    let records: Vec<Value> = bodies.iter().enumerate().map(message).collect();
    serde_json::from_value(json!({ "Records": records })).unwrap()
}

/// Returns a batch of one message.
pub(crate) fn one(message: SqsMessage) -> SqsEvent {
    let mut event = batch(&[]);
    event.records.push(message);
    event
}

/// Returns the ids in the response.
pub(crate) fn answer(processed: &Processed<aws_lambda_events::sqs::SqsBatchResponse>) -> Vec<&str> {
    let failures = &processed.response.as_ref().unwrap().batch_item_failures;
    failures.iter().map(|failure| &*failure.item_identifier).collect()
}
