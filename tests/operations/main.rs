//! Single operations: any async function, and whole invocations.

#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test's futures stay on its thread")]

#[path = "../support/mod.rs"]
mod support;

mod engine;
mod faults;
mod invocation;
mod labels;
mod observers;
mod services;
mod settings;
