//! The proxy that the tests of networks rely on, against a real Valkey and a real PostgreSQL.

mod client;
mod postgres;
mod resp;
