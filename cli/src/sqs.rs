//! Queues in SQS.

use anyhow::{Context, Result};
use aws_config::SdkConfig;
use aws_sdk_sqs::{Client, config::Builder};

use crate::aws;

pub(crate) fn client(config: &SdkConfig) -> Client {
    Client::from_conf(Builder::from(config).timeout_config(aws::timeouts()).build())
}

/// Returns the URL of a queue, which is given as its URL, ARN or name, or `None` if there is no such queue.
///
/// # Errors
///
/// Returns the errors of SQS.
pub(crate) async fn url(client: &Client, queue: &str) -> Result<Option<String>> {
    if queue.starts_with("https://") || queue.starts_with("http://") {
        return Ok(Some(queue.to_owned()));
    }
    let parts: Vec<_> = queue.split(':').collect();
    let (owner, name) = match parts[..] {
        ["arn", _, "sqs", _, owner, name] => (Some(owner.to_owned()), name),
        _ => (None, queue),
    };
    let found = client.get_queue_url().queue_name(name).set_queue_owner_aws_account_id(owner).send().await;
    match found {
        Ok(found) => found.queue_url.context("SQS returned no URL").map(Some),
        Err(error) if error.as_service_error().is_some_and(|error| error.is_queue_does_not_exist()) => Ok(None),
        Err(error) => Err(aws::error(error)),
    }
}
