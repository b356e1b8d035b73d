//! What the feature `testing` promises, used as a test of a function would use it.

#![cfg(all(
    feature = "testing",
    feature = "conformance",
    feature = "sqs",
    feature = "kinesis",
    feature = "dynamodb-streams",
    feature = "kafka",
    feature = "mq",
    feature = "sns",
    feature = "eventbridge"
))]
#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test with paused time has one thread")]

mod assertions;
mod brokers;
mod handlers;
mod journal;
mod overlap;
mod page;
mod queues;
mod single;
mod streams;
mod time;
