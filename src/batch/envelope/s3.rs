//! Event notifications of S3 as an envelope.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{Content, Envelope, EnvelopeError, Message, s3_record::decoded_key};

/// Event notifications of S3, each record of which is a separate operation.
///
/// The handler takes an [`S3Record`](super::S3Record), or a custom type for a record as S3 sends it, with a URL-encoded
/// object key. The attributes are `eventName`, `bucket` and `key` (decoded), in addition to the attributes of the
/// record around it.
///
/// [`Key::message_id`](crate::Key::message_id) identifies the event by bucket, key, version, event name and sequencer,
/// or by the time if S3 sends no sequencer. S3 delivers at least once, and a duplicate is the same event. For one
/// operation per content, regardless of the request that wrote it, use
/// `Key::composite([Key::attribute("bucket"), Key::attribute("key"), Key::pointer("/s3/object/eTag")])` with
/// `payload(Payload::Ignored)`.
///
/// Keys are selected from, and payloads compared by, the record without its description of the request: `eventTime`,
/// `userIdentity`, `requestParameters`, `responseElements` (`x-amz-request-id`) and `s3.configurationId`.
///
/// `s3:TestEvent`, which S3 sends when notifications are configured, is ignored. S3 events from EventBridge have a
/// different format: see [`EventBridge`](super::EventBridge) and [`S3Detail`](super::S3Detail).
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html>
#[derive(Clone, Copy, Debug, Default)]
pub struct S3;

#[derive(Deserialize)]
struct Notification<'a> {
    #[serde(rename = "Records", borrow)]
    records: Option<Vec<&'a RawValue>>,
    #[serde(rename = "Event")]
    event: Option<String>,
}

/// The fields that identify an event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    event_source: String,
    event_name: String,
    event_time: String,
    s3: Entity,
}

#[derive(Deserialize)]
struct Entity {
    bucket: Bucket,
    object: Object,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    key: String,
    version_id: Option<String>,
    sequencer: Option<String>,
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

impl Envelope for S3 {
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
        let is_object = body.trim_ascii_start().first() == Some(&b'{');
        let notification = is_object.then(|| serde_json::from_slice::<Notification<'_>>(body).ok()).flatten();
        let messages = match notification {
            Some(Notification { records: None, event: Some(event) }) if event == "s3:TestEvent" => {
                return Ok(Content::Nothing);
            }
            Some(Notification { records: Some(records), .. }) => {
                records.into_iter().map(message).collect::<Option<Vec<_>>>()
            }
            _ => None,
        };
        messages.map(Content::Messages).ok_or(EnvelopeError::new(
            "the body is not an event notification of S3: send other messages to a different queue; for a topic in between \
             use envelope((Sns, S3)), for events by EventBridge envelope(EventBridge)",
        ))
    }
}

/// Returns `None` if it is not an S3 record.
fn message(record: &RawValue) -> Option<Message> {
    let text = record.get();
    let Event { event_source, event_name, event_time, s3 } = serde_json::from_str(text).ok()?;
    if !event_source.ends_with(":s3") {
        return None;
    }
    let Entity { bucket: Bucket { name: bucket }, object: Object { key, version_id, sequencer } } = s3;
    let time = sequencer.is_none().then_some(event_time);
    let id = serde_json::to_string(&(&bucket, &key, version_id, &event_name, sequencer, time)).ok()?;
    let message = Message::new(text)
        .compared_by(without_the_request(text)?)
        .with_id(id)
        .with_attribute("eventName", event_name)
        .with_attribute("bucket", bucket)
        .with_attribute("key", decoded_key(&key))
        .rewrapped_by(|record| format!(r#"{{"Records":[{record}]}}"#));
    Some(message)
}

/// Returns the record without its description of the request.
fn without_the_request(record: &str) -> Option<String> {
    let mut members: Members<'_> = serde_json::from_str(record).ok()?;
    for name in ["eventTime", "userIdentity", "requestParameters", "responseElements"] {
        members.remove(name);
    }
    let mut entity: Members<'_> = serde_json::from_str(members.get("s3")?.get()).ok()?;
    entity.remove("configurationId");
    let entity = to_raw_value(&entity).ok()?;
    members.insert("s3".to_owned(), &entity);
    serde_json::to_string(&members).ok()
}
