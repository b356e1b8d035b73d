//! SNS notifications as an envelope.

use std::collections::BTreeMap;

use base64::{DecodeError, Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Content, Envelope, EnvelopeError, Message};

/// Notifications of an SNS topic, with or without raw message delivery. Turning raw delivery on or off changes neither
/// keys nor payloads.
///
/// A body is an SNS notification if it is a JSON object whose `Type` is `Notification` and that has a `MessageId`, a
/// `Timestamp` and the ARN of a topic as `TopicArn`. Any other body is the message itself. A subscription confirmation,
/// which SNS sends to a queue of another account, is an error because it must be confirmed.
///
/// The attributes are `TopicArn`, `Timestamp` and, if there is one, `Subject`, in addition to the record's attributes.
/// The headers are the message attributes, as with raw delivery. The id is SNS's `MessageId`, which is the same in
/// every copy that SNS delivers. With raw delivery it is the record's id.
/// <https://docs.aws.amazon.com/sns/latest/dg/sns-sqs-as-subscriber.html>
#[derive(Clone, Copy, Debug, Default)]
pub struct Sns;

/// <https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html>
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document<'a> {
    #[serde(borrow)]
    r#type: Option<&'a RawValue>,
    message_id: Option<&'a RawValue>,
    topic_arn: Option<&'a RawValue>,
    timestamp: Option<&'a RawValue>,
    subject: Option<&'a RawValue>,
    message: Option<&'a RawValue>,
    message_attributes: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(in crate::batch) struct Attribute {
    #[serde(default)]
    r#type: String,
    pub(in crate::batch) value: String,
}

impl Attribute {
    /// Returns the decoded bytes of a binary attribute, or `None` for text.
    pub(in crate::batch) fn bytes(&self) -> Option<Result<Vec<u8>, DecodeError>> {
        (self.r#type == "Binary").then(|| BASE64_STANDARD.decode(&self.value))
    }
}

impl Envelope for Sns {
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
        let is_object = body.trim_ascii_start().first() == Some(&b'{');
        let document = is_object.then(|| serde_json::from_slice::<Document<'_>>(body).ok()).flatten();
        document.and_then(Document::open).unwrap_or(Ok(Content::Bare))
    }
}

impl Document<'_> {
    /// Returns `None` if it is not from SNS.
    fn open(self) -> Option<Result<Content, EnvelopeError>> {
        let topic = text(self.topic_arn).filter(|arn| is_topic(arn))?;
        let id = text(self.message_id).filter(|id| !id.is_empty())?;
        let time = text(self.timestamp)?;
        Some(match &*text(self.r#type)? {
            "Notification" => match (text(self.message), attributes(self.message_attributes)) {
                (Some(message), Some(attributes)) => {
                    let message = Message::new(message)
                        .with_id(id)
                        .with_attribute("TopicArn", topic)
                        .with_attribute("Timestamp", time)
                        .with_some("Subject", text(self.subject));
                    Ok(Content::Messages(vec![with_headers(message, attributes)]))
                }
                _ => Err(EnvelopeError::new(
                    "the notification of SNS has no Message that is a string, or malformed MessageAttributes: check what \
                     has changed it in transit",
                )),
            },
            "SubscriptionConfirmation" | "UnsubscribeConfirmation" => Err(EnvelopeError::new(
                "this is not a notification: SNS asks to confirm that the queue is subscribed or unsubscribed; call \
                 ConfirmSubscription with the Token in its body, or delete the message",
            )),
            _ => return None,
        })
    }
}

fn text(value: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

fn is_topic(arn: &str) -> bool {
    let parts: Vec<&str> = arn.split(':').collect();
    matches!(parts[..], ["arn", _, "sns", _, _, name, ..] if !name.is_empty())
}

/// Returns an empty map if there are no attributes, or `None` if they are malformed.
fn attributes(value: Option<&RawValue>) -> Option<BTreeMap<String, Attribute>> {
    let Some(value) = value else { return Some(BTreeMap::new()) };
    serde_json::from_str::<Option<_>>(value.get()).ok().map(Option::unwrap_or_default)
}

fn with_headers(message: Message, attributes: BTreeMap<String, Attribute>) -> Message {
    attributes.into_iter().fold(message, |message, (name, attribute)| match attribute.bytes() {
        None => message.with_header(name, attribute.value),
        Some(Ok(bytes)) => message.with_header_bytes(name, bytes),
        Some(Err(_)) => message,
    })
}
