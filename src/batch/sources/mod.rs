//! The event sources, one file each, with the parts that they share.

#[cfg(feature = "dynamodb-streams")]
pub mod dynamodb;
mod encoding;
pub mod eventbridge;
#[cfg(feature = "dynamodb-streams")]
mod image;
pub mod kafka;
pub mod kinesis;
pub mod mq;
pub mod sns;
#[cfg(feature = "sqs")]
pub mod sqs;
pub mod stream;
mod whole;
