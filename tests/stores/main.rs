//! Tests of the stores: the conformance suite, random requests with equal results in all stores, networks that lose,
//! delay and repeat requests, and the specifics of each store.

#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test's futures stay on its thread")]

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod crashes;
mod cryptography;
mod databases;
mod denied;
mod dynamodb;
mod each;
mod fixtures;
mod heartbeat;
mod messages;
mod network;
mod postgres;
mod purpose;
mod races;
mod redis;
mod sequences;
mod transactions;
mod versions;
mod wire;
