//! EventBridge events as an envelope.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Content, Envelope, EnvelopeError, Message};

/// Events of an EventBridge bus, pipe or schedule.
///
/// The message is the event's `detail`. If that is a string that contains JSON, as EventBridge Scheduler sends it, the
/// message is that JSON. The attributes are `source`, `detail-type`, `account`, `time`, `region`, `resources` (joined
/// by commas) and `replay-name`, in addition to the record's attributes. The id is the event's.
///
/// The detail of an event from S3 is an [`S3Detail`](super::S3Detail).
///
/// A body without an `id`, a `source`, a `detail-type` or a `detail` is an error. A rule whose target has an input path
/// or an input transformer sends no such event, and needs no unwrapping.
/// <https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html>
#[derive(Clone, Copy, Debug, Default)]
pub struct EventBridge;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Event {
    id: String,
    source: String,
    detail_type: String,
    account: Option<String>,
    time: Option<String>,
    region: Option<String>,
    resources: Option<Vec<String>>,
    replay_name: Option<String>,
    detail: Box<RawValue>,
}

impl Envelope for EventBridge {
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
        let is_object = body.trim_ascii_start().first() == Some(&b'{');
        let event = is_object.then(|| serde_json::from_slice::<Event>(body).ok()).flatten();
        let event = event.filter(|event| !event.id.is_empty()).ok_or(EnvelopeError::new(
            "the body is not an event of EventBridge, with id, source, detail-type and detail: where the rule's target has an \
             input path or an input transformer, leave out envelope(EventBridge)",
        ))?;
        let resources = event.resources.filter(|resources| !resources.is_empty()).map(|names| names.join(","));
        let message = Message::new(unquoted(event.detail).get())
            .with_id(event.id)
            .with_attribute("source", event.source)
            .with_attribute("detail-type", event.detail_type)
            .with_some("account", event.account)
            .with_some("time", event.time)
            .with_some("region", event.region)
            .with_some("resources", resources)
            .with_some("replay-name", event.replay_name);
        Ok(Content::Messages(vec![message]))
    }
}

/// Unquotes the `detail` of EventBridge Scheduler, which is a string that contains JSON.
pub(in crate::batch) fn unquoted(detail: Box<RawValue>) -> Box<RawValue> {
    if !detail.get().starts_with('"') {
        return detail;
    }
    let text = serde_json::from_str::<String>(detail.get());
    text.and_then(RawValue::from_string).unwrap_or(detail)
}
