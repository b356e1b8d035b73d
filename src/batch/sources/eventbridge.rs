//! EventBridge buses and schedules as a source.
//!
//! ```
//! use lambda_once::{Failure, Key, testing::{self, eventbridge}};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order { order_id: String }
//!
//! async fn book(order: Order) -> Result<(), Failure> {
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let service = testing::engine().eventbridge(Key::pointer("/order_id"), book);
//! let event = eventbridge::event(testing::record(&Order { order_id: "7".into() }));
//! testing::deliver_twice(&service, &event).await.assert_once();
//! # }
//! ```

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::whole::success_or_error;
use crate::{
    batch::{
        envelope::unquoted,
        handler::Handler,
        messaging::{Messaging, Trigger},
        raw_json::keeps_json,
        record::RecordInfo,
        service::BatchService,
        source::{FailureReporting, Source},
    },
    decoding::decode_text,
    error::{Error, ErrorKind, ErrorStatus},
    idempotency::handle::Idempotency,
    key::selector::Key,
};

/// Events of an EventBridge bus or schedule. EventBridge invokes a function asynchronously with one event at a time. If
/// the event fails, the invocation fails, and Lambda retries it.
///
/// The body is the event's `detail`. If that is a string that contains JSON, as EventBridge Scheduler sends it, the
/// body is that JSON. The attributes are `source`, `detail-type`, `account`, `time`, `region`, `resources` (the rule or
/// schedule, joined by commas) and `replay-name`. The detail of an event from S3 is an
/// [`S3Detail`](crate::batch::envelope::S3Detail).
///
/// A subscriber of a [custom event
/// bus](https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-custom-bus-transform.html) must have the
/// `Transformer` `WITH_METADATA`. The body is then the event's `Data`, the id is `aws:EventId`, the other system
/// metadata are attributes, and the publisher's metadata are headers. For an event published by `PutEvents`, `Data` is
/// the whole envelope with its `detail`. An event in the default form, `RAW`, is only the publisher's data. It is
/// refused unless it has the members `id` and `detail`, in which case its id is the publisher's.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventBridge;

/// The system metadata with the id of an event from a custom event bus.
const EVENT_ID: &str = "aws:EventId";

/// An event of EventBridge.
/// <https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html>
#[doc(hidden)]
#[derive(Deserialize)]
pub struct EventBridgeEvent {
    #[serde(default)]
    id: String,
    #[serde(default)]
    source: Option<String>,
    #[serde(rename = "detail-type", default)]
    detail_type: Option<String>,
    #[serde(default)]
    account: Option<String>,
    #[serde(default)]
    time: Option<String>,
    #[serde(default)]
    region: Option<String>,
    #[serde(default)]
    resources: Option<Vec<String>>,
    #[serde(rename = "replay-name", default)]
    replay_name: Option<String>,
    #[serde(default, deserialize_with = "present")]
    detail: Option<Box<RawValue>>,
    /// From a custom event bus.
    #[serde(rename = "Data", default, deserialize_with = "present")]
    data: Option<Box<RawValue>>,
    #[serde(rename = "Metadata", default)]
    metadata: BTreeMap<String, String>,
    #[serde(rename = "SystemMetadata", default)]
    system_metadata: BTreeMap<String, String>,
}

/// Deserializes a value that is present, including `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The `detail` of an event as received.
#[doc(hidden)]
#[derive(Clone)]
pub struct Detail(Box<RawValue>);

impl AsRef<[u8]> for Detail {
    fn as_ref(&self) -> &[u8] {
        self.0.get().as_bytes()
    }
}

impl fmt::Debug for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detail").field("bytes", &self.0.get().len()).finish()
    }
}

/// Shows no detail.
impl fmt::Debug for EventBridgeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBridgeEvent").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Source for EventBridge {
    type Event = EventBridgeEvent;
    type Record = EventBridgeEvent;
    type Rest = ();
    type Body = Detail;
    type Response = ();

    const OPERATION: &'static str = "eventbridge";
    const WAITS_FOR_LEASE: bool = true;
    const REPORTING: FailureReporting = FailureReporting::AllOrNothing;

    fn split(&self, mut event: EventBridgeEvent) -> Result<(Vec<EventBridgeEvent>, ()), Error> {
        if let Some(id) = event.system_metadata.remove(EVENT_ID) {
            event.id = id;
            event.detail = event.detail.or(event.data.take());
        }
        let message = match (event.id.is_empty(), &event.detail) {
            (false, Some(_)) => return Ok((vec![event], ())),
            (true, _) => {
                "the event has no id: it is not from EventBridge, or from a subscriber of a custom event bus that sends the data alone \
                 (RAW, the default): set its `Transformer` to WITH_METADATA"
            }
            (false, None) => "the event has neither a `detail` nor `Data`: it is not from EventBridge",
        };
        Err(Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", message))
    }

    fn lane<'a>(&self, _: &'a EventBridgeEvent) -> Option<Cow<'a, str>> {
        None
    }

    fn open(&self, event: EventBridgeEvent) -> (RecordInfo, Detail) {
        let EventBridgeEvent { id, source, detail_type, account, time, region, resources, replay_name, .. } = event;
        // `split` rejects events without it.
        let detail = event.detail.unwrap_or_else(|| RawValue::NULL.to_owned());
        let resources = resources.filter(|resources| !resources.is_empty()).map(|resources| resources.join(","));
        let mut info = RecordInfo::new(id).with_source(source.clone());
        for (name, text) in [
            ("source", source),
            ("detail-type", detail_type),
            ("account", account),
            ("time", time),
            ("region", region),
            ("resources", resources),
            ("replay-name", replay_name),
        ] {
            if let Some(text) = text {
                info = info.with_attribute(name, text);
            }
        }
        for (name, text) in event.system_metadata {
            info = info.with_attribute(name, text);
        }
        for (name, text) in event.metadata {
            info = info.with_header(name, text);
        }
        (info, Detail(unquoted(detail)))
    }

    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        let is_schedule = record.attribute("detail-type") == Some("Scheduled Event");
        let trigger = if is_schedule { Trigger::Timer } else { Trigger::PubSub };
        // The event does not name its bus.
        Messaging::new("aws.eventbridge").with_trigger(trigger)
    }

    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<(), Error> {
        success_or_error(failed)
    }
}

keeps_json!(EventBridge, |event: &RawValue| Ok(vec![event.to_owned()]));

impl Idempotency {
    /// Makes a service for EventBridge, which runs `handler` for the `detail` of each event, once per `key`.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_runtime::Error> {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Shipped { order_id: String }
    ///
    /// async fn notify(shipped: Shipped) -> Result<(), Failure> {
    ///     Ok(())
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// lambda_runtime::run(once.eventbridge(Key::message_id(), notify)).await
    /// # }
    /// ```
    #[track_caller]
    pub fn eventbridge<H, T, Args>(&self, key: Key, handler: H) -> BatchService<EventBridge, H, T, Args>
    where
        H: Handler<T, Args>,
        T: DeserializeOwned + Send + 'static,
    {
        let decode = |_: &RecordInfo, detail: &Detail| decode_text(detail.0.get()).map_err(Into::into);
        self.batch(EventBridge, key, decode, handler)
    }
}
