//! An outbox relay for DynamoDB: a function behind the table's stream, which is killed before it responds.

use std::{collections::HashMap, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put, ScalarAttributeType,
        StreamSpecification, StreamViewType,
    },
};
use axum::{body::Bytes, http::Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy, rt::TokioExecutor};
use lambda_once::{DynamoDbStore, Error, Failure, Idempotency, Outcome, store::dynamodb::Writes};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::{
    ORDERS, PLACE_ORDER, SHIP, TIMEOUT, consume_all, expected_ids,
    function::RuntimeApi,
    payload, place_all,
    queue::{Message, Relay},
    sorted,
};
use crate::support::{dynamodb, unique};

/// The records of an invocation.
const BATCH: usize = 10;

/// Separate tables for records, orders, messages and shipments.
struct Database {
    endpoint: String,
    client: Client,
    store: DynamoDbStore,
    once: Idempotency,
    orders: String,
    outbox: String,
    shipments: String,
}

impl Database {
    async fn create() -> Self {
        let (endpoint, client) = dynamodb();
        let store = DynamoDbStore::new(client.clone(), unique("records"));
        store.create_table().await.unwrap();
        let once = Idempotency::builder(store.clone()).disabled(false).build().unwrap();
        let (orders, outbox, shipments) = (unique("orders"), unique("outbox"), unique("shipments"));
        for table in [&orders, &outbox, &shipments] {
            create_table(&client, table, *table == outbox).await;
        }
        Self { endpoint, client, store, once, orders, outbox, shipments }
    }

    /// Writes the order and its message, and then ends as specified.
    async fn place(&self, order: String, end: Result<(), Failure>) -> Result<Outcome<()>, Error> {
        let id = self.once.key_hash(PLACE_ORDER, &order)?.to_hex();
        let operation = self.once.operation(PLACE_ORDER, &order).in_transaction(&self.store);
        let work = |writes: Writes| async move {
            writes.put(put(&self.orders, &order).build()?)?;
            writes.put(put(&self.outbox, &id).item("payload", AttributeValue::S(payload(&order))).build()?)?;
            end
        };
        operation.run(work).await
    }

    async fn ship(&self, message: Message) -> Result<Outcome<()>, Error> {
        let operation = self.once.operation(SHIP, &message.id).wait_up_to(TIMEOUT).in_transaction(&self.store);
        let work = |writes: Writes| async move {
            // Under a separate id, so that each effect is visible.
            let row = put(&self.shipments, &unique("shipment"))
                .item("order_id", AttributeValue::S(message.payload.trim_end().to_owned()));
            writes.put(row.build()?)?;
            Ok::<_, Failure>(())
        };
        operation.run(work).await
    }

    async fn rows(&self, table: &str, attribute: &str) -> Vec<String> {
        let scan = self.client.scan().table_name(table).consistent_read(true).projection_expression("#a");
        let pages = scan.expression_attribute_names("#a", attribute).into_paginator().items().send();
        let items: Vec<HashMap<_, _>> = pages.collect::<Result<_, _>>().await.unwrap();
        sorted(items.iter().map(|item| item[attribute].as_s().unwrap().clone()))
    }

