//! `reqwest-retry` with its default strategy. It retries timeouts, lost connections, 408, 429 and 5xx.

use std::time::Duration;

use reqwest_middleware::ClientBuilder;
use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};

use super::{ALICE, Call, Reply};

async fn send(call: Call<'_>) -> Reply {
    let bounds = (Duration::from_millis(50), Duration::from_secs(1));
    let policy = ExponentialBackoff::builder().retry_bounds(bounds.0, bounds.1).build_with_max_retries(10);
    let client = reqwest::Client::builder().timeout(call.timeout).build().unwrap();
    let client = ClientBuilder::new(client).with(RetryTransientMiddleware::new_with_policy(policy)).build();
    let request = client
        .post(call.url)
        .bearer_auth(ALICE)
        .header("content-type", "application/json")
        .header("idempotency-key", call.key)
        .body(call.body.to_owned());
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    Reply { status, body: serde_json::from_slice(&response.bytes().await.unwrap()).unwrap() }
}

super::retries_of!(send);
