//! The files in `events/`, read like Lambda's bytes, with byte-exact responses.

use std::collections::BTreeSet;

use lambda_once::{
    BoxFuture, Error, ErrorKind, Failure, Idempotency, Key,
    batch::{dynamodb::Change, stream::StreamOrder},
};
use lambda_runtime::LambdaEvent;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tower_service::Service;

use crate::world::{ALL_DONE, Journal, World};

#[derive(Clone, Deserialize)]
struct Order {
    order_id: String,
    customer_id: String,
    amount_cents: u64,
    currency: String,
}

/// The message of a FIFO queue.
#[derive(Deserialize)]
struct Payout {
    payout_id: String,
    seller_id: String,
    amount_cents: u64,
    currency: String,
}

/// The orders that fail in a shop that has sold out: the second record of a file, and a single one.
const SOLD_OUT: [&str; 2] = ["5d1f0f1c-50b4-4c0e-8a7e-9be9a6c6f222", "0c6f9c1e-6c0f-4f0b-9a5d-3b0f7f3c8a11"];
/// The payout in the second record, which that shop cannot make.
const UNPAID: &str = "1509bb0a-9bf1-4331-8a11-8783593942a4";

/// A handler that takes orders and pays sellers.
#[derive(Clone)]
struct Shop {
    journal: Journal,
    sold_out: Option<&'static str>,
}

impl Shop {
    fn place(&self, order: Option<Order>) -> BoxFuture<'static, Result<(), Failure>> {
        let shop = self.clone();
        Box::pin(async move {
            let Some(Order { order_id, customer_id, amount_cents, currency }) = order else { return Ok(()) };
            assert!(customer_id.starts_with("customer-") && amount_cents > 0 && currency.len() == 3);
            shop.run(&order_id)
        })
    }

    fn run(&self, id: &str) -> Result<(), Failure> {
        self.journal.ran(id);
        if self.sold_out == Some(id) { Err(Failure::transient("sold out")) } else { Ok(()) }
    }

    fn orders(&self) -> impl Fn(Order) -> BoxFuture<'static, Result<(), Failure>> + Clone + Send + Sync + use<> {
        let shop = self.clone();
        move |order| shop.place(Some(order))
    }

    fn payouts(&self) -> impl Fn(Payout) -> BoxFuture<'static, Result<(), Failure>> + Clone + Send + Sync + use<> {
        let shop = self.clone();
        move |Payout { payout_id, seller_id, amount_cents, currency }| {
            assert!(seller_id.starts_with("seller-") && amount_cents > 0 && currency.len() == 3);
            let shop = shop.clone();
            Box::pin(async move { shop.run(&payout_id) })
        }
    }
}

/// Returns the responses to a file from a shop with stock and from one that has sold out. The former also responds a
/// second time, without running anything.
async fn answers<S, E>(
    file: &str,
    sold_out: &'static str,
    service: impl Fn(&Idempotency, Shop) -> S,
) -> [Result<String, Error>; 2]
where
    S: Service<LambdaEvent<E>, Error = Error> + Clone,
    S::Response: Serialize,
    E: DeserializeOwned,
{
    let text = std::fs::read_to_string(format!("events/{file}")).unwrap();
    let world = World::new();
    let full = service(&world.once, Shop { journal: world.journal.clone(), sold_out: None });
    let answer = world.answer(&full, &text).await;
    let ran = world.journal.keys().len();
    assert!(ran > 0);
    assert_eq!(world.answer(&full, &text).await, answer);
    assert_eq!(world.journal.keys().len(), ran, "the second time everything is replayed");

    let world = World::new();
    let empty = service(&world.once, Shop { journal: world.journal.clone(), sold_out: Some(sold_out) });
    [Ok(answer), world.invoke(&empty, &text, crate::world::seconds(60)).await]
}

/// Does the same for sources with partial batch responses.
async fn partial<S, E>(file: &str, service: impl Fn(&Idempotency, Shop) -> S) -> [String; 2]
where
    S: Service<LambdaEvent<E>, Error = Error> + Clone,
    S::Response: Serialize,
    E: DeserializeOwned,
{
    answers(file, SOLD_OUT[0], service).await.map(Result::unwrap)
}

