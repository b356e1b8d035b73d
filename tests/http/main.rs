//! The `Idempotency-Key` layer, over `lambda_http` and `axum`.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod answers;
mod bodies;
mod compile;
mod keys;
mod setup;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
