//! Queues and streams: every record of a batch is an operation of its own.
//!
//! [`Idempotency::sqs`](crate::Idempotency::sqs) and its siblings make a service for [`lambda_runtime::run`] of a handler
//! for one record. Each record gets its own verdict, and the answer tells Lambda what to deliver again: by ids for SQS, by
//! a checkpoint for [Kinesis](kinesis) and [DynamoDB streams](dynamodb), by offsets for [Kafka](kafka). [Amazon MQ](mq),
//! [SNS](sns) and [EventBridge](eventbridge) take success or an error.
//! [`Idempotency::batch`](crate::Idempotency::batch) is for a custom [`Source`].
//!
//! | outcome of the record | source |
//! |---|---|
//! | executed, replayed, took over, recovered, superseded | acknowledged |
//! | ignored: no work | acknowledged |
//! | executed, but not recorded | acknowledged: the work is done |
//! | failed for now, unknown, panicked, cancelled, lease lost | reported |
//! | in progress elsewhere, not started, skipped, store in trouble, not decoded for now | reported |
//! | abandoned | reported, or dead-lettered [by choice](BatchService::dead_letter_abandoned) and acknowledged |
//! | failed for good, now or before; mismatch; no key; undecodable body | by [`PermanentFailures`], or dead-lettered ([`DeadLetters`]) and acknowledged |
//!
//! The event source mapping must have `FunctionResponseTypes: [ReportBatchItemFailures]`, where it can: without it Lambda
//! ignores the answer, and deletes or passes over the records that failed.
//!
//! Records fail one by one, but for those behind a failed one in an order. A record that cannot be expected to end in time is
//! not started; it is reported, and its claim is released. Nothing is spawned: when the service answers, nothing of it is left
//! running.
//!
//! `docs/internals/protocol.md` in the repository states the rules, B1 to B12: order, time, waits, dead letters, and claims ahead of the
//! work. `docs/sqs.md` and `docs/streams.md` say what they mean for queues and for streams.

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
