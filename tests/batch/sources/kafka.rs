//! Kafka: order within partitions, and responses.

use lambda_once::{
    ErrorKind, Failure, Key, OutcomeKind,
    batch::{
        BatchService, Handler, RecordInfo,
        kafka::{Kafka, KafkaEvent, KafkaMessage},
    },
    store::fault::Call,
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};

use crate::{
    support::clock::FUTURE,
    world::{ALL_DONE, Job, World, base64, millis, order, seconds, unreadable, work},
};

/// Returns a record of the topic `orders`, as Lambda delivers it.
pub(crate) fn record(partition: i64, offset: i64, value: &Value) -> Value {
    json!({
        "topic": "orders",
        "partition": partition,
        "offset": offset,
        "timestamp": 1_795_255_200_000_i64,
        "timestampType": "CREATE_TIME",
        "value": base64(value.to_string()),
        "headers": [],
    })
}

/// Returns an Amazon MSK event with these records.
pub(crate) fn event(records: impl IntoIterator<Item = Value>) -> Value {
    let mut partitions = json!({});
    for record in records {
        let name = format!("{}-{}", record["topic"].as_str().unwrap(), record["partition"]);
        match &mut partitions[&name] {
            Value::Array(records) => records.push(record),
            none => *none = json!([record]),
        }
    }
    json!({
        "eventSource": "aws:kafka",
        "eventSourceArn": "arn:aws:kafka:us-east-1:123456789012:cluster/shop/751d2973-a626-431c-9d4e-d7975eb44dd7-2",
        "bootstrapServers": "b-2.shop.a1bcde.c1.kafka.us-east-1.amazonaws.com:9092",
        "records": partitions,
    })
}

type Args = (Option<Job>,);

/// Returns a service with the handler of jobs, which records tombstones.
pub(crate) fn service(
    world: &World,
    key: Key,
) -> BatchService<Kafka, impl Handler<Option<Job>, Args> + use<>, Option<Job>, Args> {
    let (perform, journal) = (world.handler(), world.journal.clone());
    world.once.kafka(key, move |job: Option<Job>| {
        let (perform, journal) = (perform.clone(), journal.clone());
        async move {
            match job {
                Some(job) => perform(job).await.map(drop),
                None => {
                    journal.ran("tombstone");
                    Ok(())
                }
            }
        }
    })
}

