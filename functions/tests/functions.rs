//! The functions' binaries, on real events and DynamoDB Local.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test panics, and its modules are its own")]

mod environment;

use environment::Environment;
use serde_json::{Value, json};

fn event(file: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(format!("../events/{file}")).unwrap()).unwrap()
}

async fn orders(environment: &[(&str, &str)]) -> Environment {
    Environment::start(env!("CARGO_BIN_EXE_orders"), environment).await
}

async fn payouts(environment: &[(&str, &str)]) -> Environment {
    Environment::start(env!("CARGO_BIN_EXE_payouts"), environment).await
}

async fn charges() -> Environment {
    Environment::start(env!("CARGO_BIN_EXE_charges"), &[]).await
}

/// Returns the positions in the batch of the messages that were reported.
fn reported(batch: &Value, answer: &Value) -> Vec<usize> {
    let records = batch["Records"].as_array().unwrap();
    let failures = answer["batchItemFailures"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let position = |failure: &Value| {
        records.iter().position(|record| record["messageId"] == failure["itemIdentifier"]).expect("an id of the batch")
    };
    failures.iter().map(position).collect()
}

fn key(batch: &Value, position: usize) -> String {
    let body = batch["Records"][position]["body"].as_str().unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let key = body.get("order_id").or(body.get("payout_id")).unwrap();
    key.as_str().unwrap().to_owned()
}

/// Returns the batch as the queue delivers it for the second time.
fn again(batch: &Value) -> Value {
    let mut batch = batch.clone();
    for record in batch["Records"].as_array_mut().unwrap() {
        record["attributes"]["ApproximateReceiveCount"] = "2".into();
    }
    batch
}

#[tokio::test]
async fn orders_reaches_dynamodb_through_the_proxy_of_its_environment() {
    // No host has that name, so only a proxy can reach it. DynamoDB Local responds to requests that are addressed to a
    // proxy.
    let proxy = std::env::var("DYNAMODB_ENDPOINT").unwrap();
    let environment = [("AWS_ENDPOINT_URL_DYNAMODB", "http://dynamodb.invalid"), ("HTTP_PROXY", &proxy)];
    let mut function = orders(&environment).await;
    let batch = event("sqs-batch.json");
    function.invoke(&batch).await;
    assert_eq!(function.effects(&key(&batch, 0)).await, 1);
}

#[tokio::test]
async fn orders_books_each_order_once_and_reports_failed_messages() {
    let mut function = orders(&[("ALLOW_SIMULATION", "1")]).await;
    let batch = event("sqs-batch.json");
    // New, new, the first again, not an order, fails at first, fails permanently, the second with a different amount,
    // panics.
    assert_eq!(reported(&batch, &function.invoke(&batch).await), [3, 4, 5, 6, 7]);
    assert_eq!(reported(&batch, &function.invoke(&again(&batch)).await), [3, 5, 6, 7], "the panic's claim stands");
    for (position, effects) in [(0, 1), (1, 1), (4, 1), (5, 0), (7, 0)] {
        assert_eq!(function.effects(&key(&batch, position)).await, effects, "message {position}");
    }
}

#[tokio::test]
async fn orders_refuses_simulations_where_they_are_not_allowed() {
    let mut function = orders(&[]).await;
    let batch = event("sqs-batch.json");
    assert_eq!(reported(&batch, &function.invoke(&batch).await), [3, 4, 5, 6, 7]);
    assert_eq!(function.effects(&key(&batch, 4)).await, 0);
}

#[tokio::test]
async fn orders_without_protection_books_an_order_each_time() {
    let mut function = orders(&[("LAMBDA_ONCE_DISABLED", "1")]).await;
    let batch = event("sqs-batch.json");
    function.invoke(&batch).await;
    function.invoke(&batch).await;
    assert_eq!(function.effects(&key(&batch, 0)).await, 4, "twice in each batch");
}

#[tokio::test]
async fn payouts_pays_a_seller_in_order_and_each_payout_once() {
    let mut function = payouts(&[("ALLOW_SIMULATION", "1")]).await;
    // The first takes a while, and is sent again as the last. The sixth fails permanently.
    let batch = again(&event("sqs-fifo.json"));
    for _ in 0..2 {
        assert_eq!(reported(&batch, &function.invoke(&batch).await), [5]);
    }
    for (seller, payouts) in [("seller-17", vec![0, 2]), ("seller-23", vec![1, 3]), ("seller-58", vec![4])] {
        let expected: Vec<String> = payouts.into_iter().map(|position| key(&batch, position)).collect();
        assert_eq!(function.keys_in_order(seller).await, expected, "{seller}");
    }
    assert!(function.keys_in_order("seller-42").await.is_empty());
}

#[tokio::test]
async fn payouts_holds_up_the_seller_whose_payout_failed_and_no_other() {
    let mut function = payouts(&[("ALLOW_SIMULATION", "1")]).await;
    let batch = event("sqs-fifo.json");
    assert_eq!(
        reported(&batch, &function.invoke(&batch).await),
        [1, 3, 5],
        "the second fails, the fourth is behind it"
    );
    assert!(function.keys_in_order("seller-23").await.is_empty());
    assert_eq!(function.keys_in_order("seller-17").await, [key(&batch, 0), key(&batch, 2)]);
    assert_eq!(function.keys_in_order("seller-58").await, [key(&batch, 4)]);
    assert_eq!(reported(&batch, &function.invoke(&again(&batch)).await), [5]);
    assert_eq!(function.keys_in_order("seller-23").await, [key(&batch, 1), key(&batch, 3)]);
}

#[tokio::test]
async fn charges_makes_a_charge_once_and_replays_the_response() {
    for file in ["charge-rest-v1.json", "charge-http-v2.json"] {
        let mut function = charges().await;
        let first = function.invoke(&event(file)).await;
        let second = function.invoke(&event(file)).await;
        assert_eq!((&first["statusCode"], &second["statusCode"]), (&json!(201), &json!(201)), "{file}");
        assert_eq!(first["body"], second["body"], "{file}");
        assert!(!first.to_string().contains("idempotency-replayed"), "{file}");
        assert!(second.to_string().contains("idempotency-replayed"), "{file}");
    }
}

#[tokio::test]
async fn charges_does_not_remember_a_refused_body() {
    let mut function = charges().await;
    let good = event("charge-rest-v1.json");
    let mut bad = good.clone();
    bad["body"] = "{}".into();
    let refused = function.invoke(&bad).await;
    assert_eq!(refused["statusCode"], 400);
    assert!(refused.to_string().contains("application/problem+json"));
    assert_eq!(function.invoke(&good).await["statusCode"], 201, "the corrected body may use the key");
    assert_eq!(function.invoke(&bad).await["statusCode"], 422);
}

#[tokio::test]
async fn charges_reads_a_charge_untouched_by_the_layer() {
    let mut function = charges().await;
    let charge = function.invoke(&event("charge-rest-v1.json")).await;
    let body: Value = serde_json::from_str(charge["body"].as_str().unwrap()).unwrap();
    let id = body["charge_id"].as_str().unwrap();
    let mut read = event("charge-get-rest-v1.json");
    assert_eq!(function.invoke(&read).await["statusCode"], 404);
    read["path"] = format!("/charges/{id}").into();
    read["pathParameters"]["id"] = id.into();
    for _ in 0..2 {
        let found = function.invoke(&read).await;
        assert_eq!((&found["statusCode"], &found["body"]), (&json!(200), &charge["body"]));
        assert!(!found.to_string().contains("idempotency-replayed"));
    }
}
