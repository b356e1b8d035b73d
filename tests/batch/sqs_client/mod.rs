//! The bytes that the SQS clients send: the real SDK against a server with SQS's JSON protocol.

mod backoff;
use crate::support::{clock, collector};
mod function;
mod letters;
mod server;
