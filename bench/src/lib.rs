//! The parts of `make bench`: the cells of its tables, the compared code, and the tools for both.
//!
//! The programs in `src/bin` use it: `endpoint` is the store, `worker` measures one cell, `bench` runs them all.

pub mod alone;
pub mod cell;
pub mod column;
pub mod endpoint;
pub mod layer;
pub mod one_thread;
pub mod seed;
pub mod stores;
pub mod usage;

pub use bench_batches::{instant, library, order, plain, raw, stub};
