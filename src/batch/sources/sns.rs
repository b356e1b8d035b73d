//! SNS topics as a source.
//!
//! ```
//! use lambda_once::{Failure, Key, testing::{self, sns}};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order { order_id: String }
//!
//! async fn book(order: Order) -> Result<(), Failure> {
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let service = testing::engine().sns(Key::pointer("/order_id"), book);
//! let event = sns::event(testing::record(&Order { order_id: "7".into() }));
//! testing::deliver_twice(&service, &event).await.assert_once();
//! # }
//! ```

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, de::DeserializeOwned};

use super::whole::success_or_error;
use crate::{
    batch::{
        envelope::Attribute,
        handler::Handler,
        messaging::Messaging,
        raw_json::{keeps_json, listed},
        record::RecordInfo,
        service::BatchService,
        source::{FailureReporting, Source},
    },
    decoding::decode_text,
    error::{Error, ErrorKind, ErrorStatus},
    idempotency::handle::Idempotency,
    key::selector::Key,
};

/// Messages of an SNS topic. SNS invokes a function asynchronously with one message at a time. If the message fails,
/// the invocation fails, and Lambda retries it.
///
/// A message's id is its `MessageId`, its attributes are `Subject` and `Timestamp`, and its headers are its message
/// attributes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sns;

/// An event of an SNS topic.
/// <https://docs.aws.amazon.com/lambda/latest/dg/with-sns.html>
#[doc(hidden)]
#[derive(Debug, Deserialize)]
pub struct SnsEvent {
    #[serde(rename = "Records")]
    records: Vec<SnsRecord>,
}

/// A record of an `SnsEvent`.
#[doc(hidden)]
#[derive(Deserialize)]
pub struct SnsRecord {
    #[serde(rename = "Sns")]
    message: Message,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Message {
    #[serde(default)]
    message_id: String,
    #[serde(default)]
    topic_arn: Option<String>,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    message_attributes: Option<BTreeMap<String, Attribute>>,
}

/// Shows no message.
impl fmt::Debug for SnsRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnsRecord").field("message_id", &self.message.message_id).finish_non_exhaustive()
    }
}

impl Source for Sns {
    type Event = SnsEvent;
    type Record = SnsRecord;
    type Rest = ();
    type Body = String;
    type Response = ();

    const OPERATION: &'static str = "sns";
    const WAITS_FOR_LEASE: bool = true;
    const REPORTING: FailureReporting = FailureReporting::AllOrNothing;

    fn split(&self, event: SnsEvent) -> Result<(Vec<SnsRecord>, ()), Error> {
        if event.records.iter().any(|record| record.message.message_id.is_empty()) {
            let message = "a record of the event has no MessageId: this is not an event from SNS";
            return Err(Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", message));
        }
        Ok((event.records, ()))
    }

    fn lane<'a>(&self, _: &'a SnsRecord) -> Option<Cow<'a, str>> {
        None
    }

    fn open(&self, record: SnsRecord) -> (RecordInfo, String) {
        let message = record.message;
        let mut info = RecordInfo::new(message.message_id).with_source(message.topic_arn);
        for (name, text) in [("Subject", message.subject), ("Timestamp", message.timestamp)] {
            if let Some(text) = text {
                info = info.with_attribute(name, text);
            }
        }
        for (name, attribute) in message.message_attributes.into_iter().flatten() {
            info = match attribute.bytes() {
                None => info.with_header(name, attribute.value),
                Some(Ok(bytes)) => info.with_header_bytes(name, bytes),
                Some(Err(_)) => info,
            };
        }
        (info, message.message)
    }

    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        Messaging::of("aws.sns", record.source())
    }

    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<(), Error> {
        success_or_error(failed)
    }
}

keeps_json!(Sns, listed);

impl Idempotency {
    /// Makes a service for an SNS topic, which runs `handler` for each message, once per `key`. The message is JSON.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_runtime::Error> {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Order { order_id: String }
    ///
    /// async fn notify(order: Order) -> Result<(), Failure> {
    ///     Ok(())
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// lambda_runtime::run(once.sns(Key::message_id(), notify)).await
    /// # }
    /// ```
    #[track_caller]
    pub fn sns<H, T, Args>(&self, key: Key, handler: H) -> BatchService<Sns, H, T, Args>
    where
        H: Handler<T, Args>,
        T: DeserializeOwned + Send + 'static,
    {
        self.batch(Sns, key, |_, message| decode_text(message).map_err(Into::into), handler)
    }
}
