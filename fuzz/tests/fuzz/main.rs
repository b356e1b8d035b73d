//! Fuzz targets. Each draws its cases from bytes, and compares the library with an independent oracle.
//!
//! `cargo test` replays the committed corpus below `__fuzz__/` and a few random cases. `make fuzz` searches for longer.

#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::future_not_send, reason = "a test's futures stay on its thread")]

mod addresses;
mod canonical;
mod emf;
mod envelopes;
mod events;
mod front_doors;
mod header;
mod selectors;
mod stored;
mod stored_in_postgres;
mod stored_in_redis;
mod stored_marks;

/// Runs a future to its end on this thread, with time paused.
fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(future)
}
