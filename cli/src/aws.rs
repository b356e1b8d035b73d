//! The configuration of AWS clients.

use std::{error::Error, time::Duration};

use aws_config::SdkConfig;
use aws_sdk_dynamodb::{config::timeout::TimeoutConfig, error::DisplayErrorContext};
use lambda_once::store::dynamodb;

/// Operators call from afar, and nothing waits for them.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the configuration of the environment.
pub(crate) async fn config() -> SdkConfig {
    dynamodb::Config::sdk_config().await
}

pub(crate) fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).operation_timeout(CALL_TIMEOUT).build()
}

/// Returns an error of a client, with its causes.
pub(crate) fn error(error: impl Error) -> anyhow::Error {
    anyhow::anyhow!("{}", DisplayErrorContext(error))
}
