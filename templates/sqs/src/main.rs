//! Books orders from an SQS queue. Each order is booked once, however often SQS delivers its message.

use lambda_once::{
    Classify, DynamoDbStore, Failure, Idempotency, Key,
    batch::{BatchService, Handler, sqs::Sqs},
};
use lambda_runtime::tracing;
use serde::{Deserialize, Serialize};

/// The body of a message.
#[derive(Deserialize, Serialize)]
struct Order {
    order_id: String,
    amount_cents: i64,
}

/// Books an order. The receipt is stored with the order's id, and so is a permanent failure; any other error makes SQS redeliver the
/// message.
async fn book(order: Order) -> Result<String, Failure> {
    let cents = u64::try_from(order.amount_cents).permanent()?;
    tracing::info!(order_id = order.order_id, cents, "booked");
    Ok(format!("receipt for {}", order.order_id))
}

/// Returns the service that is deployed and tested: the key is the order's id, and the body is the payload that it is compared by.
fn orders(once: &Idempotency) -> BatchService<Sqs, impl Handler<Order, (Order,)> + use<>, Order, (Order,)> {
    once.sqs(Key::pointer("/order_id"), book)
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    tracing::init_default_subscriber();
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    // Opens the connection to DynamoDB before the first message.
    once.warm_up().await?;
    lambda_runtime::run(orders(&once).validate()?).await
}

#[cfg(test)]
mod tests {
    use lambda_once::{
        OutcomeKind::{Executed, Mismatch},
        testing::{self, Record, deliver, deliver_at_once, deliver_twice, sqs},
    };

    use super::{Order, orders};

    fn order(order_id: &str, amount_cents: i64) -> Record {
        testing::record(&Order { order_id: order_id.to_owned(), amount_cents })
    }

    #[tokio::test]
    async fn a_redelivered_order_is_booked_once() {
        let batch = sqs::batch([order("a", 995), order("b", 1_200)]);
        deliver_twice(&orders(&testing::engine()), &batch).await.assert_once();
    }

    #[tokio::test]
    async fn an_order_that_two_invocations_receive_is_booked_once() {
        deliver_at_once(&orders(&testing::engine()), &sqs::batch([order("a", 995)])).await.assert_once();
    }

    #[tokio::test]
    async fn an_id_with_another_amount_is_not_booked() {
        let batch = sqs::batch([order("a", 995), order("a", 100)]);
        let outcomes = deliver(&orders(&testing::engine()), &batch).await.outcomes();
        assert_eq!(outcomes, [Ok(Executed), Ok(Mismatch)]);
    }
}