/// Does the same for sources without partial responses, and returns whether the failure was an error of the batch.
async fn whole<S, E>(file: &str, sold_out: &'static str, service: impl Fn(&Idempotency, Shop) -> S) -> bool
where
    S: Service<LambdaEvent<E>, Error = Error> + Clone,
    S::Response: Serialize,
    E: DeserializeOwned,
{
    let [done, failed] = answers(file, sold_out, service).await;
    assert_eq!(done.unwrap(), "null");
    failed.unwrap_err().kind() == ErrorKind::Batch
}

#[tokio::test(start_paused = true)]
async fn sqs_fifo() {
    let service = |once: &Idempotency, shop: Shop| once.sqs(Key::message_id(), shop.payouts());
    let answers = answers("sqs-fifo.json", UNPAID, service).await.map(Result::unwrap);
    // The one that fails, and the one behind it in its group.
    let expected = concat!(
        r#"{"batchItemFailures":[{"itemIdentifier":"fcc1c0c8-b0cd-420a-990d-3cd8381df22f"},"#,
        r#"{"itemIdentifier":"fee7a16b-0a6b-4830-a560-0642060d5a21"}]}"#
    );
    assert_eq!(answers, [ALL_DONE, expected]);
}

#[tokio::test(start_paused = true)]
async fn kinesis_batch() {
    let expected =
        r#"{"batchItemFailures":[{"itemIdentifier":"49590338271490256608559692540925702759324208523137515618"}]}"#;
    for order in [StreamOrder::Shard, StreamOrder::Key] {
        let service = |once: &Idempotency, shop: Shop| once.kinesis(Key::message_id(), shop.orders()).order(order);
        assert_eq!(partial("kinesis-batch.json", service).await, [ALL_DONE, expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn kinesis_window() {
    let [done, failed] =
        partial("kinesis-window.json", |once, shop| once.kinesis(Key::message_id(), shop.orders())).await;
    // The white space is part of the state.
    let file = std::fs::read_to_string("events/kinesis-window.json").unwrap();
    let state = &file[file.find("\"state\": ").unwrap() + 9..file.find(",\n  \"shardId\"").unwrap()];
    assert_eq!(done, format!(r#"{{"batchItemFailures":[],"state":{state}}}"#));
    let checkpoint = "49590338271490256608559692540925702759324208523137515618";
    assert_eq!(failed, format!(r#"{{"batchItemFailures":[{{"itemIdentifier":"{checkpoint}"}}],"state":{state}}}"#));
}

#[tokio::test(start_paused = true)]
async fn dynamodb_stream() {
    let service = |once: &Idempotency, shop: Shop| {
        once.dynamodb_stream(Key::message_id(), move |change: Change<Order>| {
            shop.place({
                let old = change.old().unwrap();
                change.new.or(old)
            })
        })
    };
    let expected = r#"{"batchItemFailures":[{"itemIdentifier":"4421584500000000017450439105"}]}"#;
    assert_eq!(partial("dynamodb-stream.json", service).await, [ALL_DONE, expected]);
}

#[tokio::test(start_paused = true)]
async fn kafka_in_msk() {
    let service = |once: &Idempotency, shop: Shop| once.kafka(Key::message_id(), move |order| shop.place(order));
    let expected = concat!(
        r#"{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-0","offset":101}},"#,
        r#"{"itemIdentifier":{"partition":"orders-0","offset":102}}]}"#
    );
    assert_eq!(partial("kafka-msk.json", service).await, [ALL_DONE, expected]);
}

#[tokio::test(start_paused = true)]
async fn kafka_self_managed() {
    let service = |once: &Idempotency, shop: Shop| once.kafka(Key::message_id(), move |order| shop.place(order));
    let expected = r#"{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-0","offset":101}}]}"#;
    assert_eq!(partial("kafka-self-managed.json", service).await, [ALL_DONE, expected]);
}

#[tokio::test(start_paused = true)]
async fn active_mq() {
    let service = |once: &Idempotency, shop: Shop| once.mq(Key::message_id(), shop.orders());
    assert!(whole("mq-active.json", SOLD_OUT[0], service).await);
}

#[tokio::test(start_paused = true)]
async fn rabbit_mq() {
    // The second message has no id.
    for key in [Key::header("order-id"), Key::pointer("/order_id")] {
        let service = |once: &Idempotency, shop: Shop| once.mq(key.clone(), shop.orders());
        assert!(whole("mq-rabbit.json", SOLD_OUT[0], service).await);
    }
}

#[tokio::test(start_paused = true)]
async fn sns() {
    let service = |once: &Idempotency, shop: Shop| once.sns(Key::message_id(), shop.orders());
    assert!(whole("sns.json", SOLD_OUT[1], service).await);
}

#[tokio::test(start_paused = true)]
async fn eventbridge() {
    let service = |once: &Idempotency, shop: Shop| once.eventbridge(Key::message_id(), shop.orders());
    assert!(whole("eventbridge.json", SOLD_OUT[1], service).await);
}

#[test]
fn every_file_has_its_test() {
    let here = include_str!("files.rs");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let files: BTreeSet<String> = std::fs::read_dir("events").unwrap().map(name).collect();
    let elsewhere = |file: &str| file == "sqs-batch.json" || file.starts_with("charge-") || file.starts_with("http-");
    let untested: Vec<_> =
        files.iter().filter(|file| !elsewhere(file) && !here.contains(&format!("\"{file}\""))).collect();
    assert!(untested.is_empty(), "{untested:?}");
}
