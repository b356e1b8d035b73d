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
//! | failed for now, unknown, panicked, cut off, lease lost | reported |
//! | in progress elsewhere, not started, skipped, store in trouble, not decoded for now | reported |
//! | abandoned | reported, or dead-lettered [by choice](BatchService::dead_letter_abandoned) and acknowledged |
//! | failed for good, now or before; mismatch; no key; undecodable body | by [`PermanentFailures`], or dead-lettered ([`DeadLetters`]) and acknowledged |
//!
//! The event source mapping must have `FunctionResponseTypes: [ReportBatchItemFailures]`, where it can: without it Lambda
//! ignores the answer, and deletes or passes over the records that failed.
//!
//! # Rules
//!
//! * Records fail one by one: a bad body, an error, a panic or a time-out touches no other record, but for those behind it
//!   in an order.
//! * A key that occurs twice in a batch runs once, for the earliest record; the others share its verdict. With another
//!   payload they are a mismatch; until the earliest is done or has failed for good, they are reported under every policy.
//!   Those that were not decoded before the time was up are reported.
//! * A record is started only if it can be expected to end before the stop point, shortly before the invocation's
//!   deadline. This is checked at its handler's first poll, since handlers before it may have blocked the thread. What was
//!   not started is reported and its claim released; what runs at the stop point is cut off and its claim kept.
//! * Claims run ahead of the work by one chunk of 25 records, and by up to ten once handlers have proved fast. Under
//!   [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) and [`AfterUnknown::Probe`](crate::AfterUnknown::Probe) a record is
//!   claimed only when its handler is about to start: one at a time until a first poll has returned and after a poll of over
//!   10 ms.
//! * Outcomes share calls to the store. Those that have waited for over 2 ms are sent before another handler begins, so a
//!   handler that never yields delays them by one run at most.
//! * Where records have an order (a FIFO queue's message group, a shard, a partition) they run in it, and one that is
//!   reported blocks those behind it.
//! * A record that is in progress elsewhere is waited for, for [20 s](BatchService::wait_up_to) at most and if its lease ends
//!   in time, where it would block others (in an order; in a stream; in Amazon MQ, which redelivers the whole batch) or has few tries
//!   (SNS, EventBridge), as long as the answer depends on it. Elsewhere it is reported at once.
//! * If no record could begin at all, because of the reserve or the expected duration, the invocation fails
//!   ([`ErrorKind::Config`](crate::ErrorKind::Config)) and nothing is claimed. If some did not begin, a warning is logged.
//! * Nothing is spawned: when the service answers, nothing of it is left running.

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

pub use bulk::{Bodies, BodiesAndContexts, Bulk, bulk};
pub use context::RecordContext;
pub use dead_letters::{DeadLetter, DeadLetters};
pub use handler::{Handler, Probing, handler, handler_with_context};
pub use invocation::Processed;
pub use messaging::{Messaging, Trigger};
pub use options::{OnFailure, PermanentFailures, TotalFailure};
pub use raw::{KeepRaw, KeepsRaw};
pub use raw_json::{JsonRecords, KeepJson, RawEvent, RawRecord};
pub use record::RecordInfo;
pub use redelivery::Redelivery;
pub use report::RecordReport;
pub use service::BatchService;
pub use source::{Answer, Source};
#[allow(unused_imports, unreachable_pub, reason = "without the feature of any source there is none")]
pub use sources::*;
pub use transaction::{BodyAndTransaction, BodyContextAndTransaction, InTransaction, in_transaction};
