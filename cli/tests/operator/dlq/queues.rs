//! A queue and its dead-letter queue in MiniStack.

use std::{process::Command, time::Duration};

use aws_sdk_sqs::{
    Client,
    types::{MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName as Attribute},
};

use crate::support::{Backend, Ended, Records, ended, on_ministack, server, unique_name};

/// The queues of one test, and its records.
pub(super) struct Queues {
    pub(super) records: Records,
    pub(super) client: Client,
    pub(super) source: String,
    pub(super) dead: String,
    suffix: &'static str,
}

/// A received message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Received {
    pub(super) body: String,
    pub(super) group: Option<String>,
    pub(super) deduplication_id: Option<String>,
    /// Its names, types and values, in order.
    pub(super) attributes: Vec<(String, String, String)>,
}

impl Queues {
    pub(super) async fn new(suffix: &'static str) -> Self {
        let records = Records::new(Backend::Redis).await;
        let client = Client::new(&on_ministack().await);
        let name = unique_name();
        let create = async |name: String, redrive: Option<String>| {
            let mut request = client.create_queue().queue_name(name);
            if suffix == ".fifo" {
                request = request.attributes(Attribute::FifoQueue, "true");
            }
            if let Some(redrive) = redrive {
                request = request.attributes(Attribute::RedrivePolicy, redrive);
            }
            request.send().await.unwrap().queue_url.unwrap()
        };
        let dead = create(format!("{name}-dead{suffix}"), None).await;
        let arn = format!("arn:aws:sqs:us-east-1:000000000000:{name}-dead{suffix}");
        let redrive = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"5"}}"#);
        let source = create(format!("{name}{suffix}"), Some(redrive)).await;
        Self { records, client, source, dead, suffix }
    }

    /// Puts the message of an order into the dead-letter queue, and returns its id. Orders of a FIFO queue are in one group for each
    /// first digit.
    pub(super) async fn dead_letter(&self, order: &str, attributes: &[(&str, &str)]) -> String {
        let mut request = self.client.send_message().queue_url(&self.dead).message_body(body(order));
        for (name, text) in attributes {
            let value = MessageAttributeValue::builder().data_type("String").string_value(*text).build().unwrap();
            request = request.message_attributes(*name, value);
        }
        if self.suffix == ".fifo" {
            let group = order.split('-').next().unwrap();
            request = request.message_group_id(group).message_deduplication_id(format!("id of {order}"));
        }
        request.send().await.unwrap().message_id.unwrap()
    }

    /// The tool on the dead-letter queue, with the keys of its orders.
    pub(super) fn command(&self, arguments: &[&str], endpoint: Option<&str>) -> Command {
        let (command, rest) = arguments.split_first().unwrap();
        let keys = ["--queue", &self.dead, "--selector", "/order_id", "--operation", "charge"];
        self.plain_command(&[&["dlq", command][..], &keys, rest].concat(), endpoint)
    }

    pub(super) fn plain_command(&self, arguments: &[&str], endpoint: Option<&str>) -> Command {
        let mut command = self.records.command(arguments);
        let ministack = server("MINISTACK_ENDPOINT");
        command.env("AWS_ENDPOINT_URL", endpoint.unwrap_or(&ministack)).env("AWS_REGION", "us-east-1");
        command
    }

    pub(super) async fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.command(arguments, None)).await
    }

    /// The numbers of messages that are visible, and that are not.
    pub(super) async fn count(&self, url: &str) -> (u32, u32) {
        let names = [Attribute::ApproximateNumberOfMessages, Attribute::ApproximateNumberOfMessagesNotVisible];
        let found = self.client.get_queue_attributes().queue_url(url).set_attribute_names(Some(names.clone().into()));
        let found = found.send().await.unwrap().attributes.unwrap();
        let [visible, invisible] = names.map(|name| found[&name].parse().unwrap());
        (visible, invisible)
    }

    /// Waits until so many messages of a queue are visible.
    pub(super) async fn until_visible(&self, url: &str, count: u32) {
        while self.count(url).await != (count, 0) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Receives and deletes all messages of a queue.
    pub(super) async fn drain(&self, url: &str) -> Vec<Received> {
        let mut all = Vec::new();
        loop {
            let request = self.client.receive_message().queue_url(url).max_number_of_messages(10);
            let request = request.message_system_attribute_names(MessageSystemAttributeName::All);
            let found = request.message_attribute_names("All").send().await.unwrap().messages.unwrap_or_default();
            if found.is_empty() {
                return all;
            }
            for message in found {
                let receipt = message.receipt_handle.clone().unwrap();
                self.client.delete_message().queue_url(url).receipt_handle(receipt).send().await.unwrap();
                let system = message.attributes.unwrap_or_default();
                let mut attributes: Vec<_> = message
                    .message_attributes
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(name, value)| (name, value.data_type, value.string_value.unwrap_or_default()))
                    .collect();
                attributes.sort();
                all.push(Received {
                    body: message.body.unwrap(),
                    group: system.get(&MessageSystemAttributeName::MessageGroupId).cloned(),
                    deduplication_id: system.get(&MessageSystemAttributeName::MessageDeduplicationId).cloned(),
                    attributes,
                });
            }
        }
    }
}

pub(super) fn body(order: &str) -> String {
    format!(r#"{{"order_id": "{order}", "cents": 4990}}"#)
}
