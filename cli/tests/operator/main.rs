//! The tool itself, on the servers that `make test` starts. Records are made through the library.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod changes;
mod guards;
mod reading;
mod support;
mod table;
