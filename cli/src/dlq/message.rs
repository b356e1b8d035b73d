//! Messages of a dead-letter queue.

use std::collections::HashMap;

use aws_sdk_sqs::types::{self, MessageAttributeValue, MessageSystemAttributeName as Attribute};
use lambda_once::{clock::Timestamp, record::KeyHash};

/// The attributes that `SqsDeadLetters` adds begin with it.
const OWN: &str = "lambda-once.";
const ORIGINAL_ID: &str = "lambda-once.message-id";
const REASON: &str = "lambda-once.reason";
const KEY: &str = "lambda-once.key";
const SOURCE: &str = "lambda-once.source";
const ENCODING: &str = "lambda-once.encoding";

/// A received message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) receipt: String,
    pub(crate) body: String,
    pub(crate) attributes: HashMap<String, MessageAttributeValue>,
    pub(crate) system: HashMap<Attribute, String>,
}

impl From<types::Message> for Message {
    fn from(message: types::Message) -> Self {
        Self {
            id: message.message_id.unwrap_or_default(),
            receipt: message.receipt_handle.unwrap_or_default(),
            body: message.body.unwrap_or_default(),
            attributes: message.message_attributes.unwrap_or_default(),
            system: message.attributes.unwrap_or_default(),
        }
    }
}

impl Message {
    /// Returns the text of an attribute that a sender has set.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)?.string_value().filter(|text| !text.is_empty())
    }

    pub(crate) fn system(&self, name: &Attribute) -> Option<&str> {
        self.system.get(name).map(String::as_str)
    }

    /// Returns the id of the message that the function received.
    pub(crate) fn original_id(&self) -> &str {
        self.text(ORIGINAL_ID).unwrap_or(&self.id)
    }

    /// Returns the reason that `SqsDeadLetters` has added.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.text(REASON)
    }

    /// Returns whether its body is not the original one, which SQS does not accept.
    pub(crate) fn is_encoded(&self) -> bool {
        self.text(ENCODING).is_some()
    }

    /// Returns the hash that `SqsDeadLetters` has added.
    pub(crate) fn hash(&self) -> Option<KeyHash> {
        KeyHash::from_hex(self.text(KEY)?)
    }

    pub(crate) fn group(&self) -> Option<&str> {
        self.system(&Attribute::MessageGroupId)
    }

    /// Returns the ARN of the queue that it comes from, as SQS or else `SqsDeadLetters` has noted it.
    pub(crate) fn source(&self) -> Option<&str> {
        self.system(&Attribute::DeadLetterQueueSourceArn).or_else(|| self.text(SOURCE))
    }

    pub(crate) fn receives(&self) -> u64 {
        self.system(&Attribute::ApproximateReceiveCount).and_then(|count| count.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn sent_at(&self) -> Option<Timestamp> {
        self.system(&Attribute::SentTimestamp).and_then(|at| at.parse().ok()).map(Timestamp::from_millis)
    }

    /// Returns the attributes of the sender, without the attributes of `SqsDeadLetters`, which describe this dead
    /// letter and not its copy.
    pub(crate) fn senders_attributes(&self) -> HashMap<String, MessageAttributeValue> {
        let attributes = self.attributes.iter().filter(|(name, _)| !name.starts_with(OWN));
        attributes.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Returns the size that SQS counts.
    pub(crate) fn bytes(&self) -> usize {
        let attribute = |(name, value): (&String, &MessageAttributeValue)| {
            let text = value.string_value().map_or(0, str::len);
            name.len() + value.data_type().len() + text + value.binary_value().map_or(0, |bytes| bytes.as_ref().len())
        };
        self.body.len() + self.attributes.iter().map(attribute).sum::<usize>()
    }
}
