//! Independent implementations of the formats that the library reads and writes.

pub mod base64;
pub mod emf;
pub mod header;
