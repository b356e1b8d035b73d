//! Sends dead letters to an SQS queue, with the reasons for their failures.

use std::collections::BTreeMap;

use aws_sdk_sqs::{
    Client,
    primitives::Blob,
    types::{MessageAttributeValue, MessageSystemAttributeNameForSends, MessageSystemAttributeValue},
};
use base64::{Engine, prelude::BASE64_STANDARD};

use super::MAX_CALL_TIME;
use crate::{
    batch::dead_letters::{DeadLetter, DeadLetters},
    error::BoxError,
    future::BoxFuture,
    key::{canonical::Form, hash::digest},
    record::digits,
};

/// The maximum number of attributes of a message.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html>
const MAX_ATTRIBUTES: usize = 10;

/// The maximum length of an error's text in characters.
const MAX_ERROR_CHARS: usize = 1_000;

/// A [`DeadLetters`] that sends records from any source to an SQS queue, with the reasons for their failures.
///
/// The body is the record's body, in base64 if it is not text. These attributes are added, followed by as many of the
/// sender's as fit: `lambda-once.reason` (as in the log's field `outcome`), `lambda-once.error` (the error's text, at
/// most 1,000 characters), `lambda-once.key` (the hash under which the operation's record is stored),
/// `lambda-once.message-id`, `lambda-once.source`, and `lambda-once.encoding` if the body is in `base64`. In a FIFO
/// queue a message keeps its group, and attempts within five minutes send it only once, unless it has neither an id nor
/// a key.
///
/// A message that SQS has not accepted within 3 s is not dead-lettered.
///
/// It needs the permission `sqs:SendMessage` on the queue.
///
/// ```no_run
/// # async fn example(config: &aws_config::SdkConfig, url: String) {
/// use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::sqs::SqsDeadLetters};
///
/// let letters = SqsDeadLetters::new(aws_sdk_sqs::Client::new(config), url);
/// let once = Idempotency::new(MemoryStore::new());
/// let service = once.sqs(Key::message_id(), |_: String| async { Ok::<_, Failure>(()) }).dead_letters(letters);
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias("DLQ", "dead-letter queue"))]
pub struct SqsDeadLetters {
    client: Client,
    queue_url: String,
}

impl SqsDeadLetters {
    /// Creates a destination for the queue at this URL.
    pub fn new(client: Client, queue_url: impl Into<String>) -> Self {
        Self { client, queue_url: queue_url.into() }
    }

    async fn send_message(&self, letter: DeadLetter<'_>) -> Result<(), BoxError> {
        let mut attributes = BTreeMap::from([("reason", letter.reason.to_owned())]);
        attributes.insert("message-id", letter.record.id().to_owned());
        attributes.extend(letter.key.map(|key| ("key", key.to_hex())));
        attributes.extend(letter.record.source().map(|source| ("source", source.to_owned())));
        attributes.extend(letter.error.map(|error| ("error", error.chars().take(MAX_ERROR_CHARS).collect())));
        let body = match std::str::from_utf8(letter.body) {
            Ok(text) if !text.is_empty() && text.chars().all(is_allowed) => text.to_owned(),
            _ => {
                attributes.insert("encoding", "base64".to_owned());
                // A message must not be empty, and base64 contains no white space.
                Some(BASE64_STANDARD.encode(letter.body))
                    .filter(|text| !text.is_empty())
                    .unwrap_or_else(|| " ".to_owned())
            }
        };
        let ours = attributes.into_iter().map(|(name, text)| (format!("lambda-once.{name}"), text));
        // A header may occur several times, but only one value is used.
        let theirs = letter.record.headers().filter(|(name, _)| is_name(name));
        let theirs = theirs.filter_map(|(name, _)| Some((name, letter.record.header(name)?)));
        let theirs: BTreeMap<_, _> = theirs.collect();
        let theirs = theirs.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned()));
        // An attribute must not be empty.
        let attributes = ours.chain(theirs).filter(|(_, text)| !text.is_empty()).take(MAX_ATTRIBUTES);

        let mut request = self.client.send_message().queue_url(&self.queue_url).message_body(body);
        let mut attributes_sent = 0;
        for (name, text) in attributes {
            attributes_sent += 1;
            let text: String =
                text.chars().map(|c| if is_allowed(c) { c } else { char::REPLACEMENT_CHARACTER }).collect();
            let value = MessageAttributeValue::builder().data_type("String").string_value(text).build()?;
            request = request.message_attributes(name, value);
        }
        let room = MAX_ATTRIBUTES - attributes_sent;
        let binary: BTreeMap<_, _> = letter.record.binary_headers().filter(|(name, _)| is_name(name)).collect();
        for (name, bytes) in binary.into_iter().filter(|(_, bytes)| !bytes.is_empty()).take(room) {
            let value = MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new(bytes)).build()?;
            request = request.message_attributes(name, value);
        }
        if let Some(trace) = letter.record.source_attribute("AWSTraceHeader") {
            let value = MessageSystemAttributeValue::builder().data_type("String").string_value(trace).build()?;
            request = request.message_system_attributes(MessageSystemAttributeNameForSends::AwsTraceHeader, value);
        }
        if self.queue_url.ends_with(".fifo") {
            let group = letter.record.source_attribute("MessageGroupId").unwrap_or("lambda-once");
            request = request.message_group_id(group).message_deduplication_id(deduplication_id(&letter)?);
        }
        let sent =
            tokio::time::timeout(MAX_CALL_TIME, request.send()).await.map_err(|_| "SQS did not respond in time")?;
        sent.map_err(|error| aws_sdk_sqs::error::DisplayErrorContext(error).to_string())?;
        Ok(())
    }
}

impl DeadLetters for SqsDeadLetters {
    fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(self.send_message(letter))
    }
}

/// Returns whether a message may contain this character.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>
fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Returns whether an attribute may have this name.
fn is_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    (1..=256).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        && !["aws.", "amazon.", "lambda-once.", "."].iter().any(|reserved| lower.starts_with(reserved))
        && !name.ends_with('.')
        && !name.contains("..")
}

/// Returns the same id for all attempts to send a record. It includes the key and the body, because a sender may use
/// one id for several messages, and SQS would drop all but the first.
fn deduplication_id(letter: &DeadLetter<'_>) -> Result<String, BoxError> {
    let (source, id) = (letter.record.source().unwrap_or_default(), letter.record.id());
    let key = letter.key.as_ref().map_or(&[][..], |key| key.as_bytes());
    // Two records with neither id nor key cannot be recognized as the same, even if everything else is equal.
    let mut nonce = [0; 16];
    if id.is_empty() && key.is_empty() {
        getrandom::fill(&mut nonce).map_err(|_| "the operating system gave no random bytes")?;
    }
    let digest = digest(Form::Bytes, &[source.as_bytes(), id.as_bytes(), key, letter.body, &nonce]);
    Ok(digits(&digest, &mut [0; 64]).to_owned())
}
