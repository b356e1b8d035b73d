//! Raw records of sources whose types omit something: the JSON of the event, in addition to its record.

use std::{fmt::Debug, fs};

use aws_lambda_events::sqs::SqsMessage;
use lambda_once::{
    Error, ErrorKind, Failure, Key, OutcomeKind, RecordContext, Verdict,
    batch::{
        BatchService, Handler, RawRecord, Source,
        dynamodb::Change,
        envelope::{EventBridge, S3, S3Record},
        stream::StreamOrder,
    },
    testing::{self, Redeliver, eventbridge, s3, sqs},
};
use lambda_runtime::LambdaEvent;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    sqs::dead_letters::Letters,
    testing::journal::Journal,
    world::{batch, fifo, message},
};

/// A value that both the context of a record and its JSON contain.
type Names = (fn(&RecordContext) -> String, fn(&Value) -> String);

fn attribute(context: &RecordContext, name: &str) -> String {
    context.record().attribute(name).unwrap_or_default().to_owned()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Parses the event of a service, whose type has no name.
fn parse<S: Source<Event: DeserializeOwned>, H, T, A>(
    _: &BatchService<S, H, T, A>,
    event: &str,
) -> serde_json::Result<S::Event> {
    serde_json::from_str(event)
}

async fn process<S: Source<Event: DeserializeOwned>, H: Handler<T, A>, T: Send + 'static, A: 'static>(
    service: &BatchService<S, H, T, A>,
    event: &Value,
) -> Result<S::Response, Error> {
    let event = serde_json::from_str(&event.to_string()).unwrap();
    service.process(LambdaEvent::new(event, testing::context(testing::TIME_LEFT))).await.response
}

/// Delivers an event file with these records, and checks that each raw record comes with its own context.
async fn check<S, H, T, A>(
    service: BatchService<S, H, T, A>,
    journal: &Journal<T>,
    file: &str,
    records: fn(&Value) -> Vec<&Value>,
    (of_context, of_json): Names,
) where
    S: Source<Event: DeserializeOwned>,
    H: Handler<T, A>,
    T: Clone + Send + Debug + 'static,
    A: 'static,
{
    let event: Value = serde_json::from_slice(&fs::read(format!("events/{file}.json")).unwrap()).unwrap();
    process(&service, &event).await.unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut expected: Vec<&Value> = records(&event);
    assert_eq!(journal.runs().len(), expected.len(), "{file}");
    for (_, context) in journal.runs() {
        let raw = context.record().raw::<RawRecord>().unwrap();
        let json: Value = raw.decode().unwrap();
        assert_eq!(of_context(&context), of_json(&json), "{file}");
        let place = expected.iter().position(|record| **record == json);
        expected.remove(place.unwrap_or_else(|| panic!("{file} has no {json}")));
        assert_eq!(format!("{raw:?}"), format!("RawRecord {{ bytes: {} }}", raw.as_json().len()));
    }
}

fn listed(event: &Value) -> Vec<&Value> {
    event["Records"].as_array().unwrap().iter().collect()
}

fn by_name<'a>(event: &'a Value, member: &str) -> Vec<&'a Value> {
    event[member].as_object().unwrap().values().flat_map(|records| records.as_array().unwrap()).collect()
}

