//! The event sources, one file each.

#[cfg(feature = "kinesis")]
mod encoding;
#[cfg(feature = "kinesis")]
pub(super) mod kinesis;
#[cfg(feature = "sqs")]
pub(super) mod sqs;
#[cfg(feature = "kinesis")]
pub(super) mod stream;
