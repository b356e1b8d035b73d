//! What `make bench` measures, and how: the cells of its tables, the code that is compared, and the tools for both.
//!
//! The programs in `src/bin` use it: `endpoint` is the store, `worker` measures one cell, `bench` runs them all.

pub mod alone;
pub mod cell;
pub mod column;
pub mod endpoint;
pub mod instant;
pub mod layer;
pub mod library;
pub mod one_thread;
pub mod order;
pub mod plain;
pub mod raw;
pub mod seed;
pub mod stores;
pub mod stub;
pub mod usage;
