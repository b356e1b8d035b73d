//! What the clients of SQS send, byte by byte: the real SDK against a server that speaks SQS's JSON protocol.

mod backoff;
use crate::support::{clock, collector};
mod function;
mod letters;
mod server;
