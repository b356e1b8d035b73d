//! Functions, event source mappings and queues in an AWS account.
//!
//! Everything that needs the clients of Lambda and of resource tags is here. The functions of a stack are found by the tag that
//! CloudFormation puts on them, because its client would take as long to compile as all others together.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result, ensure};
use aws_sdk_lambda::types::{EventSourceMappingConfiguration, FunctionResponseType};
use aws_sdk_sqs::types::QueueAttributeName as Attribute;

use super::super::facts::{DeadLetters, Function, Mapping, Queue, Redrive, Source, Unread};
use crate::{aws, sqs};

/// The tag of CloudFormation on each resource of a stack.
const STACK_TAG: &str = "aws:cloudformation:stack-name";

/// The states in which a mapping does not invoke its function, or soon will not.
const STOPPED: [&str; 3] = ["Disabled", "Disabling", "Deleting"];

/// Clients for the account and Region of the environment.
#[derive(Debug)]
pub(crate) struct Account {
    functions: aws_sdk_lambda::Client,
    tags: aws_sdk_resourcegroupstagging::Client,
    queues: aws_sdk_sqs::Client,
}

impl Account {
    pub(crate) async fn open() -> Self {
        let config = aws::config().await;
        let functions = aws_sdk_lambda::config::Builder::from(&config).timeout_config(aws::timeouts());
        let tags = aws_sdk_resourcegroupstagging::config::Builder::from(&config).timeout_config(aws::timeouts());
        Self {
            functions: aws_sdk_lambda::Client::from_conf(functions.build()),
            tags: aws_sdk_resourcegroupstagging::Client::from_conf(tags.build()),
            queues: sqs::client(&config),
        }
    }

    /// Returns the ARNs of a stack's functions.
    ///
    /// # Errors
    ///
    /// Returns an error if there is none, or if `tag:GetResources` is refused.
    pub(crate) async fn functions_of(&self, stack: &str) -> Result<Vec<String>> {
        let filter = aws_sdk_resourcegroupstagging::types::TagFilter::builder().key(STACK_TAG).values(stack).build();
        let request = self.tags.get_resources().tag_filters(filter).resource_type_filters("lambda:function");
        let mut pages = request.into_paginator().items().send();
        let mut arns = Vec::new();
        while let Some(found) = pages.next().await {
            arns.extend(found.map_err(aws::error)?.resource_arn);
        }
        ensure!(
            !arns.is_empty(),
            "the stack {stack} has no functions in this account and Region; nested stacks have their own names"
        );
        arns.sort();
        Ok(arns)
    }

    /// Returns a function as [`describe`](Self::describe) does, and then its aliases that have mappings. Prints which queues do not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if Lambda does not return the function.
    pub(crate) async fn functions(&self, name: &str) -> Result<Vec<Function>> {
        let mut function = self.describe(name).await.with_context(|| format!("the function {name}"))?;
        let mut functions = std::mem::take(&mut function.aliases);
        functions.insert(0, function);
        for mapping in functions.iter().flat_map(|function| &function.mappings) {
            if let Source::MissingQueue(arn) = &mapping.source {
                eprintln!("there is no queue {arn}");
            }
        }
        Ok(functions)
    }

    /// Returns a function, by its name or ARN, with its mappings and their queues, and its aliases likewise. What cannot be read is
    /// left out, with the error.
    ///
    /// # Errors
    ///
    /// Returns an error if Lambda does not return the function.
    pub(crate) async fn describe(&self, name: &str) -> Result<Function> {
        let mut function = self.with_mappings(name).await?;
        if function.qualifier.is_some() {
            return Ok(function);
        }
        let mut aliases = self.functions.list_aliases().function_name(name).into_paginator().items().send();
        while let Some(found) = aliases.next().await {
            let alias = match found {
                Ok(alias) => alias.alias_arn.unwrap_or_default(),
                Err(error) => {
                    function.unread.push(unread("event source mappings of its aliases", &aws::error(error)));
                    break;
                }
            };
            match self.with_mappings(&alias).await {
                Ok(alias) if alias.mappings.is_empty() && alias.unread.is_empty() => {}
                Ok(alias) => function.aliases.push(alias),
                Err(error) => function.unread.push(unread(&format!("the alias {alias}"), &error)),
            }
        }
        Ok(function)
    }

    async fn with_mappings(&self, name: &str) -> Result<Function> {
        let found = self.functions.get_function_configuration().function_name(name).send().await;
        let found = found.map_err(aws::error)?;
        let variables = found.environment.and_then(|environment| environment.variables).unwrap_or_default();
        let mut function = Function {
            name: found.function_name.unwrap_or_else(|| name.to_owned()),
            qualifier: qualifier(name).map(str::to_owned),
            arn: found.function_arn.unwrap_or_default(),
            timeout: seconds(found.timeout),
            role: found.role.unwrap_or_default(),
            variables: variables.into_iter().collect(),
            mappings: Vec::new(),
            aliases: Vec::new(),
            unread: Vec::new(),
        };
        let mut pages = self.functions.list_event_source_mappings().function_name(name).into_paginator().items().send();
        while let Some(found) = pages.next().await {
            match found {
                // Mappings of another alias belong to another version.
                Ok(found) if qualifier(found.function_arn().unwrap_or(name)) != qualifier(name) => {}
                Ok(found) => function.mappings.push(self.mapping(found).await),
                Err(error) => {
                    function.unread.push(unread("event source mappings", &aws::error(error)));
                    break;
                }
            }
        }
        Ok(function)
    }

