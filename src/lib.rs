//! Idempotency for AWS Lambda and HTTP services: each message, request or function call takes effect once, even if it is delivered
//! twice, overlaps itself, times out or crashes.
//!
//! An operation is claimed in a store before it runs, under a fresh owner token and for the duration of its lease. Its
//! outcome is recorded by a write that is conditional on that token, and each duplicate gets the recorded result.
//!
//! ```
//! use lambda_once::{Failure, Key, testing::{self, sqs}};
//!
//! #[derive(serde::Deserialize, serde::Serialize)]
//! struct Order { order_id: u64 }
//!
//! async fn book(order: Order) -> Result<String, Failure> {
//!     Ok(format!("receipt for {}", order.order_id))
//! }
//!
//! # tokio_test(async {
//! // In a function: `Idempotency::new(DynamoDbStore::from_env().await?)`, and `lambda_runtime::run(service)`.
//! let service = testing::engine().sqs(Key::pointer("/order_id"), book);
//! let batch = sqs::batch([testing::record(&Order { order_id: 1 }), testing::record(&Order { order_id: 2 })]);
//! testing::deliver_twice(&service, &batch).await.assert_once();
//! # });
//! # fn tokio_test(test: impl Future<Output = ()>) {
//! #     tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(test);
//! # }
//! ```
//!
//! # Entry points
//!
//! | events | item | feature |
//! |---|---|---|
//! | SQS, standard and FIFO | [`Idempotency::sqs`] | `sqs` |
//! | Kinesis, Kafka | [`Idempotency::kinesis`], [`Idempotency::kafka`] | `batch` |
//! | DynamoDB streams | [`Idempotency::dynamodb_stream`] | `dynamodb-streams` |
//! | SNS, EventBridge, Amazon MQ | [`Idempotency::sns`], [`Idempotency::eventbridge`], [`Idempotency::mq`] | `batch` |
//! | custom sources | [`Idempotency::batch`], [`batch::Source`] | `batch` |
//! | HTTP in Lambda, over `lambda_http` | [`http::IdempotencyKeyLayer`] | `http-lambda` |
//! | HTTP in axum and other services on hyper | [`http::IdempotencyKeyLayer`] | `axum`, `http` |
//! | direct invocations, Step Functions | [`invocation::InvocationLayer`] | `invocation` |
//! | any async function | [`Idempotency::operation`] | |
//!
//! # Stores
//!
//! | store | type | feature |
//! |---|---|---|
//! | DynamoDB | [`DynamoDbStore`] | `dynamodb` (default) |
//! | PostgreSQL | [`PostgresStore`] | `postgres`, `postgres-tls` |
//! | Redis, Valkey | [`RedisStore`] | `redis`, `redis-cluster`, `redis-tls` |
//! | memory, for tests | [`MemoryStore`] | |
//! | custom stores | [`Store`] | `conformance` for its tests |
//!
//! [`CachedStore`] puts a local cache of outcomes in front of any of them.
//!
//! # Outcomes and errors
//!
//! An operation returns an [`Outcome`]: it ran, was replayed, is in progress elsewhere, and so on. If the library
//! cannot reach one, it returns an [`Error`] that indicates whether a [redelivery](Error::is_retryable) can help. A
//! handler's own error has a [`Verdict`]. By default it is transient and the claim is released. [`Classify`] and
//! [`Builder::classify`] override that.
//! [`AfterUnknown`] determines how an operation is handled after a run that left no outcome, such as a crash.
//!
//! # Guarantees
//!
//! * The outcome of a key is recorded once, and no late worker changes it.
//! * While clocks agree to within the [margin](Builder::skew_margin) and no handler outlives its lease, at most one worker holds a key.
//! * It is not exactly-once, because a process can die between an effect and its record.
//!   [`in_transaction`](Operation::in_transaction) closes that gap if the effect is a write to the database that
//!   contains the records.
//!
//! # Features
//!
//! | feature | description |
//! |---|---|
//! | `dynamodb` (default) | [`DynamoDbStore`], on the AWS SDK |
//! | `ring` (default), `aws-lc` | the cryptography of TLS for every store; without both, the application provides it |
//! | `powertools` | records in DynamoDB that functions with AWS Powertools recognize, in Python or TypeScript |
//! | `postgres`, `postgres-tls` | [`PostgresStore`], without and with TLS by rustls |
//! | `redis`, `redis-cluster`, `redis-tls` | [`RedisStore`], on a node, on a cluster, with TLS by rustls |
//! | `batch` | the batch processor with Kinesis, Kafka, SNS, EventBridge, Amazon MQ and custom sources |
//! | `kinesis`, `kafka`, `mq`, `sns`, `eventbridge` | other names of `batch` |
//! | `sqs`, `sqs-client` | SQS; calls to it: visibility backoff and dead letters with a reason |
//! | `dynamodb-streams` | DynamoDB streams |
//! | `http`, `http-lambda`, `axum` | the `Idempotency-Key` layer on hyper, over `lambda_http`, in axum |
//! | `invocation` | the layer over whole invocations |
//! | `order` | `ordered_by`: an older event never takes effect after a newer one |
//! | `jmespath` | keys by JMESPath expressions |
//! | `anyhow` | classifiers also find errors in an `anyhow::Error` |
//! | `cache` | [`CachedStore`] |
//! | `testing` | for tests of a handler: an engine in memory, events of every source, deliveries and assertions |
//! | `conformance` | for tests of a store: the suite that every store must pass, and a store that injects faults |
//!
//! The minimum Rust version follows the AWS SDK. It rises in minor versions only.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
#[cfg(feature = "batch")]
pub mod batch;
pub mod clock;
#[cfg(any(feature = "batch", feature = "invocation"))]
mod decoding;
#[cfg(test)]
mod documented;
mod error;
mod future;
#[cfg(feature = "http")]
pub mod http;
mod idempotency;
#[cfg(feature = "invocation")]
pub mod invocation;
pub mod key;
pub mod order;
mod panics;
pub mod record;
pub mod store;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "batch")]
pub use batch::{PermanentFailures, RecordContext};
pub use clock::Deadline;
pub use error::{BoxError, Error, ErrorKind, ErrorStatus};
pub use future::BoxFuture;
pub use idempotency::{
    AfterUnknown, Builder, Claim, Classified, Classify, DISABLED_VARIABLE, Failure, Idempotency, InTransaction,
    Interruption, InvocationContext, OnPanic, Operation, OperationSettings, Outcome, OutcomeKind, ProbeResult,
    ResultCodec, Results, StoredFailure, Verdict, WithoutClaim,
};
pub use key::missing::MissingKey;
#[cfg(any(feature = "batch", feature = "invocation"))]
pub use key::payload::Payload;
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
pub use key::selector::Key;
pub use record::{Difference, PayloadPart};
#[cfg(feature = "cache")]
pub use store::cached::CachedStore;
#[cfg(feature = "dynamodb")]
pub use store::dynamodb::DynamoDbStore;
#[cfg(feature = "postgres")]
pub use store::postgres::PostgresStore;
#[cfg(feature = "redis")]
pub use store::redis::RedisStore;
pub use store::{Mismatch, MismatchState, Store, memory::MemoryStore, transaction::Transactional};
