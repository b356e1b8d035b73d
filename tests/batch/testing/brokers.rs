//! Kafka, ActiveMQ and RabbitMQ.

use lambda_once::{
    ErrorKind, Failure, Key, OutcomeKind,
    batch::{
        RecordInfo,
        kafka::{Kafka, KafkaMessage},
        mq::Mq,
    },
    testing::{self, activemq, kafka, rabbitmq},
};
use serde_json::{Value, json};

use crate::testing::journal::Journal;

#[tokio::test]
async fn a_kafka_record_has_its_given_attributes_and_headers() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().kafka(Key::message_id(), journal.handler());
    let record = testing::record(&json!({ "order_id": "7" }))
        .attribute("topic", "shop-orders")
        .attribute("partition", 3)
        .attribute("offset", 42)
        .attribute("key", "é")
        .header("tenant", "ä")
        .header("raw", [0, 255]);
    testing::deliver_twice(&service, &kafka::batch([record]).source("arn:cluster")).await.assert_once();
    let (order, context) = journal.runs().pop().unwrap();
    assert_eq!(order["order_id"], "7");
    assert!(context.record().message_id().starts_with("shop-orders-3-42@"));
    assert_eq!(context.record().source(), Some("arn:cluster"));
    assert_eq!((context.record().attribute("key"), context.record().header("tenant")), (Some("é"), Some("ä")));
    assert_eq!(context.record().header("raw"), None, "it is not text");
}

#[tokio::test]
async fn a_tombstone_has_no_value() {
    let journal = Journal::<Option<Value>>::new();
    let service = testing::engine().kafka(Key::message_id(), journal.handler());
    testing::deliver_twice(&service, &kafka::batch([kafka::tombstone().attribute("key", "7")])).await.assert_once();
    assert_eq!(journal.payloads(), [None]);
}

#[tokio::test]
async fn kafka_records_without_offsets_follow_each_other_in_their_partitions() {
    let fail = |_: Vec<u8>| async { Err::<(), _>(Failure::transient("closed")) };
    let decode = |_: &RecordInfo, message: &KafkaMessage| Ok(message.value().unwrap_or_default().to_vec());
    let service = testing::engine().batch(Kafka, Key::message_id(), decode, fail);
    let batch = kafka::batch((0..6).map(|i| testing::bytes([i]).attribute("partition", u32::from(i % 2))));
    let delivered = testing::deliver(&service, &batch.source("b:9092,a:9092")).await;
    let failures = delivered.response.as_ref().unwrap().batch_item_failures.clone();
    let mut offsets = std::collections::BTreeMap::<_, Vec<i64>>::new();
    for report in &delivered.records {
        let attribute = |name: &str| report.record.attribute(name).unwrap().to_owned();
        offsets.entry(attribute("partition")).or_default().push(attribute("offset").parse().unwrap());
        assert_eq!(report.record.source(), Some("a:9092,b:9092"));
    }
    assert_eq!(offsets.values().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
    assert!(offsets.values().all(|offsets| offsets.is_sorted()));
    let reported: Vec<_> = failures.iter().map(|failure| (&*failure.partition, failure.offset)).collect();
    assert!(reported.contains(&("orders-0", offsets["0"][0])) && reported.contains(&("orders-1", offsets["1"][0])));
}

#[tokio::test]
async fn an_activemq_message_has_its_given_id_attributes_and_headers() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().mq(Key::message_id(), journal.handler());
    let given = testing::record(&json!({ "order_id": "7" }))
        .id("ID:7")
        .attribute("queue", "other")
        .attribute("correlationId", "c-7")
        .header("tenant", "a");
    let batch = activemq::batch([given, testing::bytes("[]")]).source("arn:broker");
    testing::deliver_twice(&service, &batch).await.assert_once();
    let (order, context) = journal.runs().swap_remove(0);
    assert_eq!(order["order_id"], "7");
    assert_eq!((context.record().message_id(), context.record().source()), ("ID:7", Some("arn:broker/other")));
    assert_eq!(
        (context.record().attribute("queue"), context.record().attribute("correlationId")),
        (Some("other"), Some("c-7"))
    );
    assert_eq!(
        (context.record().header("tenant"), context.record().attribute("redelivered")),
        (Some("a"), Some("false"))
    );
}

#[tokio::test]
async fn a_rabbitmq_message_has_its_given_id_attributes_and_headers() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().mq(Key::message_id(), journal.handler());
    let given = testing::record(&json!({ "order_id": "7" }))
        .id("m-7")
        .attribute("queue", "other::/shop")
        .attribute("correlationId", "c-7")
        .header("tenant", "ä");
    let batch = rabbitmq::batch([given]).source("arn:broker");
    testing::deliver_twice(&service, &batch).await.assert_once();
    let (order, context) = journal.runs().pop().unwrap();
    assert_eq!(order["order_id"], "7");
    assert_eq!((context.record().message_id(), context.record().source()), ("m-7", Some("arn:broker/other::/shop")));
    assert_eq!(
        (context.record().header("tenant"), context.record().attribute("correlationId")),
        (Some("ä"), Some("c-7"))
    );
}

#[tokio::test]
async fn a_rabbitmq_message_has_no_id_unless_its_publisher_sets_one() {
    let nothing = |_: Vec<u8>| async { Ok::<_, Failure>(()) };
    let service = testing::engine().batch(Mq, Key::message_id(), |_, data| Ok(data.to_vec()), nothing);
    let batch = rabbitmq::batch([testing::bytes("7")]);
    assert_eq!(testing::deliver(&service, &batch).await.outcomes(), [Err(ErrorKind::KeyMissing)]);
}

#[tokio::test]
async fn a_redelivered_broker_message_is_marked_as_redelivered() {
    let redelivered = Key::from_fn(|delivery| Ok(delivery.attribute("redelivered").map(str::to_owned)));
    let service = testing::engine().mq(redelivered, |_: Value| async { Ok::<_, Failure>(()) });
    let executed = [Ok(OutcomeKind::Executed)];
    let deliveries = testing::deliver_twice(&service, &activemq::batch([testing::record(&7)])).await;
    assert_eq!((deliveries.first.outcomes(), deliveries.second.outcomes()), (executed.to_vec(), executed.to_vec()));
    let replayed = [Ok(OutcomeKind::Replayed)];
    let deliveries = testing::deliver_twice(&service, &rabbitmq::batch([testing::record(&7)])).await;
    assert_eq!((deliveries.first.outcomes(), deliveries.second.outcomes()), (replayed.to_vec(), replayed.to_vec()));
}
