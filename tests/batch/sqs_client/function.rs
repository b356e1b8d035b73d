//! A function with a handler that performs the acts in its messages.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_once::{
    Classify, Failure, Idempotency, Key, MemoryStore,
    batch::{
        BatchService, Handler, Processed,
        envelope::{Content, Envelope, EnvelopeError, Message},
        sqs::Sqs,
    },
    clock::{Clock, ManualClock},
    record::{Record, Status},
    store::fault::FaultStore,
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use std::time::Duration;

use crate::sqs_client::clock::FUTURE;

pub(crate) const ARN: &str = "arn:aws:sqs:us-east-1:123456789012:orders";
pub(crate) const URL: &str = "https://sqs.us-east-1.amazonaws.com/123456789012/orders";

/// Returns a message of the queue with this ARN, on its first delivery, with a separate key and receipt handle.
pub(crate) fn message(arn: &str, id: &str, act: &str) -> Value {
    json!({
        "messageId": id,
        "receiptHandle": format!("receipt of {id}"),
        "body": json!({ "id": id, "act": act }).to_string(),
        "attributes": { "ApproximateReceiveCount": "1" },
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
    })
}

pub(crate) fn event(messages: impl IntoIterator<Item = Value>) -> SqsEvent {
    let messages: Vec<Value> = messages.into_iter().collect();
    serde_json::from_value(json!({ "Records": messages })).unwrap()
}

/// Returns the ids of the messages in the response.
pub(crate) fn reported(processed: &Processed<SqsBatchResponse>) -> Vec<String> {
    let response = processed.response.as_ref().unwrap();
    response.batch_item_failures.iter().map(|failure| failure.item_identifier.clone()).collect()
}

/// An envelope whose messages have an attribute with the name of the message group.
#[derive(Clone, Debug)]
pub(crate) struct Grouped;

impl Envelope for Grouped {
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
        let message = Message::new(String::from_utf8_lossy(body)).with_attribute("MessageGroupId", "inside");
        Ok(Content::Messages(vec![message]))
    }
}

pub(crate) struct Function {
    pub(crate) clock: ManualClock,
    pub(crate) memory: MemoryStore,
    pub(crate) store: FaultStore<MemoryStore>,
    pub(crate) once: Idempotency,
}

impl Function {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::at(FUTURE);
        let memory = MemoryStore::with_clock(clock.clone());
        let store = FaultStore::new(memory.clone(), 0);
        let once = Idempotency::builder(store.clone()).clock(clock.clone()).named("tests").disabled(false);
        Self { clock, memory, store, once: once.build().unwrap() }
    }

    pub(crate) fn service(&self) -> BatchService<Sqs, impl Handler<Value, (Value,)> + use<>, Value, (Value,)> {
        self.once.sqs(Key::pointer("/id"), |order: Value| async move {
            // Concurrent handlers have begun before the first of them ends.
            tokio::task::yield_now().await;
            let error = || Err::<(), _>(std::io::Error::other("the shop is closed"));
            match order["act"].as_str().unwrap_or_default() {
                "transient" => error()?,
                "permanent" => error().permanent()?,
                "unknown" => error().unknown()?,
                "panic" => std::panic::resume_unwind(Box::new("the shop is on fire")),
                _ => {}
            }
            Ok::<_, Failure>(())
        })
    }

    /// Stores a claim of another invocation, with this much of its lease left.
    pub(crate) fn hold(&self, id: &str, left: Duration) {
        let record = Record {
            attempt: 1,
            lease_until: Some(self.clock.now().after(left)),
            expiration: Some(self.clock.now().after(left + Duration::from_secs(3_600)).seconds_rounded_up()),
            ..Record::new(Status::InProgress)
        };
        self.memory.insert(self.once.key_hash("sqs", id).unwrap(), record);
    }

    /// Returns the context of an invocation with a minute left.
    pub(crate) fn context(&self) -> Context {
        let mut context = Context::default();
        context.deadline = self.clock.now().after(Duration::from_secs(60)).as_millis();
        context
    }

    pub(crate) async fn process<H, T, Args>(
        &self,
        service: &BatchService<Sqs, H, T, Args>,
        messages: impl IntoIterator<Item = Value>,
    ) -> Processed<SqsBatchResponse>
    where
        H: Handler<T, Args>,
        T: Send + 'static,
        Args: 'static,
    {
        service.process(LambdaEvent::new(event(messages), self.context())).await
    }
}