#[tokio::test]
async fn a_record_of_each_source_is_kept_with_all_that_the_event_has() {
    let once = |name| testing::engine().named(name);
    let sequence: fn(&RecordContext) -> String = |context| attribute(context, "sequenceNumber");

    let journal = Journal::<Value>::new();
    let service = once("kinesis").kinesis(Key::message_id(), journal.handler()).order(StreamOrder::Key).with_raw();
    check(service, &journal, "kinesis-batch", listed, (sequence, |json| text(&json["kinesis"]["sequenceNumber"])))
        .await;

    let journal = Journal::<Change<Value>>::new();
    let service = once("dynamodb").dynamodb_stream(Key::message_id(), journal.handler()).with_raw();
    let names: Names = (sequence, |json| text(&json["dynamodb"]["SequenceNumber"]));
    check(service, &journal, "dynamodb-stream", listed, names).await;

    for file in ["kafka-msk", "kafka-self-managed"] {
        let journal = Journal::<Value>::new();
        let service = once(file).kafka(Key::message_id(), journal.handler()).with_raw();
        let names: Names = (
            |context| ["topic", "partition", "offset"].map(|name| attribute(context, name)).join(" "),
            |json| ["topic", "partition", "offset"].map(|name| text(&json[name])).join(" "),
        );
        check(service, &journal, file, |event| by_name(event, "records"), names).await;
    }

    let journal = Journal::<Value>::new();
    let service = once("active").mq(Key::message_id(), journal.handler()).with_raw();
    let names: Names = (|context| context.record().id().to_owned(), |json| text(&json["messageID"]));
    check(service, &journal, "mq-active", |event| event["messages"].as_array().unwrap().iter().collect(), names).await;

    let journal = Journal::<Value>::new();
    let service = once("rabbit").mq(Key::pointer("/order_id"), journal.handler()).with_raw();
    let names: Names = (|context| attribute(context, "timestamp"), |json| text(&json["basicProperties"]["timestamp"]));
    check(service, &journal, "mq-rabbit", |event| by_name(event, "rmqMessagesByQueue"), names).await;

    let journal = Journal::<Value>::new();
    let service = once("sns").sns(Key::message_id(), journal.handler()).with_raw();
    let names: Names = (|context| context.record().id().to_owned(), |json| text(&json["Sns"]["MessageId"]));
    check(service, &journal, "sns", listed, names).await;

    let journal = Journal::<Value>::new();
    let service = once("eventbridge").eventbridge(Key::message_id(), journal.handler()).with_raw();
    let names: Names = (|context| context.record().id().to_owned(), |json| text(&json["id"]));
    check(service, &journal, "eventbridge", |event| vec![event], names).await;
}

#[tokio::test]
async fn partitions_and_queues_of_unequal_length_keep_their_records_apart() {
    let record = |partition: u8, offset: u8| json!({ "topic": "t", "partition": partition, "offset": offset, "value": "MQ==", "extra": [partition, offset] });
    let journal = Journal::<Value>::new();
    let service = testing::engine().kafka(Key::message_id(), journal.handler()).with_raw();
    let event = json!({ "bootstrapServers": "b:9092", "records": {
        "t-1": [record(1, 5), record(1, 6), record(1, 7)], "t-0": [record(0, 1)], "t-2": [record(2, 8), record(2, 9)],
    }});
    process(&service, &event).await.unwrap();
    let runs = journal.runs();
    assert_eq!(runs.len(), 6);
    for (_, context) in runs {
        let raw: Value = context.record().raw::<RawRecord>().unwrap().decode().unwrap();
        let extra = format!("[{},{}]", attribute(&context, "partition"), attribute(&context, "offset"));
        assert_eq!(raw["extra"].to_string(), extra);
    }

    let message = |id: &str| json!({ "basicProperties": { "messageId": id, "appId": id }, "data": "MQ==" });
    let journal = Journal::<Value>::new();
    let service = testing::engine().mq(Key::message_id(), journal.handler()).with_raw();
    let queues = json!({ "b::/": [message("b-1")], "a::/": [message("a-1"), message("a-2")] });
    process(&service, &json!({ "rmqMessagesByQueue": queues })).await.unwrap();
    assert_eq!(journal.runs().len(), 3);
    for (_, context) in journal.runs() {
        let raw: Value = context.record().raw::<RawRecord>().unwrap().decode().unwrap();
        assert_eq!(raw["basicProperties"]["appId"], context.record().id());
    }
}

async fn fail(_: Value) -> Result<(), Failure> {
    Err(Failure::transient("not now"))
}

async fn refuse(_: Value) -> Result<(), Failure> {
    Err(Failure::permanent("no"))
}

#[tokio::test]
async fn with_raw_records_keep_their_order() {
    let [failed, skipped] = [OutcomeKind::Failed(Verdict::Transient), OutcomeKind::Skipped].map(Ok::<_, ErrorKind>);
    for (event, second) in [(fifo([("g", 1), ("g", 2)]), skipped), (batch([1, 2]), failed)] {
        let service = testing::engine().sqs(Key::message_id(), fail).with_raw();
        let event = LambdaEvent::new(event, testing::context(testing::TIME_LEFT));
        assert_eq!(service.process(event).await.outcomes(), [failed, second]);
    }
    let record =
        |number: &str| json!({ "kinesis": { "sequenceNumber": number, "partitionKey": number, "data": "MQ==" } });
    let event = json!({ "Records": [record("1"), record("2")] }).to_string();
    for (order, second) in [(StreamOrder::Shard, skipped), (StreamOrder::Key, failed)] {
        let service = testing::engine().kinesis(Key::message_id(), fail).order(order).with_raw();
        let event = LambdaEvent::new(parse(&service, &event).unwrap(), testing::context(testing::TIME_LEFT));
        assert_eq!(service.process(event).await.outcomes(), [failed, second], "{order:?}");
    }
}

