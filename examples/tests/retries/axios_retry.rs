//! `axios-retry` with its condition for servers that recognize retries, `isRetryableError`: lost connections, 429 and 5xx.
//! `axios` reports its timeouts as `ETIMEDOUT`, because `axios-retry` does not retry its other timeouts.

use serde_json::json;

use super::{ALICE, Call, Reply};

async fn send(call: Call<'_>) -> Reply {
    let Call { url, key, body, timeout } = call;
    let timeout = u64::try_from(timeout.as_millis()).unwrap();
    let call = json!({ "url": url, "key": key, "token": ALICE, "body": body, "timeout": timeout });
    super::node::run("axios-retry", &call).await
}

#[tokio::test]
async fn a_lost_response_is_replayed() {
    super::lost_response(send).await;
}

#[tokio::test]
async fn a_timed_out_attempt_is_the_one_that_counts() {
    super::slow_first_run(send).await;
}

#[tokio::test]
async fn an_attempt_without_a_store_makes_no_charge() {
    super::store_down(send).await;
}

#[tokio::test]
async fn its_caller_learns_whether_money_may_have_moved() {
    super::refusals(send).await;
}
