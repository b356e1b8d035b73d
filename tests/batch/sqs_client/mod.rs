//! What the clients of SQS send, byte by byte: the real SDK against a server that speaks SQS's JSON protocol.

#![cfg(feature = "sqs-client")]
#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "the futures of tests stay on their thread")]

mod backoff;
use crate::support::{clock, collector};
mod function;
mod letters;
mod server;
