//! What the fuzz targets share: values drawn from bytes, mutations of JSON, and oracles.
//!
//! Nothing here depends on the library, so that no oracle can repeat its mistakes. The targets are in `tests/fuzz/`, and
//! those of the operator's tool are among its unit tests.

pub mod input;
pub mod json;
pub mod mutate;
pub mod oracle;
pub mod tally;
