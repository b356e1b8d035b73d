//! SQS queues, standard and FIFO, as a source.
//!
//! ```
//! use lambda_once::{Failure, Key, testing::{self, sqs}};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order { order_id: String }
//!
//! async fn book(order: Order) -> Result<(), Failure> {
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let service = testing::engine().sqs(Key::pointer("/order_id"), book);
//! let batch = sqs::batch(["7", "8"].map(|id| testing::record(&Order { order_id: id.into() })));
//! testing::deliver_twice(&service, &batch).await.assert_once();
//! # }
//! ```

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use serde::de::DeserializeOwned;

#[cfg(feature = "sqs-client")]
mod backoff;
#[cfg(feature = "sqs-client")]
mod dead_letters;

#[cfg(feature = "sqs-client")]
pub use backoff::VisibilityBackoff;
#[cfg(feature = "sqs-client")]
pub use dead_letters::SqsDeadLetters;

use crate::{
    batch::{handler::Handler, messaging::Messaging, record::RecordInfo, service::BatchService, source::Source},
    decoding::decode_text,
    error::{Error, ErrorKind, ErrorStatus},
    idempotency::handle::Idempotency,
    key::selector::Key,
};

/// Messages of an SQS queue. In a FIFO queue (one whose ARN ends in `.fifo`) they are ordered within their groups.
/// Messages of a standard queue may also have a group, in fair queues, but have no order.
///
/// The response lists the ids of the messages to deliver again, each once.
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html#services-sqs-batchfailurereporting>
#[derive(Clone, Copy, Debug, Default)]
pub struct Sqs;

impl Source for Sqs {
    type Event = SqsEvent;
    type Record = SqsMessage;
    type Rest = ();
    type Body = String;
    type Response = SqsBatchResponse;

    const OPERATION: &'static str = "sqs";

    fn split(&self, event: SqsEvent) -> Result<(Vec<SqsMessage>, ()), Error> {
        let has_id = |message: &SqsMessage| message.message_id.as_ref().is_some_and(|id| !id.is_empty());
        if !event.records.iter().all(has_id) {
            // An empty identifier in the response would fail the whole batch, after the work was done.
            let message = "a record of the event has no messageId: this is not an event from SQS";
            return Err(Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", message));
        }
        Ok((event.records, ()))
    }

    fn lane<'a>(&self, message: &'a SqsMessage) -> Option<Cow<'a, str>> {
        let is_fifo = message.event_source_arn.as_deref().is_some_and(|arn| arn.ends_with(".fifo"));
        is_fifo.then(|| message.attributes.get("MessageGroupId").map_or("", String::as_str).into())
    }

    fn open(&self, message: SqsMessage) -> (RecordInfo, String) {
        let receive_count = message.attributes.get("ApproximateReceiveCount").and_then(|count| count.parse().ok());
        let mut info = RecordInfo::new(message.message_id.unwrap_or_default())
            .with_source(message.event_source_arn)
            .with_receipt(message.receipt_handle)
            .with_receive_count(receive_count.unwrap_or(1))
            .with_attributes(message.attributes);
        for (name, attribute) in message.message_attributes {
            if let Some(text) = attribute.string_value {
                info = info.with_header(name, text);
            } else if let Some(bytes) = attribute.binary_value {
                info = info.with_header_bytes(name, bytes.0);
            }
        }
        (info, message.body.unwrap_or_default())
    }

    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        Messaging::of("aws_sqs", record.source())
    }

    /// Names each message once, however many records of its envelope failed (B9).
    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<SqsBatchResponse, Error> {
        let mut seen = HashSet::new();
        let mut response = SqsBatchResponse::default();
        response.set_failures(failed.iter().map(|record| record.id()).filter(|id| seen.insert(*id)));
        Ok(response)
    }
}

