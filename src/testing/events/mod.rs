//! Builders of events, one file per source.

pub mod activemq;
#[cfg(feature = "dynamodb-streams")]
pub mod dynamodb;
pub mod eventbridge;
pub mod kafka;
pub mod kinesis;
mod parts;
pub mod rabbitmq;
mod records;
pub mod s3;
pub mod sns;
#[cfg(feature = "sqs")]
pub mod sqs;

pub use records::{Batch, Record, bytes, record};
