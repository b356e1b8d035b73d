//! Events of every source, one file each.

#[cfg(feature = "mq")]
pub mod activemq;
#[cfg(feature = "dynamodb-streams")]
pub mod dynamodb;
#[cfg(any(feature = "eventbridge", feature = "sns", feature = "sqs"))]
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
#[cfg(any(feature = "eventbridge", feature = "sns", feature = "sqs"))]
pub mod s3;
#[cfg(any(feature = "sns", feature = "sqs"))]
pub mod sns;
#[cfg(feature = "sqs")]
pub mod sqs;
