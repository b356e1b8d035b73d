//! Shared code of the fuzz targets: values drawn from bytes, mutations of JSON, and oracles.
//!
//! Nothing here depends on the library, so that no oracle can repeat its mistakes. The targets are in `tests/fuzz/`, except
//! for the targets of the operator's tool, which are unit tests.

pub mod input;
pub mod json;
pub mod mutate;
pub mod oracle;
pub mod tally;