#[tokio::test]
async fn with_raw_a_dead_letter_has_the_body_of_its_record() {
    let (of_sqs, of_sns) = (Letters::new(), Letters::new());
    let service = testing::engine().sqs(Key::message_id(), refuse).with_raw().dead_letters(of_sqs.clone());
    process(&service, &json!({ "Records": [message("m0", &7)] })).await.unwrap();
    let service = testing::engine().sns(Key::message_id(), refuse).with_raw().dead_letters(of_sns.clone());
    let event = json!({ "Records": [{ "Sns": { "MessageId": "m0", "Message": "7" } }] });
    process(&service, &event).await.unwrap();
    for letters in [of_sqs, of_sns] {
        let sent = letters.sent();
        assert_eq!(sent.iter().map(|letter| &*letter.body).collect::<Vec<_>>(), ["7"]);
    }
}

#[tokio::test]
async fn no_raw_record_is_kept_by_default() {
    let event = eventbridge::event(testing::record(&1));
    let journal = Journal::<Value>::new();
    let service = testing::engine().eventbridge(Key::message_id(), journal.handler());
    testing::deliver_twice(&service, &event).await.assert_once();
    assert!(journal.runs()[0].1.record().raw::<RawRecord>().is_none());
}

/// Functions of other projects read the parts that the library omits.
#[tokio::test]
async fn the_raw_record_of_an_enveloped_message_is_the_outer_record() {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Around {
        event_source: String,
        event_version: String,
    }

    let notification = s3::notification([s3::created("photos", "a.jpg"), s3::created("photos", "b.jpg")]);
    let body = sqs::batch([notification]);
    let journal = Journal::<S3Record>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).with_raw().envelope(S3);
    testing::deliver_twice(&service, &body).await.assert_once();
    let runs = journal.runs();
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|(_, context)| context.record().raw::<SqsMessage>().is_some()));

    let inner = sqs::batch([eventbridge::message(&testing::record(&7))]).delivery(1).records.remove(0).body;
    let event = json!({ "Records": [{
        "EventSource": "aws:sns", "EventVersion": "1.0",
        "Sns": { "MessageId": "n-1", "TopicArn": "arn:aws:sns:us-east-1:1:t", "Message": inner },
    }]});
    let journal = Journal::<Value>::new();
    let service = testing::engine().sns(Key::message_id(), journal.handler()).with_raw().envelope(EventBridge);
    process(&service, &event).await.unwrap();
    let (payload, context) = journal.runs().remove(0);
    assert_eq!(payload, 7);
    let around: Around = context.record().raw::<RawRecord>().unwrap().decode().unwrap();
    assert_eq!((&*around.event_source, &*around.event_version), ("aws:sns", "1.0"));
}

#[tokio::test]
async fn with_raw_an_event_that_is_invalid_for_its_source_is_still_refused() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().kinesis(Key::message_id(), journal.handler()).with_raw();
    let nameless = json!({ "Records": [{ "kinesis": { "data": "MQ==" } }] });
    assert_eq!(process(&service, &nameless).await.unwrap_err().kind(), ErrorKind::Event);
    let error = parse(&service, r#"{ "Records": [{ "kinesis": { "data": "secret" } }] }"#).unwrap_err().to_string();
    assert!(error.contains("not base64") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn the_raw_json_equals_the_record_of_the_event_byte_for_byte() {
    let record =
        r#"{ "kinesis": {"sequenceNumber":"1", "partitionKey" : "p","data":"e30=" },"z":1.50,"a" :  "\u00e9" }"#;
    let journal = Journal::<Value>::new();
    let service = testing::engine().kinesis(Key::message_id(), journal.handler()).with_raw();
    let event = serde_json::from_str(&format!(r#"{{"Records": [ {record} ]}}"#)).unwrap();
    service.process(LambdaEvent::new(event, testing::context(testing::TIME_LEFT))).await.response.unwrap();
    let (_, context) = &journal.runs()[0];
    assert_eq!(context.record().raw::<RawRecord>().unwrap().as_json(), record);
}
