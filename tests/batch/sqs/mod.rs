//! What the SQS service promises, on the real service, with tokio's time paused.

#![cfg(all(feature = "sqs", feature = "conformance"))]
#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test with paused time has one thread")]

use crate::support::{clock, collector};

mod bulk;
#[cfg(feature = "cache")]
mod cached;
mod concurrency;
pub(crate) mod dead_letters;
mod deadline;
mod duplicates;
mod elsewhere;
mod events;
mod fifo;
mod fifo_looks;
mod fifo_waits;
mod handlers;
mod invocations;
mod keys;
mod last_receive;
mod letters_property;
mod logs;
mod permanent;
mod probes;
mod redelivery;
mod reports;
mod spy;
mod trouble;
mod verdicts;
pub(crate) mod world;
