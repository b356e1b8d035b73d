//! The origin of records in traces, from the files in `events/`.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use lambda_once::{
    Error, Failure, Idempotency, Key,
    batch::{Messaging, RecordInfo, Source, dynamodb::Change},
};
use lambda_runtime::LambdaEvent;
use opentelemetry::trace::SpanKind;
use opentelemetry_semantic_conventions::attribute as names;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tower_service::Service;
use tracing::level_filters::LevelFilter;

use crate::{
    support::traces::{Traces, attribute},
    world::World,
};

async fn done(_: Value) -> Result<(), Failure> {
    Ok(())
}

/// Returns the system, destination and trigger of a file's batch, and the name and partition of its first record.
async fn origin<S, E>(file: &str, service: impl FnOnce(&Idempotency) -> S) -> [String; 5]
where
    S: Service<LambdaEvent<E>, Error = lambda_once::Error> + Clone,
    S::Response: Serialize,
    E: DeserializeOwned,
{
    origin_of_text(&std::fs::read_to_string(format!("events/{file}")).unwrap(), service).await
}

async fn origin_of_text<S, E>(text: &str, service: impl FnOnce(&Idempotency) -> S) -> [String; 5]
where
    S: Service<LambdaEvent<E>, Error = lambda_once::Error> + Clone,
    S::Response: Serialize,
    E: DeserializeOwned,
{
    let traces = Traces::exported(LevelFilter::DEBUG);
    let world = World::new();
    world.answer(&service(&world.once), &text).await;
    let spans = traces.take();
    let consumers: Vec<_> = spans.iter().filter(|span| span.span_kind == SpanKind::Consumer).collect();
    let (batch, record) = (consumers[0], consumers[1]);
    assert_eq!(attribute(batch, names::MESSAGING_SYSTEM), attribute(record, names::MESSAGING_SYSTEM));
    [
        attribute(batch, names::MESSAGING_SYSTEM),
        attribute(batch, names::MESSAGING_DESTINATION_NAME),
        attribute(batch, names::FAAS_TRIGGER),
        record.name.to_string(),
        attribute(record, names::MESSAGING_DESTINATION_PARTITION_ID),
    ]
}

#[tokio::test(start_paused = true)]
async fn each_source_names_its_system_and_its_destination() {
    let id = Key::message_id;
    let sqs = origin("sqs-fifo.json", |once| once.sqs(id(), done)).await;
    assert_eq!(sqs, ["aws_sqs", "lambda-once-payouts.fifo", "pubsub", "process lambda-once-payouts.fifo", ""]);
    let kinesis = origin("kinesis-batch.json", |once| once.kinesis(id(), done)).await;
    assert_eq!(
        kinesis,
        ["aws.kinesis", "lambda-once-orders", "pubsub", "process lambda-once-orders", "shardId-000000000006"]
    );
    let raw = origin("kinesis-batch.json", |once| once.kinesis(id(), done).with_raw()).await;
    assert_eq!(raw, kinesis, "also where its records are kept");
    let changes = |once: &Idempotency| once.dynamodb_stream(id(), |_: Change<Value>| async { Ok::<_, Failure>(()) });
    let dynamodb = origin("dynamodb-stream.json", changes).await;
    assert_eq!(
        dynamodb,
        ["aws.dynamodb_streams", "lambda-once-orders", "datasource", "process lambda-once-orders", ""]
    );
    let kafka = origin("kafka-msk.json", |once| once.kafka(id(), |_: Option<Value>| done(Value::Null))).await;
    assert_eq!(kafka, ["kafka", "orders", "pubsub", "process orders", "0"]);
    let active = origin("mq-active.json", |once| once.mq(id(), done)).await;
    assert_eq!(active, ["activemq", "orders", "pubsub", "process orders", ""]);
    let rabbit = origin("mq-rabbit.json", |once| once.mq(Key::pointer("/order_id"), done)).await;
    // Its messages come from two queues.
    assert_eq!(rabbit, ["rabbitmq", "", "pubsub", "process orders", ""]);
    let sns = origin("sns.json", |once| once.sns(id(), done)).await;
    assert_eq!(sns, ["aws.sns", "lambda-once-orders", "pubsub", "process lambda-once-orders", ""]);
    let eventbridge = origin("eventbridge.json", |once| once.eventbridge(id(), done)).await;
    assert_eq!(eventbridge, ["aws.eventbridge", "", "pubsub", "process", ""]);
}

/// The event is the one in <https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-run-lambda-schedule.html>.
#[tokio::test(start_paused = true)]
async fn a_schedule_is_a_timer() {
    let event = r#"{
        "version": "0", "id": "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa", "detail-type": "Scheduled Event",
        "source": "aws.events", "account": "123456789012", "time": "2015-10-08T16:53:06Z", "region": "us-east-1",
        "resources": ["arn:aws:events:us-east-1:123456789012:rule/my-scheduled-rule"], "detail": {}
    }"#;
    let found = origin_of_text(event, |once| once.eventbridge(Key::message_id(), done)).await;
    assert_eq!(found, ["aws.eventbridge", "", "timer", "process", ""]);
}

/// A source that panics when it is asked for the origin of a record, and counts that.
#[derive(Clone, Debug, Default)]
struct Panics(Arc<AtomicUsize>);

impl Source for Panics {
    type Event = Vec<u32>;
    type Record = u32;
    type Rest = ();
    type Body = String;
    type Response = ();
    const OPERATION: &'static str = "panics";

    fn split(&self, event: Vec<u32>) -> Result<(Vec<u32>, ()), Error> {
        Ok((event, ()))
    }

    fn lane<'a>(&self, _: &'a u32) -> Option<Cow<'a, str>> {
        None
    }

    fn open(&self, record: u32) -> (RecordInfo, String) {
        (RecordInfo::new(record.to_string()), record.to_string())
    }

    fn messaging<'a>(&self, _: &'a RecordInfo) -> Messaging<'a> {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("no name")
    }

    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<(), Error> {
        assert!(failed.is_empty());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_while_it_names_its_origin_ends_nothing() {
    let decode = |_: &RecordInfo, text: &String| Ok(Value::String(text.clone()));
    let source = Panics::default();
    let found = origin_of_text("[1, 2]", |once| once.batch(source, Key::message_id(), decode, done)).await;
    assert_eq!(found, ["panics", "", "pubsub", "process", ""]);
}

/// The user's code for the origin runs only if its spans are exported.
#[tokio::test(start_paused = true)]
async fn without_traces_a_source_is_not_asked_for_its_origin() {
    let (world, source) = (World::new(), Panics::default());
    let decode = |_: &RecordInfo, text: &String| Ok(Value::String(text.clone()));
    let service = world.once.batch(source.clone(), Key::message_id(), decode, done);
    let traces = Traces::exported(LevelFilter::INFO);
    assert_eq!(world.answer(&service, &"[1, 2]").await, "null");
    drop(traces);
    assert_eq!(source.0.load(Ordering::Relaxed), 0);
}