    /// A call to the stream. Its responses have the format in which Lambda passes records on.
    async fn call(&self, action: &str, request: &Value) -> Value {
        let credential = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/dynamodb/aws4_request";
        let request = Request::post(&self.endpoint)
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", format!("DynamoDBStreams_20120810.{action}"))
            .header("x-amz-date", "20260101T000000Z")
            .header("authorization", format!("{credential}, SignedHeaders=host, Signature=none"))
            .body(Full::<Bytes>::from(request.to_string()))
            .unwrap();
        let answer = legacy::Client::builder(TokioExecutor::new()).build_http().request(request).await.unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert!(head.status.is_success(), "{action}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    /// Returns the first records of the outbox's stream, up to this number.
    async fn changes(&self, count: usize) -> Vec<Value> {
        let table = self.client.describe_table().table_name(&self.outbox).send().await.unwrap();
        let stream = table.table().and_then(|table| table.latest_stream_arn()).unwrap();
        let described = self.call("DescribeStream", &json!({ "StreamArn": stream })).await;
        let [shard] = described["StreamDescription"]["Shards"].as_array().unwrap().as_slice() else {
            panic!("{described}")
        };
        let start = json!({ "StreamArn": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON" });
        let mut iterator = self.call("GetShardIterator", &start).await["ShardIterator"].clone();
        let (mut changes, began) = (Vec::new(), Instant::now());
        while changes.len() < count {
            assert!(began.elapsed() < TIMEOUT, "{} records in the stream", changes.len());
            let page = self.call("GetRecords", &json!({ "ShardIterator": iterator })).await;
            let records = page["Records"].as_array().unwrap();
            changes.extend(records.iter().cloned().map(|mut record| {
                record["eventSourceARN"] = stream.into();
                record
            }));
            iterator = page["NextShardIterator"].clone();
            if records.is_empty() {
                sleep(Duration::from_millis(50)).await;
            }
        }
        assert_eq!(changes.len(), count);
        changes
    }
}

fn put(table: &str, id: &str) -> aws_sdk_dynamodb::types::builders::PutBuilder {
    Put::builder().table_name(table).item("id", AttributeValue::S(id.to_owned()))
}

async fn create_table(client: &Client, table: &str, has_stream: bool) {
    let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let stream = StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::NewImage);
    let create = client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(id.build().unwrap()).key_schema(key.build().unwrap());
    let create = create.set_stream_specification(has_stream.then(|| stream.build().unwrap()));
    create.send().await.unwrap();
}

fn relay(function: &RuntimeApi) -> Relay {
    Relay::start(function.command(env!("CARGO_BIN_EXE_relay-dynamodb")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_relay_that_is_killed_are_delivered_again() {
    let database = Database::create().await;
    let expected = expected_ids(&database.once);
    place_all(|order, end| database.place(order, end)).await;
    let orders = database.rows(&database.orders, "id").await;
    assert_eq!(orders.len(), ORDERS);
    assert_eq!(database.rows(&database.outbox, "id").await, expected);
    // As the time to live does.
    let deleted = AttributeValue::S(expected[0].clone());
    database.client.delete_item().table_name(&database.outbox).key("id", deleted).send().await.unwrap();
    let changes = database.changes(ORDERS + 1).await;
    assert_eq!(changes[ORDERS]["eventName"], "REMOVE");
    let batches: Vec<_> = changes.chunks(BATCH).map(|records| json!({ "Records": records })).collect();

    // It has published a message, and blocks before its response until its output is read.
    let function = RuntimeApi::start().await;
    let mut killed = relay(&function);
    function.send(&batches[0]);
    let first = killed.next().await.unwrap();
    let mut deliveries = [vec![first], killed.kill().await].concat();
    assert!(!function.has_response());
    assert!(deliveries.len() < BATCH);

    // Every batch is then delivered twice, as if the first response had been lost.
    let mut function = RuntimeApi::start().await;
    let (sender, mut queue) = mpsc::unbounded_channel();
    let reader = relay(&function).forward(sender);
    for batch in batches.iter().flat_map(|batch| [batch, batch]) {
        function.send(batch);
        assert_eq!(function.answer().await, json!({ "batchItemFailures": [] }));
    }
    let mut published = Vec::new();
    while published.len() < 2 * ORDERS {
        published.push(tokio::time::timeout(TIMEOUT, queue.recv()).await.expect("a message in time").unwrap());
    }
    reader.abort();
    assert_eq!(sorted(published.iter().map(|message| message.id.clone())), sorted([&expected[..], &expected].concat()));
    deliveries.extend(published);
    consume_all(deliveries, |message| database.ship(message)).await;
    assert_eq!(database.rows(&database.shipments, "order_id").await, orders);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lambda_resumes_at_the_first_change_that_was_not_published() {
    let change = |number: u32, message: Value| {
        json!({
            "eventID": number.to_string(),
            "eventName": "INSERT",
            "dynamodb": { "Keys": { "id": { "S": "a" } }, "NewImage": message, "SequenceNumber": number.to_string() },
        })
    };
    let message = json!({ "id": { "S": "a" }, "payload": { "S": "order 7" } });
    let no_message = json!({ "id": { "S": "a" } });
    let failed = |number: u32| json!({ "batchItemFailures": [{ "itemIdentifier": number.to_string() }] });
    let mut function = RuntimeApi::start().await;
    let mut relay = relay(&function);

    let batch = [change(1, message.clone()), change(2, no_message), change(3, message.clone())];
    function.send(&json!({ "Records": batch }));
    assert_eq!(function.answer().await, failed(2));
    assert_eq!(relay.next().await.unwrap().payload, "order 7");

    let _process = relay.close_queue();
    function.send(&json!({ "Records": [change(4, message.clone()), change(5, message)] }));
    assert_eq!(function.answer().await, failed(4));
}
