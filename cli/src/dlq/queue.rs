//! Calls to SQS for messages.

use std::time::Duration;

use anyhow::{Result, bail};
use aws_sdk_sqs::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    types::{
        ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
        MessageSystemAttributeName as Attribute, MessageSystemAttributeNameForSends, MessageSystemAttributeValue,
        QueueAttributeName, SendMessageBatchRequestEntry,
    },
};

use super::message::Message;
use crate::aws;

/// The number of messages in a call.
pub(crate) const BATCH: usize = 10;
/// A receive that waits queries all servers of SQS.
const WAIT_SECONDS: i32 = 1;
const NOT_INVISIBLE: &str = "MessageNotInflight";
const FIFO: &str = ".fifo";

/// A queue, by its URL.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) client: Client,
    pub(crate) url: String,
}

/// A message that was not sent.
#[derive(Clone, Debug)]
pub(crate) struct Unsent {
    pub(crate) why: String,
    pub(crate) cause: Cause,
}

/// The cause for which a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// SQS refused this message for its own sake.
    Message,
    /// SQS failed on this message.
    Service,
    /// The call was refused.
    Call,
    /// SQS did not respond, so the message may have been sent.
    Unknown,
}

impl Queue {
    pub(crate) fn is_fifo(&self) -> bool {
        self.url.ends_with(FIFO)
    }