impl Idempotency {
    /// Makes a service for an SQS queue, which runs `handler` for each message, once per `key`.
    ///
    /// The handler takes the decoded body, and optionally a [`RecordContext`](crate::RecordContext). It returns any
    /// serializable value, which is stored, or an error, which is transient unless [classified](crate::Classify).
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_runtime::Error> {
    /// use lambda_once::{Classify, Failure, Idempotency, Key, MemoryStore};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Order { order_id: String, amount_cents: i64 }
    ///
    /// async fn handle(order: Order) -> Result<u64, Failure> {
    ///     let cents = u64::try_from(order.amount_cents).permanent()?;
    ///     Ok(cents)
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// lambda_runtime::run(once.sqs(Key::pointer("/order_id"), handle)).await
    /// # }
    /// ```
    #[track_caller]
    pub fn sqs<H, T, Args>(&self, key: Key, handler: H) -> BatchService<Sqs, H, T, Args>
    where
        H: Handler<T, Args>,
        T: DeserializeOwned + Send + 'static,
    {
        self.batch(Sqs, key, |_, body| decode_text(body).map_err(Into::into), handler)
    }
}

/// The maximum time of a call, including the client's retries, because the response waits for it.
#[cfg(feature = "sqs-client")]
const MAX_CALL_TIME: std::time::Duration = std::time::Duration::from_secs(3);

/// Returns the URL of the queue with this ARN. It only identifies the queue, because clients send requests to their
/// configured endpoint.
#[cfg(feature = "sqs-client")]
fn queue_url(arn: &str) -> Option<String> {
    let parts: Vec<&str> = arn.split(':').collect();
    let ["arn", partition, "sqs", region, account, name] = parts[..] else { return None };
    if [region, account, name].contains(&"") {
        return None;
    }
    let domain = match partition {
        "aws-cn" => "amazonaws.com.cn",
        "aws-eusc" => "amazonaws.eu",
        "aws-iso" => "c2s.ic.gov",
        "aws-iso-b" => "sc2s.sgov.gov",
        "aws-iso-e" => "cloud.adc-e.uk",
        "aws-iso-f" => "csp.hci.ic.gov",
        _ => "amazonaws.com",
    };
    Some(format!("https://sqs.{region}.{domain}/{account}/{name}"))
}

#[cfg(all(test, feature = "sqs-client"))]
mod tests {
    use super::*;

    #[test]
    fn a_queues_url_follows_from_its_arn() {
        for (arn, url) in [
            ("arn:aws:sqs:eu-west-1:123456789012:orders", "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"),
            ("arn:aws:sqs:us-east-1:1:orders.fifo", "https://sqs.us-east-1.amazonaws.com/1/orders.fifo"),
            ("arn:aws-us-gov:sqs:us-gov-west-1:1:a_b-c", "https://sqs.us-gov-west-1.amazonaws.com/1/a_b-c"),
            ("arn:aws-cn:sqs:cn-north-1:1:orders", "https://sqs.cn-north-1.amazonaws.com.cn/1/orders"),
            ("arn:aws-eusc:sqs:eusc-de-east-1:1:orders", "https://sqs.eusc-de-east-1.amazonaws.eu/1/orders"),
            ("arn:aws-iso:sqs:us-iso-east-1:1:orders", "https://sqs.us-iso-east-1.c2s.ic.gov/1/orders"),
            ("arn:aws-iso-b:sqs:us-isob-east-1:1:orders", "https://sqs.us-isob-east-1.sc2s.sgov.gov/1/orders"),
            ("arn:aws-iso-e:sqs:eu-isoe-west-1:1:orders", "https://sqs.eu-isoe-west-1.cloud.adc-e.uk/1/orders"),
            ("arn:aws-iso-f:sqs:us-isof-south-1:1:orders", "https://sqs.us-isof-south-1.csp.hci.ic.gov/1/orders"),
        ] {
            assert_eq!(queue_url(arn).as_deref(), Some(url));
        }
        for other in [
            "",
            "orders",
            "https://sqs.us-east-1.amazonaws.com/1/orders",
            "arn:aws:sns:us-east-1:1:orders",
            "arn:aws:sqs:us-east-1:1:",
            "arn:aws:sqs::1:orders",
            "arn:aws:sqs:us-east-1::orders",
            "arn:aws:sqs:us-east-1:1:orders:more",
        ] {
            assert_eq!(queue_url(other), None, "{other}");
        }
    }
}
