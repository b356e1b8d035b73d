//! The proxy of the network tests, in front of a real Valkey, a real PostgreSQL and DynamoDB Local.

mod client;
mod dynamodb;
mod http;
mod postgres;
mod resp;
