//! A queue, a store and a handler that does what its messages say.

use std::{
    collections::HashMap,
    fmt::Display,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_once::{
    Classify, Error, Failure, Idempotency, Key, MemoryStore, Store,
    batch::{Handler, sqs::SqsService},
    clock::{Clock, Timestamp},
    idempotency::Builder,
    record::{KeyHash, RECORD_VERSION, Record, Status, StoredData, StoredResult},
    store::{
        ResultData,
        fault::{Call, FaultStore},
    },
};
use lambda_runtime::{Context, LambdaEvent};
use serde::Deserialize;
use serde_json::{Value, json};
use tower_service::Service;

use crate::sqs::{clock::TokioClock, spy::Spy};

/// When every test begins.
pub(crate) use crate::sqs::clock::FUTURE as START;

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What the handler is told to do.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Job {
    order_id: String,
    act: String,
    ms: u64,
}

/// The body of a message: work for `millis`, then do `act`.
pub(crate) fn work(key: &str, act: &str, millis: u64) -> Value {
    json!({ "order_id": key, "act": act, "ms": millis })
}

/// The body of a message whose handler succeeds at once.
pub(crate) fn order(key: &str) -> Value {
    work(key, "succeed", 0)
}

/// A message as Lambda delivers it.
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

/// One message for each body, with the ids `m0`, `m1` and so on.
pub(crate) fn batch<B: Display>(bodies: impl IntoIterator<Item = B>) -> SqsEvent {
    event(bodies.into_iter().enumerate().map(|(i, body)| message(&format!("m{i}"), &body)))
}

/// Messages of a FIFO queue, each with its group, with the ids `m0`, `m1` and so on.
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

/// `n` orders with keys of their own.
pub(crate) fn orders(n: usize, act: &str, millis: u64) -> Vec<Value> {
    (0..n).map(|i| work(&format!("order-{i}"), act, millis)).collect()
}

/// The ids `m{from}` up to, but not including, `m{to}`.
pub(crate) fn ids(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| format!("m{i}")).collect()
}

/// What the handler did.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) key: String,
    pub(crate) began: Timestamp,
    /// When it returned, panicked or was dropped.
    pub(crate) ended: Option<Timestamp>,
    /// Whether it came to its last line.
    pub(crate) succeeded: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Journal {
    clock: TokioClock,
    spy: Spy,
    runs: Arc<Mutex<Vec<Run>>>,
    most_at_once: Arc<Mutex<usize>>,
}

impl Journal {
    pub(crate) fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    /// The keys whose handlers were started, in the order of their start.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.runs().into_iter().map(|run| run.key).collect()
    }

    pub(crate) fn times_run(&self) -> HashMap<String, usize> {
        self.keys().into_iter().fold(HashMap::new(), |mut times, key| {
            *times.entry(key).or_default() += 1;
            times
        })
    }

    pub(crate) fn most_at_once(&self) -> usize {
        *self.most_at_once.lock().unwrap()
    }

    fn begin(&self, job: &Job) -> Entry {
        let mut runs = self.runs.lock().unwrap();
        let key = job.order_id.clone();
        runs.push(Run { key, began: self.clock.now(), ended: None, succeeded: false });
        let at_once = runs.iter().filter(|run| run.ended.is_none()).count();
        let mut most = self.most_at_once.lock().unwrap();
        *most = at_once.max(*most);
        Entry { journal: self.clone(), index: runs.len() - 1 }
    }
}

/// A run under way; its end is noted however it ends.
struct Entry {
    journal: Journal,
    index: usize,
}

impl Entry {
    fn note(&self, change: impl FnOnce(&mut Run)) {
        change(&mut self.journal.runs.lock().unwrap()[self.index]);
    }

    fn runs_of(&self, key: &str) -> usize {
        self.journal.runs().iter().filter(|run| run.key == key).count()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let now = self.journal.clock.now();
        self.note(|run| run.ended = Some(now));
        self.journal.spy.handler_ended();
    }
}

/// A panic, without its lines on standard error.
fn burn() -> ! {
    std::panic::resume_unwind(Box::new("the shop is on fire"))
}

async fn perform(journal: Journal, job: Job) -> Result<String, Failure> {
    let entry = journal.begin(&job);
    if job.ms > 0 {
        tokio::time::sleep(millis(job.ms)).await;
    }
    let error = || Err(std::io::Error::other("the shop is closed"));
    match job.act.as_str() {
        "succeed" => {}
        "transient" => error()?,
        "transient once" if entry.runs_of(&job.order_id) == 1 => error()?,
        "transient once" => {}
        "permanent" => error().permanent()?,
        "unknown" => error().unknown()?,
        "panic" => burn(),
        "hang" => std::future::pending().await,
        other => panic!("no such act: {other}"),
    }
    entry.note(|run| run.succeeded = true);
    Ok(job.order_id)
}

