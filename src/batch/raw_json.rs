//! Keeps records as JSON, for sources whose types omit unused fields.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned},
};
use serde_json::value::RawValue;

use super::{
    messaging::Messaging,
    record::RecordInfo,
    source::{FailureReporting, Source},
};
use crate::error::{Error, ErrorKind, ErrorStatus};

/// A source whose events list their records in JSON.
pub trait JsonRecords: Source<Event: DeserializeOwned> {
    /// Returns the records of an event, in the order of [`split`](Source::split).
    ///
    /// # Errors
    ///
    /// If it is not an event of this source.
    fn json_records(event: &RawValue) -> serde_json::Result<Vec<Box<RawValue>>>;
}

/// A record as received in the event, in JSON. For Amazon MQ it is the message, for EventBridge the event.
///
/// ```
/// use lambda_once::{Classify, Failure, Idempotency, Key, MemoryStore, RecordContext, batch::RawRecord};
///
/// #[derive(serde::Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct Invoker { invoke_identity_arn: String }
///
/// async fn store(reading: serde_json::Value, context: RecordContext) -> Result<String, Failure> {
///     let raw = context.record().raw::<RawRecord>().ok_or("not kept").permanent()?;
///     Ok(raw.decode::<Invoker>().permanent()?.invoke_identity_arn)
/// }
///
/// let once = Idempotency::new(MemoryStore::new());
/// let service = once.kinesis(Key::message_id(), store).with_raw();
/// # assert!(service.validate().is_ok());
/// ```
///
/// The builders of `testing` cannot make events for such a service, so tests provide the JSON:
///
/// ```
/// # #[cfg(feature = "testing")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use lambda_once::{Failure, Key, RecordContext, batch::RawRecord, testing};
///
/// async fn store(_: u32, context: RecordContext) -> Result<bool, Failure> {
///     Ok(context.record().raw::<RawRecord>().is_some())
/// }
///
/// const EVENT: &str = r#"{"Records": [{"kinesis": {"sequenceNumber": "1", "data": "Nw=="}}]}"#;
///
/// let service = testing::engine().kinesis(Key::message_id(), store).with_raw();
/// testing::deliver_twice(&service, &|_: u32| serde_json::from_str(EVENT).unwrap()).await.assert_once();
/// # }
/// # #[cfg(not(feature = "testing"))] fn main() {}
/// ```
#[derive(Clone)]
pub struct RawRecord(Box<RawValue>);

impl RawRecord {
    /// Returns the record's JSON, byte for byte.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }

    /// Decodes the record as another type, such as one of `aws_lambda_events`.
    ///
    /// # Errors
    ///
    /// If the record is not valid for the type. The error may quote the record.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_json())
    }
}

/// Shows no payload.
impl fmt::Debug for RawRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawRecord").field("bytes", &self.as_json().len()).finish()
    }
}

/// An event with its JSON, for services that keep records as JSON.
pub struct RawEvent<E> {
    event: E,
    json: Box<RawValue>,
}

impl<'de, E: DeserializeOwned> Deserialize<'de> for RawEvent<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        let event = serde_json::from_str(json.get()).map_err(de::Error::custom)?;
        Ok(Self { event, json })
    }
}

/// Shows no JSON.
impl<E: fmt::Debug> fmt::Debug for RawEvent<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawEvent").field("event", &self.event).finish_non_exhaustive()
    }
}

/// A source that keeps each record as received in the event, in JSON. Made by
/// [`BatchService::with_raw`](super::BatchService::with_raw).
#[derive(Clone, Debug)]
pub struct KeepJson<S>(S);

impl<S> KeepJson<S> {
    pub(super) const fn new(source: S) -> Self {
        Self(source)
    }
}

impl<S: JsonRecords> Source for KeepJson<S> {
    type Event = RawEvent<S::Event>;
    type Record = (S::Record, RawRecord);
    type Rest = S::Rest;
    type Body = S::Body;
    type Response = S::Response;

    const OPERATION: &'static str = S::OPERATION;
    const WAITS_FOR_LEASE: bool = S::WAITS_FOR_LEASE;
    const REPORTING: FailureReporting = S::REPORTING;

    fn split(&self, RawEvent { event, json }: Self::Event) -> Result<(Vec<Self::Record>, S::Rest), Error> {
        let (records, rest) = self.0.split(event)?;
        let raw = S::json_records(&json).ok().filter(|raw| raw.len() == records.len()).ok_or_else(|| {
            let message = "the event does not list its records as events of this source do";
            Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", message)
        })?;
        Ok((records.into_iter().zip(raw.into_iter().map(RawRecord)).collect(), rest))
    }

    fn lane<'a>(&self, (record, _): &'a Self::Record) -> Option<Cow<'a, str>> {
        self.0.lane(record)
    }

    fn open(&self, (record, raw): Self::Record) -> (RecordInfo, S::Body) {
        let (info, body) = self.0.open(record);
        (info.with_raw(raw), body)
    }

    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        self.0.messaging(record)
    }

    fn dead_letter(body: S::Body) -> Vec<u8> {
        S::dead_letter(body)
    }

    fn respond(&self, rest: S::Rest, failed: &[Arc<RecordInfo>]) -> Result<S::Response, Error> {
        self.0.respond(rest, failed)
    }
}

/// Returns the records of an event that lists them as `Records`.
pub(super) fn listed(event: &RawValue) -> serde_json::Result<Vec<Box<RawValue>>> {
    #[derive(Deserialize)]
    struct Event {
        #[serde(rename = "Records")]
        records: Vec<Box<RawValue>>,
    }

    serde_json::from_str::<Event>(event.get()).map(|event| event.records)
}

/// Implements [`KeepsRaw`](crate::batch::raw::KeepsRaw) for a source by the JSON of its records.
macro_rules! keeps_json {
    ($source:ty, $records:expr) => {
        impl $crate::batch::raw_json::JsonRecords for $source {
            fn json_records(
                event: &serde_json::value::RawValue,
            ) -> serde_json::Result<Vec<Box<serde_json::value::RawValue>>> {
                $records(event)
            }
        }

        impl $crate::batch::raw::KeepsRaw for $source {
            type Raw = $crate::batch::raw_json::KeepJson<Self>;

            fn keeping_raw(self) -> Self::Raw {
                $crate::batch::raw_json::KeepJson::new(self)
            }
        }
    };
}
pub(super) use keeps_json;
