//! Queues in SQS.

use anyhow::{Context, Result};
use aws_config::SdkConfig;
use aws_sdk_sqs::{Client, config::Builder};

use crate::{aws, output::Usage};

pub(crate) fn client(config: &SdkConfig) -> Client {
    Client::from_conf(Builder::from(config).timeout_config(aws::timeouts()).build())
}

/// Returns the URL of a queue, which is given as its URL, ARN or name, or `None` if there is no such queue.
///
/// # Errors
///
/// Returns the errors of SQS, or an error for a queue in another Region than the client's, whose queue of that name is
/// a different one.
pub(crate) async fn url(client: &Client, queue: &str) -> Result<Option<String>> {
    if let (Some(region), Some(own)) = (region(queue), client.config().region())
        && region != own.as_ref()
    {
        let why = format!("{queue} is in the Region {region}, and the tool works in {own}: set AWS_REGION");
        return Err(Usage(why).into());
    }
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

/// Returns the Region in the ARN of a queue, or in its URL at AWS.
fn region(queue: &str) -> Option<&str> {
    let Some((_, url)) = queue.split_once("://") else {
        let mut parts = queue.split(':');
        return parts.next().filter(|part| *part == "arn").and_then(|_| parts.nth(2));
    };
    let host = url.split(['/', ':']).next()?;
    let mut labels = host.split('.');
    let is_aws = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"].iter().any(|suffix| host.ends_with(suffix));
    // The host of a VPC endpoint begins with the name of the endpoint.
    labels.find(|label| is_aws && matches!(*label, "sqs" | "sqs-fips")).and_then(|_| labels.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arns_and_urls_of_aws_have_a_region() {
        for (queue, expected) in [
            ("arn:aws:sqs:eu-central-1:123456789012:orders", Some("eu-central-1")),
            ("https://sqs.eu-central-1.amazonaws.com/123456789012/orders", Some("eu-central-1")),
            ("https://sqs-fips.us-east-2.api.aws/123456789012/orders", Some("us-east-2")),
            ("https://vpce-1-a.sqs.eu-west-1.vpce.amazonaws.com/123456789012/orders", Some("eu-west-1")),
            ("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders", Some("cn-north-1")),
            ("https://queue.amazonaws.com/123456789012/orders", None),
            ("http://sqs.localhost:4566/000000000000/orders", None),
            ("orders", None),
        ] {
            assert_eq!(region(queue), expected, "{queue}");
        }
    }
}
