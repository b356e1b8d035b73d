//! The `Idempotency-Key` layer, over `lambda_http` and `axum`.

#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "the futures of tests stay on their thread")]

#[path = "../support/mod.rs"]
mod support;

mod admission;
mod bodies;
mod callers;
mod certificates;
mod compile;
mod events;
mod extractors;
mod heartbeat;
mod hooks;
mod hosts;
mod invocations;
mod keys;
mod load;
mod logs;
mod mismatches;
mod network;
mod orders;
mod original_request;
mod probes;
mod queues;
mod refusal_logs;
mod refusals;
mod replays;
mod requests;
mod responses;
mod retries;
mod rewrites;
mod routers;
mod server;
mod services;
mod settings;
mod setup;
mod sizes;
mod stages;
mod stores;
mod streams;
mod tenants;
mod trailers;
mod transactions;
mod trouble;
mod uploads;
