//! The examples as processes, against real and scripted servers.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test panics, and its modules are its own")]

mod client;
mod outbox;
mod payments;
mod retries;
mod support;
