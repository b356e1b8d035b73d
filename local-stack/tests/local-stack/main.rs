//! The embedded DynamoDB.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod conformance;
mod embedded_dynamodb;
