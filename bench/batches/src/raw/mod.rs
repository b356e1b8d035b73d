//! The same protection, hand-written with the AWS SDK.
//!
//! A claim is a conditional write with an owner token and a lease. A completion stores the result and is conditional on
//! the owner. The attributes have the library's names. The library's other features are left out: no fingerprint of the
//! payload, no attempts, no deadline, no panics, no retries besides the SDK's.

use std::time::{Duration, SystemTime};

use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse, SqsMessage};
use aws_sdk_dynamodb::{Client, types::AttributeValue};
use lambda_once::BoxError;
use sha2::{Digest, Sha256};

use crate::order::Order;

mod partiql;
mod single;

pub use partiql::{batched, batched_at_once};
pub use single::{concurrent, sequential};

const LEASE: Duration = Duration::from_secs(30);
const SKEW_MARGIN: Duration = Duration::from_secs(1);
const RETENTION: Duration = Duration::from_secs(15 * 24 * 60 * 60);

const IN_PROGRESS: &str = "INPROGRESS";
const COMPLETED: &str = "COMPLETED";

/// A table of records.
#[derive(Clone, Debug)]
pub struct Table {
    client: Client,
    name: String,
}

impl Table {
    /// Creates the table of this name.
    pub const fn new(client: Client, name: String) -> Self {
        Self { client, name }
    }
}

/// A message that can be claimed.
struct Job {
    message_id: String,
    id: String,
    order: Order,
}

impl Job {
    /// Decodes a message. The error comes with the message id.
    fn decode(message: SqsMessage) -> Result<Self, (String, BoxError)> {
        let message_id = message.message_id.unwrap_or_default();
        match serde_json::from_str::<Order>(&message.body.unwrap_or_default()) {
            Ok(order) => Ok(Self { message_id, id: id(&order.order_id), order }),
            Err(error) => Err((message_id, error.into())),
        }
    }
}

/// Returns the partition key for an order.
pub fn id(order_id: &str) -> String {
    format!("orders#{}", hex(&Sha256::digest(order_id)))
}

fn owner() -> Result<String, BoxError> {
    let mut token = [0; 16];
    getrandom::fill(&mut token)?;
    Ok(hex(&token))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

/// Returns the time since the Unix epoch.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

fn seconds(time: Duration) -> AttributeValue {
    AttributeValue::N(time.as_secs().to_string())
}

fn millis(time: Duration) -> AttributeValue {
    AttributeValue::N(time.as_millis().to_string())
}

fn response(failed: Vec<String>) -> SqsBatchResponse {
    let failure = |item_identifier| {
        let mut failure = BatchItemFailure::default();
        failure.item_identifier = item_identifier;
        failure
    };
    let mut response = SqsBatchResponse::default();
    response.batch_item_failures = failed.into_iter().map(failure).collect();
    response
}