/// Returns the response that contains these places.
fn failed(places: &[(&str, i64)]) -> String {
    let failure =
        |(partition, offset)| format!(r#"{{"itemIdentifier":{{"partition":"{partition}","offset":{offset}}}}}"#);
    let failures: Vec<_> = places.iter().map(|(partition, offset)| failure((partition, offset))).collect();
    format!(r#"{{"batchItemFailures":[{}]}}"#, failures.join(","))
}

// Tests B4.
#[tokio::test(start_paused = true)]
async fn a_partition_runs_in_order_and_partitions_run_side_by_side() {
    let world = World::new();
    let began = tokio::time::Instant::now();
    let places = [(0, 10), (0, 11), (0, 12), (1, 7), (1, 8), (2, 5)];
    let records = places.map(|(partition, offset)| {
        record(partition, offset, &work(&format!("{partition} {offset:02}"), "succeed", 100))
    });
    assert_eq!(world.answer(&service(&world, Key::message_id()), &event(records)).await, ALL_DONE);
    assert_eq!(began.elapsed(), millis(300), "as long as the longest partition");
    for partition in ["0", "1", "2"] {
        let runs: Vec<_> = world.journal.runs().into_iter().filter(|run| run.key.starts_with(partition)).collect();
        assert!(runs.is_sorted_by_key(|run| run.key.clone()), "{runs:?}");
        assert!(runs.windows(2).all(|pair| pair[0].ended.is_some_and(|ended| ended <= pair[1].began)), "{runs:?}");
    }
    assert_eq!(world.calls(Call::Claim), [6]);
}

#[tokio::test(start_paused = true)]
async fn a_long_partition_keeps_no_other_one_waiting() {
    let world = World::new();
    let long = (0..100).map(|offset| record(0, offset, &work("long", "succeed", 10)));
    let event = event(long.chain([record(1, 0, &work("short", "succeed", 10))]));
    assert_eq!(world.answer(&service(&world, Key::message_id()), &event).await, ALL_DONE);
    let runs = world.journal.runs();
    let short = runs.iter().find(|run| run.key == "short").unwrap();
    assert_eq!((short.began, runs.len()), (FUTURE, 101));
}

// Tests B9.
#[tokio::test(start_paused = true)]
async fn a_failure_blocks_its_partition_only_and_the_retry_runs_nothing_twice() {
    for act in ["transient once", "hang once"] {
        let world = World::new();
        let service = service(&world, Key::message_id());
        let event = event([
            record(0, 100, &order("0 100")),
            record(0, 101, &work("0 101", act, 0)),
            record(0, 102, &order("0 102")),
            record(1, 7, &order("1 7")),
            record(1, 8, &order("1 8")),
        ]);
        let answer = world.invoke(&service, &event, seconds(10)).await.unwrap();
        assert_eq!(answer, failed(&[("orders-0", 101), ("orders-0", 102)]), "{act}");
        let ran = world.journal.keys();
        assert_eq!(ran.len(), 4, "{ran:?}");
        assert_eq!(world.invoke(&service, &event, seconds(10)).await.unwrap(), ALL_DONE, "{act}");
        assert_eq!(world.journal.keys()[4..], ["0 101", "0 102"], "{act}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_record_holds_back_its_partition() {
    let world = World::new();
    let event = event([record(0, 1, &json!("no job")), record(0, 2, &order("2")), record(1, 3, &order("3"))]);
    let answer = world.answer(&service(&world, Key::message_id()), &event).await;
    assert_eq!(answer, failed(&[("orders-0", 1), ("orders-0", 2)]));
    assert_eq!(world.journal.keys(), ["3"]);
}

#[tokio::test(start_paused = true)]
async fn each_place_is_named_once_and_a_topic_may_have_any_name() {
    let world = World::new();
    let in_topic = |topic: &str, partition, offset| {
        let mut record = record(partition, offset, &work("x", "transient", 0));
        record["topic"] = json!(topic);
        record
    };
    let event = event([
        in_topic("orders-0", 1, 5),
        in_topic("orders-0", 1, 5),
        in_topic("orders.v2_eu", 12, 9_223_372_036_854_775_807),
    ]);
    let answer = world.answer(&service(&world, Key::message_id()), &event).await;
    assert_eq!(answer, failed(&[("orders-0-1", 5), ("orders.v2_eu-12", i64::MAX)]));
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_decodes_to_none() {
    let world = World::new();
    let (mut null, mut absent) = (record(0, 1, &json!(0)), record(0, 2, &json!(0)));
    null["value"] = Value::Null;
    absent.as_object_mut().unwrap().remove("value");
    let event = event([null, absent, record(0, 3, &order("3"))]);
    assert_eq!(world.answer(&service(&world, Key::message_id()), &event).await, ALL_DONE);
    assert_eq!(world.journal.keys(), ["tombstone", "tombstone", "3"]);
}

#[tokio::test(start_paused = true)]
async fn a_value_may_be_any_bytes_and_a_tombstone_differs_from_an_empty_one() {
    let world = World::new();
    let journal = world.journal.clone();
    let decode = |_: &RecordInfo, message: &KafkaMessage| Ok(message.value().map(<[u8]>::len));
    let service = world.once.batch(Kafka, Key::message_id(), decode, move |length: Option<usize>| {
        journal.ran(format!("{length:?}"));
        async { Ok::<_, Failure>(()) }
    });
    let values = [json!(base64(b"\xff\xfe\x00")), json!(""), Value::Null];
    let records = values.into_iter().enumerate().map(|(i, value)| {
        let mut record = record(0, i64::try_from(i).unwrap(), &json!(0));
        record["value"] = value;
        record
    });
    assert_eq!(world.answer(&service, &event(records)).await, ALL_DONE);
    assert_eq!(world.journal.keys(), ["Some(3)", "Some(0)", "None"]);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_partition_fails_the_invocation_before_any_claim() {
    for wrong in ["orders-1", "orders", "orders-", "order-0", "orders-00", "orders-+0", "refunds-0", "-0", ""] {
        let world = World::new();
        let mut event = event([record(0, 1, &order("0"))]);
        event["records"] = json!({ "orders-0": [record(0, 1, &order("1"))], wrong: [record(0, 2, &order("2"))] });
        let message = world.refuse(&service(&world, Key::message_id()), &event).await;
        assert!(message.contains("not of that topic and partition"), "{message}");
    }
    let mut nameless = event([record(0, 1, &order("0"))]);
    nameless["records"]["orders-0"][0].as_object_mut().unwrap().remove("topic");
    let world = World::new();
    world.refuse(&service(&world, Key::message_id()), &nameless).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_without_records_gets_an_empty_failure_list() {
    let world = World::new();
    for partitions in [json!({}), json!({ "orders-0": [] })] {
        let mut event = event([]);
        event["records"] = partitions;
        assert_eq!(world.answer(&service(&world, Key::message_id()), &event).await, ALL_DONE);
    }
    assert!(world.store.calls().is_empty());
}

#[test]
fn an_event_of_something_else_is_not_read() {
    assert!(unreadable::<KafkaEvent>(&"{}").contains("missing field `records`"));
    unreadable::<KafkaEvent>(&r#"{"records":null}"#);
    let mut event = event([record(0, 1, &json!(0))]);
    event["records"]["orders-0"][0]["value"] = json!("c2VjcmV0?");
    let error = unreadable::<KafkaEvent>(&event);
    assert!(error.starts_with("records.orders-0[0].value: not base64"), "{error}");
    event["records"]["orders-0"][0].as_object_mut().unwrap().remove("offset");
    unreadable::<KafkaEvent>(&event);
}

#[tokio::test(start_paused = true)]
async fn without_provisioned_mode_any_failure_fails_the_invocation() {
    let world = World::new();
    let service = service(&world, Key::pointer("/order_id")).all_or_error();
    let event =
        || event([record(0, 1, &work("A", "transient once", 0)), record(0, 2, &order("B")), record(1, 1, &order("C"))]);
    assert_eq!(world.fail(&service, &event()).await.kind(), ErrorKind::Batch);
    assert_eq!(world.answer(&service, &event()).await, ALL_DONE);
    assert_eq!(world.journal.keys(), ["A", "C", "A", "B"]);
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_without_a_body_key_fails_with_an_error_naming_remedies() {
    let world = World::new();
    let tombstone = |offset| {
        let mut tombstone = record(0, offset, &json!(0));
        tombstone["value"] = Value::Null;
        tombstone
    };
    let records = || {
        let event = event([tombstone(1), record(0, 2, &order("2"))]);
        LambdaEvent::new(serde_json::from_str(&event.to_string()).unwrap(), world.left(seconds(60)))
    };
    let reports = service(&world, Key::pointer("/order_id")).process(records()).await.records;
    assert_eq!(reports[0].outcome, Err(ErrorKind::KeyMissing));
    let error = reports[0].error.as_deref().unwrap();
    assert!(error.contains("tombstone") && error.contains("`ignore`") && error.contains("Key::attribute"), "{error}");
    let ignoring = service(&world, Key::pointer("/order_id")).ignore(|record| record.body() == b"null");
    let reports = ignoring.process(records()).await.records;
    let outcomes: Vec<_> = reports.iter().map(|report| report.outcome).collect();
    assert_eq!(outcomes, [Ok(OutcomeKind::Ignored), Ok(OutcomeKind::Executed)]);
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_that_the_handler_cannot_take_is_named_in_the_error() {
    let world = World::new();
    let mut tombstone = record(0, 1, &json!(0));
    tombstone["value"] = Value::Null;
    let service = world.once.kafka(Key::message_id(), world.handler());
    let event = serde_json::from_str(&event([tombstone]).to_string()).unwrap();
    let reports = service.process(LambdaEvent::new(event, world.left(seconds(60)))).await.records;
    let error = reports[0].error.as_deref().unwrap();
    assert!(error.contains("tombstone") && error.contains("Option"), "{error}");
}
