//! What the integration tests share.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a module of its own")]

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use aws_config::{BehaviorVersion, Region, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::{Client, config::Credentials};
use lambda_once::{DynamoDbStore, clock::ManualClock};

pub mod clock;

pub use clock::FUTURE;

/// The address of DynamoDB Local.
pub fn dynamodb_endpoint() -> String {
    std::env::var("DYNAMODB_ENDPOINT").expect("DYNAMODB_ENDPOINT is not set: run the tests by `make test`")
}

/// A client for an endpoint, with the timeouts and the number of attempts that `DynamoDbStore::from_env` has, and short
/// pauses between attempts.
pub async fn client(endpoint: &str) -> Client {
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(Duration::from_secs(1))
        .operation_timeout(Duration::from_secs(3));
    let retries = RetryConfig::standard().with_max_attempts(2).with_initial_backoff(Duration::from_millis(1));
    let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .endpoint_url(endpoint)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .timeout_config(timeouts.build())
        .retry_config(retries)
        .load()
        .await;
    Client::new(&config)
}

/// A name that no other test of any run uses.
pub fn unique_name(prefix: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("{prefix}-{started}-{}-{number}", std::process::id())
}

/// A time far from now, so that DynamoDB Local's own TTL never meets the records of a test.
pub fn future_clock() -> ManualClock {
    ManualClock::at(FUTURE)
}

/// A store on a table of its own, on a clock.
pub async fn store(client: Client, clock: ManualClock) -> DynamoDbStore {
    let store = DynamoDbStore::new(client, unique_name("records")).with_clock(clock);
    store.create_table().await.expect("the table is created");
    store
}
