//! Chaos on real stores.
//!
//! The coordinator ([`run`]) holds a queue, a double of the Lambda Runtime API, HTTP clients, proxies between the
//! workers and the store, and the ledger in which handlers enter their effects. Its workers ([`work`]) are processes: a
//! function with the library's SQS service, an axum service with the Idempotency-Key layer, and a consumer that runs
//! operations. It kills and freezes them, loses, delays and repeats their requests, and kills the server. A
//! [judge](judge::judge) that shares no code with the library decides whether the [history](history::History) keeps the
//! library's promise.

mod client;
pub mod history;
pub mod judge;
mod options;
mod report;
mod settings;
mod worker;
mod world;

pub use options::{Options, USAGE};
pub use worker::{ROLE, work};
pub use world::run;
