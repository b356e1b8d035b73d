//! Stores: the suite that each must pass, DynamoDB behind a network that loses, delays and refuses requests, and
//! PostgreSQL among other transactions, restarts and fail-overs.

#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test's futures stay on its thread")]

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod dynamodb_faults;
mod postgres;
mod proxy;
