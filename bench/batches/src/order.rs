//! The orders in the batches, and their handler.

use std::{
    fmt::Write,
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use aws_lambda_events::sqs::SqsEvent;
use serde::{Deserialize, Serialize};

/// The body of a message: about 500 bytes of JSON.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of any order")]
pub struct Order {
    pub order_id: String,
    pub customer_id: String,
    pub amount_cents: u64,
    pub currency: String,
    pub ship_to: Address,
    pub lines: Vec<Line>,
    pub note: Option<String>,
}

/// The destination of an order.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of any address")]
pub struct Address {
    pub name: String,
    pub street: String,
    pub city: String,
    pub postcode: String,
    pub country: String,
}

/// A line of an order.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of any line of an order")]
pub struct Line {
    pub sku: String,
    pub quantity: u32,
    pub unit_cents: u64,
}

/// The result of an order's handler, stored as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    order_id: String,
    charged_cents: u64,
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

/// The handler: as little work as possible, so that the measurements show the code around it.
///
/// # Errors
///
/// If the sums of the lines do not match, which does not happen.
pub async fn handle(order: Order) -> Result<Receipt, io::Error> {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    let charged_cents = order.lines.iter().map(|line| u64::from(line.quantity) * line.unit_cents).sum();
    if charged_cents != order.amount_cents {
        return Err(io::Error::other("the lines do not add up"));
    }
    Ok(Receipt { order_id: order.order_id, charged_cents })
}

/// Returns the number of runs of the handler in this process.
pub fn handled() -> usize {
    HANDLED.load(Ordering::Relaxed)
}

/// Returns the body of the order with this id.
pub fn body(order_id: &str) -> String {
    format!(
        r#"{{"order_id":"{order_id}","customer_id":"customer-20481","amount_cents":15970,"currency":"EUR","ship_to":{{"name":"Ada Example","street":"12 Example Street","city":"Exampleton","postcode":"12345","country":"DE"}},"lines":[{{"sku":"SKU-0001-RED-XL","quantity":2,"unit_cents":4990}},{{"sku":"SKU-0417-BLUE-M","quantity":1,"unit_cents":2990}},{{"sku":"SKU-9120-GREEN-S","quantity":2,"unit_cents":1500}}],"note":"Please leave the parcel with the neighbours in number 14."}}"#
    )
}

/// Returns the body of an order with this id and a long note of about this many bytes.
pub fn large_body(order_id: &str, bytes: usize) -> String {
    body(order_id).replace("in number 14.", &"n".repeat(bytes))
}

/// Returns the text of an event from SQS, as Lambda sends it, with an order for each id.
pub fn event_json(order_ids: &[String]) -> String {
    event_of_bodies(order_ids.iter().map(|id| body(id)))
}

/// Returns the text of an event with a message for each body.
pub fn event_of_bodies(bodies: impl IntoIterator<Item = String>) -> String {
    let records = bodies.into_iter().enumerate().map(|(i, body)| {
        let body = serde_json::Value::from(body);
        let mut receipt = String::with_capacity(256);
        while receipt.len() < 240 {
            let _ = write!(receipt, "AQEB{i:08x}wJnKyrHigUMZj6rYigCgxlaS3SLy0a");
        }
        format!(
            r#"{{"messageId":"90c192cf-d3ac-44af-8f21-{i:012}","receiptHandle":"{receipt}","body":{body},"attributes":{{"ApproximateReceiveCount":"1","SentTimestamp":"1795255200000","SenderId":"AROAEXAMPLEEXAMPLE123:checkout","ApproximateFirstReceiveTimestamp":"1795255201620"}},"messageAttributes":{{}},"md5OfBody":"dc4377c9a4e2b9b0eb3b5637cb5fbbe4","eventSource":"aws:sqs","eventSourceARN":"arn:aws:sqs:us-east-1:123456789012:orders","awsRegion":"us-east-1"}}"#
        )
    });
    let mut text = r#"{"Records":["#.to_owned();
    for (i, record) in records.enumerate() {
        if i > 0 {
            text.push(',');
        }
        text.push_str(&record);
    }
    text.push_str("]}");
    text
}

/// Returns the event that a handler receives.
///
/// # Errors
///
/// None in practice, because the text is an event.
pub fn event(order_ids: &[String]) -> serde_json::Result<SqsEvent> {
    serde_json::from_str(&event_json(order_ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_about_500_bytes_and_adds_up() {
        let body = body("3f1c9a52-0000-4000-8000-000000000001");
        assert!((480..=560).contains(&body.len()), "{}", body.len());
        let order: Order = serde_json::from_str(&body).unwrap();
        assert_eq!(order.lines.iter().map(|l| u64::from(l.quantity) * l.unit_cents).sum::<u64>(), order.amount_cents);
        assert_eq!(event(&["a".to_owned(), "b".to_owned()]).unwrap().records.len(), 2);
    }
}
