//! The tool as a process, on the servers that `make test` starts. The library creates the records.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod changes;
mod dlq;
mod doctor;
mod expired;
mod guards;
mod order;
mod permissions;
mod reading;
#[path = "../../../tests/support/servers.rs"]
mod servers;
mod support;
mod table;
mod trials;
#[path = "../../../tests/support/wire/mod.rs"]
mod wire;
