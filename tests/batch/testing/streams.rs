//! Kinesis and DynamoDB streams.

use lambda_once::{
    Failure, Key, OutcomeKind, RecordContext, Verdict,
    batch::{
        dynamodb::{Change, ChangeKind},
        kinesis::Kinesis,
        stream::StreamOrder,
    },
    testing::{self, dynamodb, kinesis},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::testing::journal::Journal;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Order {
    order_id: String,
    line: u32,
    cents: Option<u64>,
}

fn order(cents: u64) -> Order {
    Order { order_id: "7".into(), line: 1, cents: Some(cents) }
}

#[tokio::test]
async fn a_kinesis_record_has_its_given_attributes() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().kinesis(Key::message_id(), journal.handler());
    let arn = "arn:aws:kinesis:eu-central-1:210987654321:stream/other";
    let record =
        testing::record(&json!({ "sensor": 1 })).attribute("partitionKey", "s-1").attribute("sequenceNumber", "42");
    testing::deliver_twice(&service, &kinesis::batch([record]).source(arn)).await.assert_once();
    let (reading, context) = journal.runs().pop().unwrap();
    assert_eq!(reading["sensor"], 1);
    assert_eq!((context.record().message_id(), context.record().source()), ("shardId-000000000000:42", Some(arn)));
    assert_eq!(context.record().attribute("partitionKey"), Some("s-1"));
    assert_eq!(context.record().attribute("sequenceNumber"), Some("42"));
    let arrival: f64 = context.record().attribute("approximateArrivalTimestamp").unwrap().parse().unwrap();
    assert!(arrival > 1_700_000_000.0);
}

#[tokio::test]
async fn kinesis_records_without_numbers_follow_each_other() {
    let fail = |_: Vec<u8>| async { Err::<(), _>(Failure::transient("closed")) };
    let service = testing::engine().batch(Kinesis::default(), Key::message_id(), |_, data| Ok(data.clone()), fail);
    let batch = kinesis::batch((0..20).map(|byte| testing::bytes([byte, 255])));
    let service = service.order(StreamOrder::Key);
    let delivered = testing::deliver(&service, &batch).await;
    let number = |index: usize| delivered.records[index].record.attribute("sequenceNumber").unwrap();
    assert_eq!(delivered.response.as_ref().unwrap().checkpoint.as_deref(), Some(number(0)));
    assert!((1..20).all(|index| number(index - 1) < number(index) && number(index).len() == 56));
}

#[tokio::test]
async fn the_state_of_a_window_comes_along() {
    let state = &[u128::MAX];
    let json = serde_json::to_string(state).unwrap();
    let nothing = |_: Value| async { Ok::<_, Failure>(()) };
    let service = testing::engine().kinesis(Key::message_id(), nothing);
    let batch = kinesis::batch([testing::record(&1)]).state(state);
    assert_eq!(testing::deliver(&service, &batch).await.response.unwrap().state.unwrap().as_json(), json);

    let nothing = |_: Change<Order>| async { Ok::<_, Failure>(()) };
    let service = testing::engine().dynamodb_stream(Key::message_id(), nothing);
    let batch = dynamodb::batch(["order_id"], [dynamodb::insert(&order(1))]).state(state);
    assert_eq!(testing::deliver(&service, &batch).await.response.unwrap().state.unwrap().as_json(), json);
}

#[tokio::test]
async fn every_kind_of_change_has_its_keys_and_images() {
    let journal = Journal::<Change<Order>>::new();
    let service = testing::engine().dynamodb_stream(Key::message_id(), journal.handler());
    let arn = "arn:aws:dynamodb:us-east-1:123456789012:table/other/stream/2026-01-01T00:00:00.000";
    let records = [
        dynamodb::insert(&order(1)).id("e-1").attribute("sequenceNumber", "42"),
        dynamodb::modify(&order(1), &order(2)),
        dynamodb::remove(&order(2)),
        dynamodb::expire(&order(3)),
    ];
    let batch = dynamodb::batch(["order_id", "line"], records).source(arn);
    testing::deliver_twice(&service, &batch).await.assert_once();
    let changes = journal.payloads();
    let of = |change: &Change<Order>| {
        (change.kind, change.old().unwrap().and_then(|old| old.cents), change.new.as_ref().and_then(|new| new.cents))
    };
    let expected = [
        (ChangeKind::Insert, None, Some(1)),
        (ChangeKind::Modify, Some(1), Some(2)),
        (ChangeKind::Remove, Some(2), None),
        (ChangeKind::Remove, Some(3), None),
    ];
    assert_eq!(changes.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(changes.iter().map(|change| change.is_expiry).collect::<Vec<_>>(), [false, false, false, true]);
    for change in changes {
        assert_eq!(
            serde_json::to_value(&change.keys).unwrap(),
            json!({ "order_id": { "S": "7" }, "line": { "N": "1" } })
        );
    }
    let context: RecordContext = journal.runs().swap_remove(0).1;
    assert_eq!((context.record().message_id(), context.record().source()), ("e-1", Some(arn)));
    assert_eq!(
        (context.record().attribute("eventName"), context.record().attribute("sequenceNumber")),
        (Some("INSERT"), Some("42"))
    );
}

#[tokio::test]
async fn a_stream_holds_the_images_of_its_view() {
    use dynamodb::View;
    for (view, images) in [
        (View::KeysOnly, (false, false)),
        (View::OldImage, (true, false)),
        (View::NewImage, (false, true)),
        (View::NewAndOldImages, (true, true)),
    ] {
        let journal = Journal::<Change<Order>>::new();
        let service = testing::engine().dynamodb_stream(Key::pointer("/Keys/order_id"), journal.handler());
        let batch = dynamodb::batch(["order_id"], [dynamodb::modify(&order(1), &order(2))]).view(view);
        testing::deliver_twice(&service, &batch).await.assert_once();
        let change = journal.payloads().pop().unwrap();
        assert_eq!((change.old_image.is_some(), change.new.is_some()), images, "{view:?}");
    }
}

#[tokio::test]
async fn changes_of_one_item_keep_its_order() {
    let handle = |change: Change<Order>| async move {
        let bad = change.new.is_some_and(|order| order.cents == Some(1));
        if bad { Err(Failure::transient("closed")) } else { Ok(()) }
    };
    let service = testing::engine().dynamodb_stream(Key::message_id(), handle).order(StreamOrder::Key);
    let other = Order { order_id: "8".into(), ..order(3) };
    let records = [order(1), order(2), other].map(|order| dynamodb::insert(&order));
    let delivered = testing::deliver(&service, &dynamodb::batch(["order_id"], records)).await;
    let failed = OutcomeKind::Failed(Verdict::Transient);
    assert_eq!(delivered.outcomes(), [Ok(failed), Ok(OutcomeKind::Skipped), Ok(OutcomeKind::Executed)]);
}

#[test]
#[should_panic(expected = "an item lacks `id`, which is a part of its key")]
fn an_item_without_its_key_is_a_mistake_of_the_test() {
    let _ = dynamodb::batch(["id"], [dynamodb::insert(&order(1))]);
}

#[test]
#[should_panic(expected = "not an item of DynamoDB")]
fn a_value_that_is_no_item_is_a_mistake_of_the_test() {
    let _ = dynamodb::insert("7");
}
