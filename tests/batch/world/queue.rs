//! Messages of a queue, and their deliveries.

use std::{fmt::Display, time::Duration};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_once::{
    Error, Key, RecordContext,
    batch::{BatchService, Handler, Processed, sqs::Sqs},
    clock::Clock,
    record::{KeyHash, Record, Status, StoredData, StoredResult},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tower_service::Service;

use super::{
    START, World,
    job::{Job, burn, order, perform, work},
    millis, seconds,
};

/// Returns a message as Lambda delivers it.
pub(crate) fn message(id: &str, body: &impl Display) -> Value {
    json!({
        "messageId": id,
        "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a",
        "body": body.to_string(),
        "attributes": {
            "ApproximateReceiveCount": "3",
            "SentTimestamp": "1795255200000",
            "SenderId": "AIDAEXAMPLE",
            "ApproximateFirstReceiveTimestamp": "1795255200012",
        },
        "messageAttributes": {},
        "md5OfBody": "00000000000000000000000000000000",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:orders",
        "awsRegion": "us-east-1",
    })
}

pub(crate) fn event(messages: impl IntoIterator<Item = Value>) -> SqsEvent {
    let messages: Vec<Value> = messages.into_iter().collect();
    serde_json::from_str(&json!({ "Records": messages }).to_string()).unwrap()
}

/// Returns one message per body, with the ids `m0`, `m1` and so on.
pub(crate) fn batch<B: Display>(bodies: impl IntoIterator<Item = B>) -> SqsEvent {
    event(bodies.into_iter().enumerate().map(|(i, body)| message(&format!("m{i}"), &body)))
}

/// Returns messages of a FIFO queue, each with its group, with the ids `m0`, `m1` and so on.
pub(crate) fn fifo<B: Display>(bodies: impl IntoIterator<Item = (&'static str, B)>) -> SqsEvent {
    event(bodies.into_iter().enumerate().map(|(i, (group, body))| {
        let mut message = message(&format!("m{i}"), &body);
        message["eventSourceARN"] = json!("arn:aws:sqs:us-east-1:123456789012:orders.fifo");
        message["attributes"]["MessageGroupId"] = json!(group);
        message["attributes"]["MessageDeduplicationId"] = json!(format!("d{i}"));
        message["attributes"]["SequenceNumber"] = json!(format!("{:020}", i));
        message
    }))
}

/// Returns the ids from `m{from}` up to, but not including, `m{to}`.
pub(crate) fn ids(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| format!("m{i}")).collect()
}

/// Returns the ids in the response.
pub(crate) fn reported(processed: &Processed<SqsBatchResponse>) -> Vec<String> {
    let response = processed.response.as_ref().unwrap();
    response.batch_item_failures.iter().map(|failure| failure.item_identifier.clone()).collect()
}

/// Invokes the service once, and returns the ids that are reported as failed.
pub(crate) async fn invoke<S>(service: &S, event: SqsEvent, context: Context) -> Result<Vec<String>, Error>
where
    S: Service<LambdaEvent<SqsEvent>, Response = SqsBatchResponse, Error = Error> + Clone,
{
    let response = service.clone().call(LambdaEvent::new(event, context)).await?;
    Ok(response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect())
}

impl World {
    /// Returns the service that performs the acts in its messages.
    pub(crate) fn service(
        &self,
    ) -> BatchService<Sqs, impl Handler<Job, (Job, RecordContext), Output = String> + use<>, Job, (Job, RecordContext)>
    {
        let (journal, block) = (self.journal.clone(), self.block);
        self.once.sqs(Key::pointer("/order_id"), move |job: Job, context: RecordContext| {
            let key = context.claim().map(|claim| claim.key());
            if job.act == "panic at once" {
                journal.begin(&job.order_id, key);
                burn();
            }
            perform(journal.clone(), block, job, key)
        })
    }

    /// Delivers messages with these bodies with a minute left, and returns the ids that are reported as failed.
    pub(crate) async fn deliver<B: Display>(&self, bodies: impl IntoIterator<Item = B>) -> Vec<String> {
        self.deliver_to(&self.service(), bodies).await
    }

    pub(crate) async fn deliver_to<S, B: Display>(
        &self,
        service: &S,
        bodies: impl IntoIterator<Item = B>,
    ) -> Vec<String>
    where
        S: Service<LambdaEvent<SqsEvent>, Response = SqsBatchResponse, Error = Error> + Clone,
    {
        invoke(service, batch(bodies), self.left(seconds(60))).await.unwrap()
    }

    /// Delivers an event with a minute left.
    pub(crate) async fn process<H, T, Args>(
        &self,
        service: &BatchService<Sqs, H, T, Args>,
        event: SqsEvent,
    ) -> Processed<SqsBatchResponse>
    where
        H: Handler<T, Args>,
        T: Send + 'static,
        Args: 'static,
    {
        self.process_within(service, event, seconds(60)).await
    }

    /// Delivers an event with this much time left.
    pub(crate) async fn process_within<H, T, Args>(
        &self,
        service: &BatchService<Sqs, H, T, Args>,
        event: SqsEvent,
        left: Duration,
    ) -> Processed<SqsBatchResponse>
    where
        H: Handler<T, Args>,
        T: Send + 'static,
        Args: 'static,
    {
        service.process(LambdaEvent::new(event, self.left(left))).await
    }

    /// Delivers an event with a minute left to an execution environment that dies in the middle of this run. Another
    /// one replaces it when its claims have ended.
    pub(crate) async fn process_and_die<H, T, Args>(
        &self,
        service: &BatchService<Sqs, H, T, Args>,
        event: SqsEvent,
        run: usize,
    ) where
        H: Handler<T, Args>,
        T: Send + 'static,
        Args: 'static,
    {
        let lapsed = START.after(millis(62_001));
        self.journal.die_in(run);
        tokio::select! {
            biased;
            () = self.journal.died() => {}
            processed = self.process(service, event) => panic!("it answered: {processed:?}"),
        }
        self.journal.revive();
        // The minute, the second after it, the margin, and a millisecond.
        tokio::time::advance(lapsed.since(self.clock.now())).await;
    }

    pub(crate) fn hash(&self, key: &str) -> KeyHash {
        self.once.key_hash("sqs", key).unwrap()
    }

    pub(crate) async fn record(&self, key: &str) -> Option<Record> {
        self.record_in("sqs", key).await
    }

    pub(crate) async fn status(&self, key: &str) -> Option<Status> {
        self.status_in("sqs", key).await
    }

    /// Stores a record that another delivery has left. In progress, its lease is 10 s.
    pub(crate) fn put(&self, key: &str, status: Status, result: &str) {
        let result = StoredResult::of(StoredData::Json(result.to_owned()));
        let lease_until = Some(self.clock.now().after(seconds(10)));
        self.memory.insert(self.hash(key), Record { lease_until, ..self.left_behind(status, result) });
    }

    /// Stores a claim without an outcome whose lease and margin have passed.
    pub(crate) fn abandon(&self, key: &str) {
        let lease_until = Some(self.clock.now().before(seconds(5)));
        let abandoned = Record { lease_until, ..self.left_behind(Status::InProgress, StoredResult::default()) };
        self.memory.insert(self.hash(key), abandoned);
    }

    /// Returns one message for each outcome that needs no concurrent invocation, and stores the records that some of
    /// them need.
    pub(crate) fn messages_of_every_outcome(&self) -> [Value; 14] {
        self.put("done", Status::Completed, "1");
        self.put("failed", Status::Failed, "1");
        self.put("running", Status::InProgress, "1");
        self.abandon("lost");
        [
            order("A"),
            work("B", "transient", 0),
            json!("not an order"),
            work("A", "succeed", 1),
            order("A"),
            work("C", "permanent", 0),
            work("D", "unknown", 0),
            work("E", "panic", 0),
            work("F", "hang", 0),
            order(""),
            order("done"),
            order("failed"),
            order("running"),
            order("lost"),
        ]
    }
}
