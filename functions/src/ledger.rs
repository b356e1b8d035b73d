//! The ledger, with one row for each time that an operation took effect, so that a repetition shows.

use std::{collections::HashMap, time::SystemTime};

use aws_sdk_dynamodb::{
    Client, Config,
    config::retry::RetryConfig,
    error::SdkError,
    operation::get_item::GetItemOutput,
    types::{AttributeValue, Put},
};
use lambda_once::{BoxError, Classified, Classify, Failure, Verdict, store::dynamodb::Writes};
use uuid::Uuid;

/// A table with the partition key `entry_id`.
#[derive(Clone, Debug)]
pub struct Ledger {
    client: Client,
    table: String,
}

/// A row of the ledger.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The operation that took effect: `order`, `payout` or `charge`.
    pub operation: &'static str,
    /// The operation's key, or its hash for a charge.
    pub key: String,
    /// The customer or seller.
    pub party_id: String,
    /// The amount, in hundredths of the currency's unit.
    pub amount_cents: u64,
    /// The currency's ISO 4217 code.
    pub currency: String,
}

impl Ledger {
    /// Creates the ledger in `table`.
    pub fn new(client: Client, table: String) -> Self {
        Self { client, table }
    }

    /// Writes a row under a new id, and returns the id.
    ///
    /// # Errors
    ///
    /// DynamoDB's. If DynamoDB rejected the write, nothing was written, so the error is transient. If its response is
    /// missing, the row may exist, so the outcome is unknown.
    pub async fn enter(&self, entry: &Entry) -> Result<String, Classified> {
        let (id, item) = entry.row();
        let put = self.client.put_item().table_name(&self.table).set_item(Some(item));
        // One attempt, because the first one may have written the row although a second one was rejected.
        let once = Config::builder().retry_config(RetryConfig::disabled());
        put.customize().config_override(once).send().await.classify(|error| match error {
            SdkError::ServiceError(answer) if answer.raw().status().is_client_error() => Verdict::Transient,
            SdkError::ConstructionFailure(_) => Verdict::Transient,
            _ => Verdict::Unknown,
        })?;
        Ok(id)
    }

    /// Adds a row under a new id to a transaction, and returns the id.
    ///
    /// # Errors
    ///
    /// The errors of [`Writes::put`].
    pub fn enter_within(&self, writes: &Writes, entry: &Entry) -> Result<String, Failure> {
        let (id, item) = entry.row();
        writes.put(Put::builder().table_name(&self.table).set_item(Some(item)).build()?)?;
        Ok(id)
    }

    /// Returns the row with this id, if it exists and belongs to this operation.
    ///
    /// # Errors
    ///
    /// DynamoDB's.
    pub async fn find(&self, operation: &'static str, id: &str) -> Result<Option<Entry>, BoxError> {
        if id.is_empty() {
            return Ok(None);
        }
        let get = self.client.get_item().table_name(&self.table).key("entry_id", AttributeValue::S(id.to_owned()));
        Ok(read(get.send().await?, operation))
    }
}

impl Entry {
    /// Returns the row under a new id, and the id.
    fn row(&self) -> (String, HashMap<String, AttributeValue>) {
        let id = Uuid::new_v4().to_string();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let row = [
            ("entry_id", text(&id)),
            ("operation", text(self.operation)),
            ("key", text(&self.key)),
            ("at", AttributeValue::N(now.as_millis().to_string())),
            ("party_id", text(&self.party_id)),
            ("amount_cents", AttributeValue::N(self.amount_cents.to_string())),
            ("currency", text(&self.currency)),
        ];
        (id, row.map(|(name, value)| (name.to_owned(), value)).into())
    }
}

fn read(answer: GetItemOutput, operation: &'static str) -> Option<Entry> {
    let item = answer.item?;
    let text = |name: &str| item.get(name)?.as_s().ok().cloned();
    if text("operation")? != operation {
        return None;
    }
    Some(Entry {
        operation,
        key: text("key")?,
        party_id: text("party_id")?,
        amount_cents: item.get("amount_cents")?.as_n().ok()?.parse().ok()?,
        currency: text("currency")?,
    })
}
