//! Builds EventBridge events, for a function, a queue or a topic.
//!
//! ```
//! use lambda_once::testing::{self, eventbridge};
//!
//! let order = testing::record(&serde_json::json!({ "order_id": "7" }));
//! let event = eventbridge::event(order.attribute("source", "shop").attribute("detail-type", "OrderShipped"));
//! ```

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    parts,
    records::{Batch, Known, Record, bytes},
};
use crate::{batch::eventbridge::EventBridgeEvent, testing::unique};

const KNOWN: Known = Known { attributes: &["source", "detail-type", "time"], has_ids: true, has_headers: false };

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Event<'a> {
    version: &'static str,
    id: String,
    detail_type: &'a str,
    source: &'a str,
    account: &'static str,
    time: String,
    region: &'static str,
    resources: [&'static str; 0],
    detail: &'a RawValue,
}

/// Makes an EventBridge event with this detail, as delivered to a function. By default it has the current time and a
/// unique id. The default source and detail type are `testing`. Every delivery is the same.
///
/// # Panics
///
/// If an attribute is unknown, or the body is not JSON.
#[track_caller]
pub fn event(detail: Record) -> Batch<EventBridgeEvent> {
    let detail = detail.with_known(KNOWN);
    let source = detail.found("source").unwrap_or("testing").to_owned();
    Batch::new(source, move |head, _| parts::event(&parts::raw_text(&written(&detail, &head.source))))
}

/// Makes the message that contains the event, as delivered to a queue or topic that is the target of a rule.
///
/// # Panics
///
/// As for [`event`].
#[track_caller]
pub fn message(detail: &Record) -> Record {
    let detail = detail.clone().with_known(KNOWN);
    bytes(written(&detail, detail.found("source").unwrap_or("testing")))
}

fn written(detail: &Record, source: &str) -> String {
    parts::json(&Event {
        version: "0",
        id: detail.id.clone().unwrap_or_else(|| unique::uuid(detail.number)),
        detail_type: detail.found("detail-type").unwrap_or("testing"),
        source,
        account: "123456789012",
        time: detail.found("time").map_or_else(|| parts::rfc3339(detail.created), str::to_owned),
        region: "us-east-1",
        resources: [],
        detail: &parts::raw_text(detail.text()),
    })
}
