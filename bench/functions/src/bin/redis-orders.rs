//! The function `orders` on Redis, without the AWS SDK: its order takes effect in the log.

use lambda_once::{Idempotency, Key, RedisStore};
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    order_id: String,
    customer_id: String,
    amount_cents: u64,
    currency: String,
}

async fn book(order: Order) -> Result<String, lambda_runtime::Error> {
    let Order { order_id, customer_id, amount_cents, currency } = order;
    lambda_runtime::tracing::info!(customer_id, amount_cents, currency, "booked");
    Ok(order_id)
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let once = Idempotency::new(RedisStore::from_env()?);
    once.warm_up().await?;
    lambda_runtime::run(once.sqs(Key::pointer("/order_id"), book).validate()?).await
}