    /// Returns whether both are one queue, whatever the name of its host.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let path = |url: &str| url.rsplitn(3, '/').take(2).map(str::to_owned).collect::<Vec<_>>();
        path(&self.url) == path(&other.url)
    }

    /// Returns whether this is its ARN. A dead-letter queue and its sources are in one Region.
    pub(crate) fn has_arn(&self, arn: &str) -> bool {
        self.url.rsplitn(3, '/').take(2).eq(arn.rsplitn(3, ':').take(2))
    }

    /// Receives up to ten messages, which are then invisible to others for this time.
    pub(crate) async fn receive(&self, hold: Duration) -> Result<Vec<Message>> {
        let request = self.client.receive_message().queue_url(&self.url).max_number_of_messages(BATCH as i32);
        let request = request
            .visibility_timeout(i32::try_from(hold.as_secs()).unwrap_or(i32::MAX))
            .wait_time_seconds(WAIT_SECONDS);
        let request = request.message_system_attribute_names(Attribute::All).message_attribute_names("All");
        let found = request.send().await.map_err(aws::error)?;
        Ok(found.messages.unwrap_or_default().into_iter().map(Message::from).collect())
    }

    /// Makes messages visible again. After an error it tries the others as well.
    ///
    /// # Errors
    ///
    /// Returns an error that contains the number of messages that may stay invisible.
    pub(crate) async fn release(&self, receipts: &[String]) -> Result<()> {
        let mut reasons = Vec::new();
        for receipts in receipts.chunks(BATCH) {
            let entry = |(index, receipt): (usize, &String)| {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(index.to_string());
                entry.receipt_handle(receipt).visibility_timeout(0).build()
            };
            let entries = receipts.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>()?;
            let request = self.client.change_message_visibility_batch().queue_url(&self.url).set_entries(Some(entries));
            match request.send().await {
                Ok(answer) => {
                    // A message whose time has passed is visible already.
                    let failed = answer.failed.into_iter().filter(|entry| !entry.code.ends_with(NOT_INVISIBLE));
                    reasons.extend(failed.map(|entry| entry.message.unwrap_or(entry.code)));
                }
                Err(error) => {
                    let why = format!("{:#}", aws::error(error));
                    reasons.extend(receipts.iter().map(|_| why.clone()));
                }
            }
        }
        let Some(why) = reasons.first() else { return Ok(()) };
        bail!("messages that may stay invisible for the time of --hold: {} ({why})", reasons.len())
    }

    /// Sends messages with their bodies, groups and the attributes of their senders. Returns the new id of each, or why it was not sent.
    pub(crate) async fn send(&self, messages: &[&Message]) -> Vec<Result<String, Unsent>> {
        let entries: Result<Vec<_>> =
            messages.iter().enumerate().map(|(index, message)| self.entry(index, message)).collect();
        let failed = |why: String, cause| vec![Err(Unsent { why, cause }); messages.len()];
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return failed(format!("{error:#}"), Cause::Call),
        };
        let answer = self.client.send_message_batch().queue_url(&self.url).set_entries(Some(entries)).send().await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let refused = error.as_service_error().filter(|error| error.code().is_some());
                let cause = match refused {
                    // The destination can have a lower limit. A message that may exceed it goes alone.
                    Some(refused) if refused.is_batch_request_too_long() && messages.len() == 1 => Cause::Message,
                    Some(_) => Cause::Call,
                    None if matches!(&error, SdkError::ConstructionFailure(_)) => Cause::Call,
                    None => Cause::Unknown,
                };
                return failed(format!("{:#}", aws::error(error)), cause);
            }
        };
        let no_answer = || Unsent { why: "SQS did not mention the message".to_owned(), cause: Cause::Unknown };
        let mut sent: Vec<_> = messages.iter().map(|_| Err(no_answer())).collect();
        let mut set = |id: &str, result| {
            if let Some(place) = id.parse().ok().and_then(|index: usize| sent.get_mut(index)) {
                *place = result;
            }
        };
        for entry in answer.successful {
            set(&entry.id, Ok(entry.message_id));
        }
        for entry in answer.failed {
            let why = entry.message.unwrap_or(entry.code);
            let cause = if entry.sender_fault { Cause::Message } else { Cause::Service };
            set(&entry.id, Err(Unsent { why, cause }));
        }
        sent
    }

    fn entry(&self, index: usize, message: &Message) -> Result<SendMessageBatchRequestEntry> {
        let mut entry = SendMessageBatchRequestEntry::builder()
            .id(index.to_string())
            .message_body(&message.body)
            .set_message_attributes(Some(message.senders_attributes()).filter(|attributes| !attributes.is_empty()))
            // Standard queues may have groups too, for fairness.
            .set_message_group_id(message.group().map(str::to_owned));
        if self.is_fifo() {
            // The sender's own id may be one that SQS has seen in the last five minutes: it would accept the message and drop it. This
            // one is unique, and the same when a run that was killed is repeated.
            entry = entry.message_deduplication_id(&message.id);
        }
        if let Some(trace) = message.system(&Attribute::AwsTraceHeader) {
            let value = MessageSystemAttributeValue::builder().data_type("String").string_value(trace).build()?;
            entry = entry.message_system_attributes(MessageSystemAttributeNameForSends::AwsTraceHeader, value);
        }
        Ok(entry.build()?)
    }

    /// Deletes messages. Returns the reason for each that was not deleted.
    pub(crate) async fn delete(&self, messages: &[&Message]) -> Vec<Result<(), String>> {
        let entry = |(index, message): (usize, &&Message)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(index.to_string());
            entry.receipt_handle(&message.receipt).build()
        };
        let entries: Result<Vec<_>, _> = messages.iter().enumerate().map(entry).collect();
        let failed = |why: String| vec![Err(why); messages.len()];
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return failed(error.to_string()),
        };
        let answer = self.client.delete_message_batch().queue_url(&self.url).set_entries(Some(entries)).send().await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return failed(format!("{:#}", aws::error(error))),
        };
        let mut deleted = vec![Err("SQS did not mention the message".to_owned()); messages.len()];
        let mut set = |id: &str, result| {
            if let Some(place) = id.parse().ok().and_then(|index: usize| deleted.get_mut(index)) {
                *place = result;
            }
        };
        for entry in answer.successful {
            set(&entry.id, Ok(()));
        }
        for entry in answer.failed {
            set(&entry.id, Err(entry.message.unwrap_or(entry.code)));
        }
        deleted
    }

    /// Returns whether the queue has a dead-letter queue itself.
    pub(crate) async fn has_redrive_policy(&self) -> Result<bool> {
        let policy = QueueAttributeName::RedrivePolicy;
        let request = self.client.get_queue_attributes().queue_url(&self.url).attribute_names(policy.clone());
        let attributes = request.send().await.map_err(aws::error)?.attributes.unwrap_or_default();
        Ok(attributes.get(&policy).is_some_and(|text| !text.is_empty()))
    }

    /// Returns the URLs of the queues whose dead-letter queue this is.
    pub(crate) async fn sources(&self) -> Result<Vec<String>> {
        let request = self.client.list_dead_letter_source_queues().queue_url(&self.url);
        let mut pages = request.into_paginator().items().send();
        let mut urls = Vec::new();
        while let Some(url) = pages.next().await {
            urls.push(url.map_err(aws::error)?);
        }
        Ok(urls)
    }
}
