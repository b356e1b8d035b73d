//! The sources, from Lambda's bytes to the bytes of the response, with tokio's time paused.

mod bytes;
mod consecutive;
mod dynamodb;
mod eventbridge;
mod files;
mod framed;
mod kafka;
mod kafka_keys;
pub(crate) mod kinesis;
mod mismatches;
pub(crate) mod mq;
mod own;
mod raw;
mod secrets;
mod sns;
pub(crate) mod streams;
mod streams_waits;
mod traces;
mod unordered;
mod windows;
