//! The function `orders` without `warm_up()`: its first invocation opens the connection.

use aws_sdk_dynamodb::Client;
use functions::{Entry, Ledger};
use lambda_once::{Failure, Idempotency, Key, store::dynamodb::Config};
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    order_id: String,
    customer_id: String,
    amount_cents: u64,
    currency: String,
}

async fn book(ledger: Ledger, order: Order) -> Result<String, Failure> {
    let Order { order_id, customer_id, amount_cents, currency } = order;
    let entry = Entry { operation: "order", key: order_id, party_id: customer_id, amount_cents, currency };
    Ok(ledger.enter(&entry).await?)
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let client = Client::new(&Config::sdk_config().await);
    let ledger = Ledger::new(client.clone(), std::env::var("LEDGER_TABLE")?);
    let once = Idempotency::new(Config::from_env()?.build(client)?);
    let service = once.sqs(Key::pointer("/order_id"), move |order| book(ledger.clone(), order)).validate()?;
    lambda_runtime::run(service).await
}
