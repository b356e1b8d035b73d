//! Makes every record of a queue's or stream's batch a separate idempotent operation.
//!
//! ```
//! use lambda_once::{Failure, Key, batch::FullBatchFailure, testing};
//!
//! #[derive(serde::Deserialize)]
//! struct Order { order_id: String }
//!
//! async fn book(order: Order) -> Result<(), Failure> {
//!     Ok(())
//! }
//!
//! let once = testing::engine(); // in a function: `Idempotency::new(DynamoDbStore::from_env().await?)`
//! let service = once
//!     .sqs(Key::pointer("/order_id"), book)
//!     .concurrency(5)
//!     .on_full_batch_failure(FullBatchFailure::StoreError); // counted by the alarm on `Errors`
//! ```
//!
//! [`Idempotency::sqs`](crate::Idempotency::sqs) and its siblings turn a handler of one record into a service for
//! [`lambda_runtime::run`]. Each record gets its own verdict, and the response lists the records to deliver again, by
//! ids for SQS, by a checkpoint for [Kinesis](kinesis) and [DynamoDB streams](dynamodb), by offsets for [Kafka](kafka).
//! For [Amazon MQ](mq), [SNS](sns) and [EventBridge](eventbridge) the response is success or an error.
//! [`Idempotency::batch`](crate::Idempotency::batch) is for a custom [`Source`].
//!
//! | outcome of the record | source |
//! |---|---|
//! | executed, replayed, took over, recovered, superseded | acknowledged |
//! | ignored | acknowledged |
//! | executed, but not recorded | acknowledged, because the work is done |
//! | failed transiently, unknown, panicked, cancelled, lease lost | reported |
//! | in progress elsewhere, not started, skipped, store error, transient decoding error | reported |
//! | abandoned | reported, or dead-lettered [by choice](BatchService::dead_letter_abandoned) and acknowledged |
//! | failed permanently, now or before; mismatch; no key; undecodable body | by [`PermanentFailures`], or dead-lettered ([`DeadLetters`]) and acknowledged |
//!
//! The event source mapping must have `FunctionResponseTypes: [ReportBatchItemFailures]` if it supports that. Without
//! it Lambda ignores the response, and deletes or skips the records that failed.
//!
//! Records fail one by one, except those behind a failed record in the same order. A record that is not expected to
//! finish in time does not start. It is reported, and its claim is released. Nothing is spawned, so nothing is left
//! running when the service returns.
//!
//! `docs/internals/protocol.md` in the repository contains the rules, B1 to B12: order, time, waits, dead letters, and
//! claims ahead of the work. `docs/sqs.md` and `docs/streams.md` describe their effects for queues and streams.

mod bulk;
mod context;
mod dead_letters;
pub mod envelope;
mod handler;
mod ignore;
mod invocation;
mod messaging;
mod observer;
mod options;
mod processor;
mod raw;
mod raw_json;
mod record;
mod redaction;
mod redelivery;
mod report;
mod service;
mod settings;
mod source;
mod sources;
mod spans;
mod transaction;

pub use bulk::{Bulk, bulk};
pub use context::RecordContext;
pub use dead_letters::{DeadLetter, DeadLetters};
pub use handler::{Handler, handler, handler_with_context};
pub use invocation::Processed;
pub use messaging::{Messaging, Trigger};
pub use options::{FullBatchFailure, OnFailure, PermanentFailures};
pub use raw_json::RawRecord;
pub use record::RecordInfo;
pub use redelivery::Redelivery;
pub use report::RecordReport;
pub use service::BatchService;
pub use source::{FailureReporting, Source};
#[allow(unused_imports, unreachable_pub, reason = "without the feature of any source there is none")]
pub use sources::*;
pub use transaction::{InTransaction, in_transaction};
