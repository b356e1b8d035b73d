//! Events of every source, one file each.

#[cfg(feature = "mq")]
pub mod activemq;
#[cfg(feature = "dynamodb-streams")]
pub mod dynamodb;
#[cfg(feature = "eventbridge")]
pub mod eventbridge;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "kinesis")]
pub mod kinesis;
#[cfg(any(
    feature = "sqs",
    feature = "kinesis",
    feature = "dynamodb-streams",
    feature = "kafka",
    feature = "mq",
    feature = "sns",
    feature = "eventbridge"
))]
mod parts;
#[cfg(feature = "mq")]
pub mod rabbitmq;
#[cfg(feature = "sns")]
pub mod sns;
#[cfg(feature = "sqs")]
pub mod sqs;
