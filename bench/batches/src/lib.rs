//! Batches of orders through the library and through hand-written code, which `make bench` and `make instructions`
//! compare.

pub mod instant;
pub mod library;
pub mod order;
pub mod plain;
pub mod raw;
pub mod stub;
