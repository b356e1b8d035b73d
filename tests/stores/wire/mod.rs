//! The proxy that the tests of networks rely on, against a real Valkey, a real PostgreSQL and DynamoDB Local.

mod client;
mod dynamodb;
mod http;
mod postgres;
mod resp;
