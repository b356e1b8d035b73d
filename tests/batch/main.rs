//! Tests of batches of records, from the event to its response: SQS, the other sources, the SQS client, the test kit,
//! and the allocations.

#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test's futures stay on its thread")]

#[path = "../support/mod.rs"]
mod support;

mod allocations;
mod envelopes;
mod real_handlers;
mod sources;
mod sqs;
mod sqs_client;
mod testing;
mod world;
