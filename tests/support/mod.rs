//! Shared support of the integration tests.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use aws_config::{BehaviorVersion, Region, retry::RetryConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::{
    Client,
    config::{Builder, Credentials, retry::RetryPartition},
};
use lambda_once::{
    DynamoDbStore,
    clock::{Clock, ManualClock},
};
#[cfg(feature = "redis")]
use lambda_once::{RedisStore, store::redis::Config};

pub mod clock;
pub mod collector;
pub mod delegate;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod process;
pub mod requests;
pub mod servers;
pub mod stores;
#[cfg(any(feature = "postgres-tls", feature = "redis-tls"))]
pub mod tls;
pub mod traces;
pub mod wire;

pub use clock::FUTURE;

/// Asserts the outcome of an operation.
#[allow(unused_macros, reason = "not every test binary asserts outcomes")]
macro_rules! assert_outcome {
    ($outcome:expr, $expected:pat $(if $condition:expr)?) => {
        match $outcome {
            $expected $(if $condition)? => {}
            other => panic!("expected {}, got {other:?}", stringify!($expected $(if $condition)?)),
        }
    };
}
#[allow(unused_imports, reason = "not every test binary asserts outcomes")]
pub(crate) use assert_outcome;

/// Returns the address of DynamoDB Local.
pub fn dynamodb_endpoint() -> String {
    std::env::var("DYNAMODB_ENDPOINT").expect("DYNAMODB_ENDPOINT is not set. Run the tests with `make test`")
}

/// Returns the address of a server that `make test` starts.
pub fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set. Run the tests with `make test`"))
}

/// Returns a number of cases, from the environment if it is set there.
pub fn cases<T: std::str::FromStr>(variable: &str, default: T) -> T {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// Returns a store on Redis or Valkey, with separate keys.
#[cfg(feature = "redis")]
pub fn redis() -> RedisStore {
    redis_config().build().unwrap()
}

/// Its settings.
#[cfg(feature = "redis")]
pub fn redis_config() -> Config {
    Config::new(server("REDIS_URL")).key_prefix(unique_name("test:"))
}

/// Returns a store on a Redis cluster, with separate keys.
#[cfg(feature = "redis-cluster")]
pub fn redis_cluster() -> RedisStore {
    let urls = server("REDIS_CLUSTER_URL");
    Config::cluster(urls.split(',')).key_prefix(unique_name("test:")).build().unwrap()
}

/// Returns a client for an endpoint, with the number of attempts of `DynamoDbStore::from_env`, short pauses between
/// them, and a separate retry quota, because the SDK's is shared by the process. Its timeouts are long, so that a busy
/// machine does not appear to lose responses, for example to create a table twice.
pub async fn client(endpoint: &str) -> Client {
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(Duration::from_secs(20))
        .operation_timeout(Duration::from_secs(60));
    let retries = RetryConfig::standard().with_max_attempts(2).with_initial_backoff(Duration::from_millis(1));
    let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(endpoint)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .timeout_config(timeouts.build())
        .retry_config(retries)
        .load()
        .await;
    Client::from_conf(Builder::from(&config).retry_partition(RetryPartition::new(unique_name("test"))).build())
}

/// Returns a name that no other test of any run uses.
pub fn unique_name(prefix: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("{prefix}-{started}-{}-{number}", std::process::id())
}

/// Returns a clock that shows [`FUTURE`].
pub fn future_clock() -> ManualClock {
    ManualClock::at(FUTURE)
}

/// Returns a store on a separate table, with a clock.
pub async fn store(client: Client, clock: impl Clock) -> DynamoDbStore {
    let store = DynamoDbStore::new(client, unique_name("records")).with_clock(clock);
    store.create_table().await.expect("the table is created");
    store
}
