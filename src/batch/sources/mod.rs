//! The event sources, one file each, and what several of them share.

#[cfg(feature = "dynamodb-streams")]
pub mod dynamodb;
#[cfg(any(feature = "kinesis", feature = "kafka", feature = "mq"))]
mod encoding;
#[cfg(feature = "eventbridge")]
pub mod eventbridge;
#[cfg(feature = "dynamodb-streams")]
mod image;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "kinesis")]
pub mod kinesis;
#[cfg(feature = "mq")]
pub mod mq;
#[cfg(feature = "sns")]
pub mod sns;
#[cfg(feature = "sqs")]
pub mod sqs;
#[cfg(any(feature = "kinesis", feature = "dynamodb-streams"))]
pub mod stream;
#[cfg(any(feature = "mq", feature = "sns", feature = "eventbridge"))]
mod whole;
