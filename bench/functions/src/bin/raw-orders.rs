//! The function `orders`, hand-written with the AWS SDK: one conditional write claims, and another completes. With
//! the environment variable `WARM` it opens its connection in init.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_config::{BehaviorVersion, retry::RetryConfig, timeout::TimeoutConfig};
use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent, SqsMessage};
use aws_sdk_dynamodb::{
    Client,
    operation::put_item::PutItemError,
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use futures_util::{StreamExt, stream};
use lambda_runtime::{Error, LambdaEvent, service_fn, tracing};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

const CONCURRENCY: usize = 10;
const LEASE: Duration = Duration::from_secs(31);
const SKEW_MARGIN: Duration = Duration::from_secs(1);
const RETENTION: Duration = Duration::from_secs(15 * 24 * 60 * 60);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    order_id: String,
    customer_id: String,
    amount_cents: u64,
    currency: String,
}

struct Tables {
    client: Client,
    records: String,
    ledger: String,
}

enum Claim {
    Granted { owner: String },
    Done,
    Held,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing::init_default_subscriber();
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(Duration::from_secs(1))
        .operation_timeout(Duration::from_secs(3))
        .build();
    let ring = tls::Provider::Rustls(CryptoMode::Ring);
    let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(aws_smithy_http_client::Builder::new().tls_provider(ring).build_https())
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(2))
        .load()
        .await;
    let tables = Arc::new(Tables {
        client: Client::new(&config),
        records: std::env::var("IDEMPOTENCY_TABLE")?,
        ledger: std::env::var("LEDGER_TABLE")?,
    });
    if std::env::var_os("WARM").is_some() {
        tables.warm_up().await?;
    }
    let handler = service_fn(move |event: LambdaEvent<SqsEvent>| {
        let tables = Arc::clone(&tables);
        async move { Ok::<_, Error>(tables.handle(event.payload).await) }
    });
    lambda_runtime::run(handler).await
}

impl Tables {
    /// Opens the connection, by reading a missing item.
    async fn warm_up(&self) -> Result<(), Error> {
        let key = AttributeValue::S("warm".into());
        self.client.get_item().table_name(&self.records).key("id", key).consistent_read(true).send().await?;
        Ok(())
    }

    async fn handle(&self, event: SqsEvent) -> SqsBatchResponse {
        let results = stream::iter(event.records).map(|message| self.process(message)).buffer_unordered(CONCURRENCY);
        let failures = results.filter_map(async |result| {
            let (item_identifier, error) = result.err()?;
            tracing::error!(message_id = item_identifier, error, "failed");
            let mut failure = BatchItemFailure::default();
            failure.item_identifier = item_identifier;
            Some(failure)
        });
        let mut response = SqsBatchResponse::default();
        response.batch_item_failures = failures.collect().await;
        response
    }

    async fn process(&self, message: SqsMessage) -> Result<(), (String, Error)> {
        let message_id = message.message_id.unwrap_or_default();
        let body = message.body.unwrap_or_default();
        self.process_body(&body).await.map_err(|error| (message_id, error))
    }

    async fn process_body(&self, body: &str) -> Result<(), Error> {
        let order: Order = serde_json::from_str(body)?;
        let id = id(&order.order_id);
        let owner = match self.claim(&id).await? {
            Claim::Granted { owner } => owner,
            Claim::Done => return Ok(()),
            Claim::Held => return Err("in progress elsewhere".into()),
        };
        match self.enter(order).await {
            Ok(entry) => self.complete(id, owner, serde_json::to_string(&entry)?).await,
            Err(error) => {
                self.release(id, owner).await?;
                Err(error)
            }
        }
    }

    async fn claim(&self, id: &str) -> Result<Claim, Error> {
        let owner = Uuid::new_v4().simple().to_string();
        let now = now();
        let answer = self
            .client
            .put_item()
            .table_name(&self.records)
            .item("id", text(id))
            .item("status", text("INPROGRESS"))
            .item("owner", text(&owner))
            .item("expiration", seconds(now + RETENTION))
            .item("in_progress_expiration", millis(now + LEASE))
            .condition_expression(
                "attribute_not_exists(#id) OR #expiration < :now OR (#status = :inprogress AND #lease < :lapsed)",
            )
            .expression_attribute_names("#id", "id")
            .expression_attribute_names("#expiration", "expiration")
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#lease", "in_progress_expiration")
            .expression_attribute_values(":now", seconds(now))
            .expression_attribute_values(":inprogress", text("INPROGRESS"))
            .expression_attribute_values(":lapsed", millis(now - SKEW_MARGIN))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let refused = match answer {
            Ok(_) => return Ok(Claim::Granted { owner }),
            Err(error) => error,
        };
        match refused.as_service_error() {
            Some(PutItemError::ConditionalCheckFailedException(refused)) => {
                let found = |name: &str| refused.item()?.get(name)?.as_s().ok();
                if found("status").is_some_and(|status| status == "COMPLETED") {
                    return Ok(Claim::Done);
                }
                // The SDK retries when a response is lost, and the first try may have been applied.
                let mine = found("owner") == Some(&owner);
                Ok(if mine { Claim::Granted { owner } } else { Claim::Held })
            }
            _ => Err(refused.into()),
        }
    }

    async fn complete(&self, id: String, owner: String, result: String) -> Result<(), Error> {
        self.client
            .update_item()
            .table_name(&self.records)
            .key("id", text(id))
            .update_expression("SET #status = :completed, #data = :data, #expiration = :expiration")
            .condition_expression("#owner = :owner AND #status = :inprogress")
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#data", "data")
            .expression_attribute_names("#expiration", "expiration")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":completed", text("COMPLETED"))
            .expression_attribute_values(":data", text(result))
            .expression_attribute_values(":expiration", seconds(now() + RETENTION))
            .expression_attribute_values(":owner", text(owner))
            .expression_attribute_values(":inprogress", text("INPROGRESS"))
            .send()
            .await?;
        Ok(())
    }

    async fn release(&self, id: String, owner: String) -> Result<(), Error> {
        self.client
            .delete_item()
            .table_name(&self.records)
            .key("id", text(id))
            .condition_expression("#owner = :owner AND #status = :inprogress")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":owner", text(owner))
            .expression_attribute_values(":inprogress", text("INPROGRESS"))
            .send()
            .await?;
        Ok(())
    }

    /// The effect: a row in the ledger.
    async fn enter(&self, order: Order) -> Result<String, Error> {
        let id = Uuid::new_v4().to_string();
        self.client
            .put_item()
            .table_name(&self.ledger)
            .item("entry_id", text(&id))
            .item("operation", text("order"))
            .item("key", text(order.order_id))
            .item("at", millis(now()))
            .item("party_id", text(order.customer_id))
            .item("amount_cents", AttributeValue::N(order.amount_cents.to_string()))
            .item("currency", text(order.currency))
            .send()
            .await?;
        Ok(id)
    }
}

fn id(order_id: &str) -> String {
    let hash = Sha256::digest(order_id);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("orders#{hex}")
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
