//! The AWS SDK against a service that implements DynamoDB's API, with the SDK's token for a transaction as the key. The SDK
//! retries lost connections, timeouts, 5xx and `TransactionInProgressException`.

use std::time::Duration;

use aws_sdk_dynamodb::{
    Client,
    config::{retry::RetryConfig, timeout::TimeoutConfig},
    operation::transact_write_items::{TransactWriteItemsError, TransactWriteItemsOutput},
    types::{AttributeValue, Put, TransactWriteItem},
};
use axum::{
    body::Bytes,
    http::{HeaderValue, Response, StatusCode, header},
};
use lambda_once::{
    Idempotency, Key,
    http::{Caller, IdempotencyKeyLayer},
};
use serde_json::{Value, json};

use super::service::Service;
use crate::support::{dynamodb_at, network::Proxy};

/// The header with an id that is the same in every attempt of a call.
const INVOCATION: &str = "amz-sdk-invocation-id";

/// Turns a problem into an exception of DynamoDB's, whose name decides whether the SDK retries.
fn exception(response: &mut Response<Bytes>) {
    let problem: Value = serde_json::from_slice(response.body()).unwrap();
    let name = match problem["code"].as_str() {
        Some("in_progress") => "TransactionInProgressException",
        Some("key_reused") => "IdempotentParameterMismatchException",
        _ => "InternalServerError",
    };
    let exception =
        json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{name}"), "Message": problem["detail"] });
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.0"));
    *response.body_mut() = exception.to_string().into();
}

fn layer(once: Idempotency) -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(once, Caller::shared())
        .key(Key::pointer("/ClientRequestToken"))
        .in_progress_status(StatusCode::BAD_REQUEST)
        .mismatch_status(StatusCode::BAD_REQUEST)
        .on_rejection(|_, response| exception(response))
}

async fn start() -> Service {
    Service::start("/", layer, |_| json!({})).await
}

#[derive(Clone, Copy)]
struct Call<'a> {
    token: Option<&'a str>,
    cents: u32,
    timeout: Duration,
    attempts: u32,
}

/// A call as the SDK makes it, with a token that the SDK generates.
const CALL: Call<'_> = Call { token: None, cents: 1999, timeout: Duration::from_secs(30), attempts: 10 };

async fn send(proxy: &Proxy, call: Call<'_>) -> Result<TransactWriteItemsOutput, TransactWriteItemsError> {
    let config = dynamodb_at(&proxy.url)
        .config()
        .to_builder()
        .retry_config(RetryConfig::standard().with_max_attempts(call.attempts))
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(call.timeout).build());
    let put = Put::builder().table_name("charges").item("cents", AttributeValue::N(call.cents.to_string())).build();
    let charge = TransactWriteItem::builder().put(put.unwrap()).build();
    let transaction = Client::from_conf(config.build()).transact_write_items().transact_items(charge);
    let sent = transaction.set_client_request_token(call.token.map(str::to_owned)).send().await;
    sent.map_err(|error| error.into_service_error())
}

#[tokio::test]
async fn a_lost_response_is_replayed() {
    let service = start().await;
    let proxy = Proxy::start(&service.address, |number, _| number > 0).await;
    send(&proxy, CALL).await.unwrap();
    let seen = proxy.exchanges(INVOCATION);
    assert_eq!(
        seen.iter().map(|seen| (seen.status, seen.is_replay())).collect::<Vec<_>>(),
        [(200, false), (200, true)]
    );
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn a_timed_out_attempt_is_the_one_that_counts() {
    let service = start().await;
    let resume = service.hold();
    let proxy = Proxy::start(&service.address, move |_, response| response.status != 400 || resume()).await;
    send(&proxy, Call { timeout: Duration::from_secs(1), ..CALL }).await.unwrap();
    let seen = proxy.exchanges(INVOCATION);
    let (last, refused) = seen.split_last().unwrap();
    assert!(refused.iter().all(|seen| seen.body.contains("TransactionInProgressException")), "{seen:?}");
    assert_eq!((refused.is_empty(), last.status, last.is_replay()), (false, 200, true));
    assert!(proxy.attempts() > seen.len(), "{seen:?}");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn an_attempt_without_a_store_has_no_effect() {
    let service = start().await;
    let repair = service.cut_store();
    let proxy = Proxy::start(&service.address, move |_, response| response.status != 503 || repair()).await;
    send(&proxy, CALL).await.unwrap();
    let seen = proxy.exchanges(INVOCATION);
    assert_eq!(
        seen.iter().map(|seen| (seen.status, seen.is_replay())).collect::<Vec<_>>(),
        [(503, false), (200, false)]
    );
    assert!(seen[0].body.contains("was not processed"), "{seen:?}");
    assert_eq!(service.effects(), 1);
}

#[tokio::test]
async fn its_caller_learns_whether_it_may_have_taken_effect() {
    let service = start().await;
    let resume = service.hold();
    let proxy = Proxy::start(&service.address, |_, _| true).await;
    let call = Call { token: Some("t-1"), attempts: 1, ..CALL };
    send(&proxy, Call { timeout: Duration::from_secs(1), ..call }).await.unwrap_err();

    let running = send(&proxy, call).await.unwrap_err();
    let TransactWriteItemsError::TransactionInProgressException(running) = running else { panic!("{running:?}") };
    assert!(running.message().unwrap().contains("is being processed, or ended without an outcome"), "{running}");

    resume();
    send(&proxy, Call { attempts: 10, ..call }).await.unwrap();
    let other = send(&proxy, Call { cents: 1, ..call }).await.unwrap_err();
    let TransactWriteItemsError::IdempotentParameterMismatchException(other) = other else { panic!("{other:?}") };
    assert!(other.message().unwrap().contains("another request, whose outcome stands"), "{other}");
    assert_eq!(service.effects(), 1);
}
