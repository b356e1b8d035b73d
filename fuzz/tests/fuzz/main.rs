//! Fuzz targets. Each draws its cases from bytes, and compares the library with an independent oracle.
//!
//! `cargo test` replays the committed corpus below `__fuzz__/` and a few random cases. `make fuzz` searches for longer.

#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test's futures stay on its thread")]

mod canonical;
mod events;
mod header;
mod support;
