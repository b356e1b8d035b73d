//! AWS Powertools for Python and for TypeScript, on one table with the library. `make powertools` runs these tests.

#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test's futures stay on its thread")]

#[path = "../support/mod.rs"]
mod support;

mod claims;
mod entries;
mod refusals;
mod results;
mod validation;
mod vectors;
mod worker;
mod world;