pub(crate) struct World {
    pub(crate) clock: TokioClock,
    pub(crate) memory: MemoryStore,
    pub(crate) spy: Spy,
    pub(crate) store: FaultStore<Spy>,
    pub(crate) once: Idempotency,
    pub(crate) journal: Journal,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(settings: impl FnOnce(Builder) -> Builder) -> Self {
        Self::on(25, |store| store, settings)
    }

    /// A message for each outcome that needs no overlap, and the records that some of them meet.
    pub(crate) async fn messages_of_every_outcome(&self) -> [Value; 14] {
        self.put("done", Status::Completed, "1");
        self.put("failed", Status::Failed, "1");
        self.put("running", Status::InProgress, "1");
        self.abandon("lost").await;
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

    /// On a store that takes `batch` requests in a call and has these faults.
    pub(crate) fn on(
        batch: usize,
        faults: impl FnOnce(FaultStore<Spy>) -> FaultStore<Spy>,
        settings: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let clock = TokioClock::new();
        let memory = MemoryStore::with_clock(clock.clone());
        let spy = Spy::new(memory.clone(), batch);
        let store = faults(FaultStore::new(spy.clone(), 7));
        let builder =
            Idempotency::builder(store.clone()).clock(clock.clone()).scope("tests").named("tests").disabled(false);
        let once = settings(builder).build().unwrap();
        let journal =
            Journal { clock: clock.clone(), spy: spy.clone(), runs: Arc::default(), most_at_once: Arc::default() };
        Self { clock, memory, spy, store, once, journal }
    }

    /// The service that does what the messages say.
    pub(crate) fn service(&self) -> SqsService<impl Handler<Job, (Job,)> + use<>, Job, (Job,)> {
        let journal = self.journal.clone();
        self.once.sqs(Key::pointer("/order_id"), move |job: Job| {
            if job.act == "panic at once" {
                journal.begin(&job);
                burn();
            }
            perform(journal.clone(), job)
        })
    }

    /// The context of an invocation that has this much time left.
    pub(crate) fn left(&self, left: Duration) -> Context {
        let mut context = Context::default();
        context.deadline = self.clock.now().after(left).as_millis();
        context
    }

    /// Delivers messages with these bodies, with a minute left: the ids that are reported as failed.
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

    pub(crate) fn hash(&self, key: &str) -> KeyHash {
        self.once.key_hash("sqs", key).unwrap()
    }

    pub(crate) async fn record(&self, key: &str) -> Option<Record> {
        self.memory.read(&[self.hash(key)], ResultData::Include).await.pop().unwrap().unwrap()
    }

    pub(crate) async fn status(&self, key: &str) -> Option<Status> {
        self.record(key).await.map(|record| record.status)
    }

    /// Puts a record that another delivery has left. In progress its lease lasts for 10 s.
    pub(crate) fn put(&self, key: &str, status: Status, result: &str) {
        let record = Record {
            status,
            owner: None,
            attempt: 1,
            prior_status: None,
            lease_until: Some(self.clock.now().after(seconds(10))),
            expiration: Some(self.clock.now().after(seconds(3_600)).seconds_rounded_up()),
            fingerprint: None,
            result: StoredResult::of(StoredData::Json(result.to_owned())),
            version: RECORD_VERSION,
        };
        self.memory.insert(self.hash(key), record);
    }

    /// Puts a claim whose lease and margin have passed without an outcome.
    pub(crate) async fn abandon(&self, key: &str) {
        self.put(key, Status::InProgress, "");
        let mut record = self.record(key).await.unwrap();
        record.lease_until = Some(self.clock.now().before(seconds(5)));
        self.memory.insert(self.hash(key), record);
    }

    /// How many requests each call of this kind had.
    pub(crate) fn calls(&self, kind: Call) -> Vec<usize> {
        self.store.calls().into_iter().filter(|(call, _)| *call == kind).map(|(_, requests)| requests).collect()
    }
}

/// One invocation: the ids that are reported as failed.
pub(crate) async fn invoke<S>(service: &S, event: SqsEvent, context: Context) -> Result<Vec<String>, Error>
where
    S: Service<LambdaEvent<SqsEvent>, Response = SqsBatchResponse, Error = Error> + Clone,
{
    let response = service.clone().call(LambdaEvent::new(event, context)).await?;
    Ok(response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect())
}
