//! Unchanged third-party clients against the layer. Each retries by its own rules, through lost responses, a slow service
//! and a store that is down.

/// The tests of a client that charges by `$send`.
macro_rules! retries_of {
    ($send:ident) => {
        #[tokio::test]
        async fn a_lost_response_is_replayed() {
            $crate::retries::lost_response($send).await;
        }

        #[tokio::test]
        async fn a_timed_out_attempt_is_the_one_that_counts() {
            $crate::retries::slow_first_run($send).await;
        }

        #[tokio::test]
        async fn an_attempt_without_a_store_makes_no_charge() {
            $crate::retries::store_down($send).await;
        }

        #[tokio::test]
        async fn its_caller_learns_whether_money_may_have_moved() {
            $crate::retries::refusals($send).await;
        }
    };
}
use retries_of;

mod aws_sdk;
mod axios_retry;
mod node;
mod reqwest_retry;
mod service;
mod stripe_node;

use std::time::Duration;

use lambda_once::DynamoDbStore;
use serde_json::Value;

use crate::support::{
    Payments, dynamodb,
    network::{Cable, Exchange, Proxy},
    unique,
};

const ALICE: &str = "token-of-alice";
const CHARGE: &str = r#"{"amount_cents":1999,"currency":"EUR"}"#;

/// A charge for a client to make.
struct Call<'a> {
    /// The URL of the charges of account 1.
    url: String,
    key: &'a str,
    body: &'a str,
    /// The client's timeout for a response.
    timeout: Duration,
}

impl<'a> Call<'a> {
    fn to(proxy: &Proxy) -> Self {
        let url = format!("{}/accounts/1/charges", proxy.url);
        Self { url, key: "k-1", body: CHARGE, timeout: Duration::from_secs(30) }
    }
}

/// The client's result for its caller.
#[derive(Debug, PartialEq, Eq, serde::Deserialize)]
struct Reply {
    /// 0 without a response.
    status: u16,
    body: Value,
}

/// The response to the first attempt is lost.
async fn lost_response(send: impl AsyncFn(Call<'_>) -> Reply) {
    let payments = Payments::start(0).await;
    let proxy = Proxy::start(payments.address(), |number, _| number > 0).await;
    let reply = send(Call::to(&proxy)).await;
    let seen: Vec<_> = proxy.exchanges("idempotency-key").iter().map(|seen| (seen.status, seen.is_replay())).collect();
    assert_eq!(seen, [(201, false), (201, true)]);
    assert_charged_once(&payments, &reply).await;
}

/// The client times out, perhaps several times, before the charge is made.
async fn slow_first_run(send: impl AsyncFn(Call<'_>) -> Reply) {
    let payments = Payments::start_with(&[("DELAY_MS", "700"), ("WAIT_MS", "20000")]).await;
    let proxy = Proxy::start(payments.address(), |_, _| true).await;
    let reply = send(Call { timeout: Duration::from_millis(400), ..Call::to(&proxy) }).await;
    assert!(proxy.attempts() > 1, "{reply:?}");
    assert!(proxy.exchanges("idempotency-key").iter().all(Exchange::is_replay), "{reply:?}");
    assert_charged_once(&payments, &reply).await;
}

/// The store is down until the client has been refused once.
async fn store_down(send: impl AsyncFn(Call<'_>) -> Reply) {
    let (endpoint, client) = dynamodb();
    let table = unique("payments");
    DynamoDbStore::new(client, &table).create_table().await.unwrap();
    let cable = Cable::to(&endpoint).await;
    let environment = [
        ("IDEMPOTENCY_TABLE", &*table),
        ("AWS_ENDPOINT_URL_DYNAMODB", &cable.url),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "local"),
        ("AWS_SECRET_ACCESS_KEY", "local"),
    ];
    let payments = Payments::start_with(&environment).await;
    let repair = cable.cut();
    let proxy = Proxy::start(payments.address(), move |_, response| response.status != 503 || repair()).await;
    let reply = send(Call::to(&proxy)).await;
    let [refused, made] = &proxy.exchanges("idempotency-key")[..] else { panic!("{reply:?}") };
    assert_eq!((refused.status, made.status, made.is_replay()), (503, 201, false));
    assert_eq!((&refused.json()["code"], &refused.json()["retryable"]), (&"unavailable".into(), &true.into()));
    assert!(refused.body.contains("was not processed"), "{refused:?}");
    assert_charged_once(&payments, &reply).await;
}

/// Refusals that the client does not retry reach its caller, and each indicates whether money may have moved.
async fn refusals(send: impl AsyncFn(Call<'_>) -> Reply) {
    // The charge runs longer than any client needs to start.
    let mut payments = Payments::start(120_000).await;
    let proxy = Proxy::start(payments.address(), |_, _| true).await;
    crate::payments::send_and_disconnect(&mut payments, "k-1").await;
    let running = send(Call::to(&proxy)).await;
    assert_eq!((running.status, &running.body["code"]), (409, &"in_progress".into()), "{running:?}");
    assert!(running.body["detail"].as_str().unwrap().contains("is being processed, or ended without an outcome"));
    // It was not retried.
    assert_eq!(proxy.attempts(), 1);

    let payments = Payments::start(0).await;
    payments.charge(ALICE, "k-1", CHARGE).await;
    let proxy = Proxy::start(payments.address(), |_, _| true).await;
    let other = send(Call { body: r#"{"amount_cents":1,"currency":"EUR"}"#, ..Call::to(&proxy) }).await;
    assert_eq!((other.status, &other.body["code"]), (422, &"key_reused".into()), "{other:?}");
    assert!(other.body["detail"].as_str().unwrap().contains("another request, whose outcome stands"), "{other:?}");
    assert_eq!((proxy.attempts(), payments.charges(ALICE).await.len()), (1, 1));
}

async fn assert_charged_once(payments: &Payments, reply: &Reply) {
    assert_eq!(reply.status, 201, "{reply:?}");
    assert_eq!(payments.charges(ALICE).await, std::slice::from_ref(&reply.body));
}
