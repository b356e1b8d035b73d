//! The layer for whole invocations.

#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "the futures of tests stay on their thread")]

mod compile;
mod errors;
mod keys;
mod logs;
mod refusals;
mod results;
mod setup;
use crate::support;
mod time;
mod waits;