    async fn mapping(&self, found: EventSourceMappingConfiguration) -> Mapping {
        let arn = found.event_source_arn.unwrap_or_default();
        let source = match arn.split(':').nth(2) {
            Some("sqs") => match self.queue(&arn).await {
                Ok(Some(queue)) => Source::Queue(queue),
                Ok(None) => Source::MissingQueue(arn),
                Err(error) => Source::UnreadQueue { arn, why: format!("{error:#}") },
            },
            Some("kinesis" | "dynamodb") => Source::Stream(arn),
            _ => Source::Other,
        };
        Mapping {
            uuid: found.uuid.unwrap_or_default(),
            is_enabled: !found.state.is_some_and(|state| STOPPED.contains(&&*state)),
            source,
            batch_size: found.batch_size.and_then(|size| u32::try_from(size).ok()).unwrap_or(1),
            window: seconds(found.maximum_batching_window_in_seconds),
            reports_failures: found
                .function_response_types
                .unwrap_or_default()
                .contains(&FunctionResponseType::ReportBatchItemFailures),
        }
    }

    /// Returns `None` if there is no such queue.
    async fn queue(&self, arn: &str) -> Result<Option<Queue>> {
        let Some((url, attributes)) = self.attributes(arn).await? else { return Ok(None) };
        let redrive = match attributes.get(&Attribute::RedrivePolicy) {
            Some(policy) => Some(self.redrive(policy).await?),
            None => None,
        };
        let name = arn.rsplit(':').next().unwrap_or(arn).to_owned();
        Ok(Some(Queue {
            is_fifo: name.ends_with(".fifo"),
            name,
            url,
            visibility: number(&attributes, &Attribute::VisibilityTimeout),
            retention: number(&attributes, &Attribute::MessageRetentionPeriod),
            redrive,
        }))
    }

    async fn redrive(&self, policy: &str) -> Result<Redrive> {
        let policy: serde_json::Value = serde_json::from_str(policy).context("the redrive policy is not JSON")?;
        let arn = policy["deadLetterTargetArn"].as_str().unwrap_or_default().to_owned();
        // SQS returns the number in its original form, which may be text.
        let count = &policy["maxReceiveCount"];
        let count = count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or_default();
        let target = match self.attributes(&arn).await {
            Ok(None) => DeadLetters::Missing,
            Ok(Some((url, attributes))) => {
                DeadLetters::Found { url, retention: number(&attributes, &Attribute::MessageRetentionPeriod) }
            }
            Err(error) => DeadLetters::Unread { why: format!("{error:#}") },
        };
        let max_receive_count = u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Redrive { max_receive_count, target_arn: arn, target })
    }

    /// Returns `None` if there is no such queue.
    async fn attributes(&self, arn: &str) -> Result<Option<(String, HashMap<Attribute, String>)>> {
        let Some(url) = sqs::url(&self.queues, arn).await? else { return Ok(None) };
        let names = [Attribute::VisibilityTimeout, Attribute::MessageRetentionPeriod, Attribute::RedrivePolicy];
        let found = self.queues.get_queue_attributes().queue_url(&url).set_attribute_names(Some(names.into())).send();
        match found.await {
            Ok(found) => Ok(Some((url, found.attributes.unwrap_or_default()))),
            // It was deleted in the last minute.
            Err(error) if error.as_service_error().is_some_and(|error| error.is_queue_does_not_exist()) => Ok(None),
            Err(error) => Err(aws::error(error)),
        }
    }
}

fn unread(what: &str, error: &anyhow::Error) -> Unread {
    Unread { what: what.to_owned(), why: format!("{error:#}") }
}

/// Returns the alias or the version in a name or an ARN of a function.
fn qualifier(name: &str) -> Option<&str> {
    let name = name.split_once(":function:").map_or(name, |(_, name)| name);
    name.split_once(':').map(|(_, qualifier)| qualifier).filter(|qualifier| *qualifier != "$LATEST")
}

fn seconds(count: Option<i32>) -> Duration {
    Duration::from_secs(count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default())
}

fn number(attributes: &HashMap<Attribute, String>, name: &Attribute) -> Duration {
    Duration::from_secs(attributes.get(name).and_then(|value| value.parse().ok()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qualifier_follows_the_name() {
        for (name, expected) in [
            ("orders", None),
            ("orders:live", Some("live")),
            ("orders:$LATEST", None),
            ("123456789012:function:orders", None),
            ("123456789012:function:orders:7", Some("7")),
            ("arn:aws:lambda:eu-central-1:123456789012:function:orders", None),
            ("arn:aws:lambda:eu-central-1:123456789012:function:orders:live", Some("live")),
        ] {
            assert_eq!(qualifier(name), expected, "{name}");
        }
    }
}
