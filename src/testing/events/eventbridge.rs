//! Events of EventBridge, which come to a function one at a time, or by a queue or a topic.
//!
//! ```
//! use lambda_once::testing::eventbridge;
//!
//! let order = serde_json::json!({ "order_id": "7" });
//! let event = eventbridge::event(&order).source("shop").detail_type("OrderShipped");
//! ```

use serde::Serialize;
use serde_json::value::RawValue;

use super::parts;
use crate::testing::unique;
use crate::{batch::eventbridge::EventBridgeEvent, testing::Redeliver};

/// An event. Every delivery is the same.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Event {
    version: &'static str,
    id: String,
    detail_type: String,
    source: String,
    account: &'static str,
    time: String,
    region: &'static str,
    resources: [&'static str; 0],
    detail: Box<RawValue>,
}

/// An event with this detail. It is sent now, and has an id of its own.
///
/// # Panics
///
/// If the detail cannot be JSON.
pub fn event<T: Serialize + ?Sized>(detail: &T) -> Event {
    Event {
        version: "0",
        id: unique::uuid(unique::number()),
        detail_type: "testing".to_owned(),
        source: "testing".to_owned(),
        account: "123456789012",
        time: parts::rfc3339(parts::now()),
        region: "us-east-1",
        resources: [],
        detail: parts::raw(detail),
    }
}

impl Event {
    /// Its id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Its source. Default: `testing`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Its detail type. Default: `testing`.
    #[must_use]
    pub fn detail_type(mut self, detail_type: impl Into<String>) -> Self {
        self.detail_type = detail_type.into();
        self
    }

    /// When it was sent, as RFC 3339 writes it.
    #[must_use]
    pub fn time(mut self, time: impl Into<String>) -> Self {
        self.time = time.into();
        self
    }

    /// The message by which a queue that is a rule's target brings it.
    #[cfg(feature = "sqs")]
    #[must_use]
    pub fn in_sqs(&self) -> super::sqs::Message {
        super::sqs::message(self)
    }

    /// The message by which a topic that is a rule's target brings it: to a function, or by
    /// [`in_sqs`](super::sns::Message::in_sqs) to a queue.
    #[must_use]
    pub fn in_sns(&self) -> super::sns::Message {
        super::sns::message(self)
    }
}

impl Redeliver for Event {
    type Event = EventBridgeEvent;

    fn delivery(&self, _: u32) -> EventBridgeEvent {
        parts::event(self)
    }
}
