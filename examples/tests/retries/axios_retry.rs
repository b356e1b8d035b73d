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

super::retries_of!(send);
