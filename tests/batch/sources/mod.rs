//! What the sources promise, from the bytes that Lambda sends to those that it gets, with tokio's time paused.

#![cfg(all(
    feature = "sqs",
    feature = "kinesis",
    feature = "dynamodb-streams",
    feature = "kafka",
    feature = "mq",
    feature = "sns",
    feature = "eventbridge",
    feature = "conformance"
))]
#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test with paused time has one thread")]

use crate::support::clock;

mod dynamodb;
mod eventbridge;
mod files;
mod kafka;
mod kafka_keys;
pub(crate) mod kinesis;
pub(crate) mod mq;
mod own;
mod secrets;
mod sns;
pub(crate) mod streams;
mod streams_waits;
mod windows;
pub(crate) mod world;
