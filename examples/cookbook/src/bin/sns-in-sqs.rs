//! A queue that is subscribed to an SNS topic, with or without raw message delivery.

use lambda_once::{
    DynamoDbStore, Failure, Idempotency, Key,
    batch::{envelope::Sns, handler},
};

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    order_id: String,
}

async fn ship(order: Order) -> Result<String, Failure> {
    Ok(format!("shipped {}", order.order_id))
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    let service = once.sqs(Key::pointer("/order_id"), handler(ship)).envelope(Sns);
    lambda_runtime::run(service.validate()?).await
}

#[cfg(test)]
mod tests {
    use lambda_once::{
        OutcomeKind::*,
        testing::{self, sns},
    };

    use super::*;

    fn order() -> testing::Record {
        testing::record(&Order { order_id: "7".to_owned() })
    }

    #[tokio::test]
    async fn a_notification_is_safe_to_redeliver() {
        let service = testing::engine().sqs(Key::pointer("/order_id"), ship).envelope(Sns);
        testing::deliver_twice(&service, &testing::sqs::batch([sns::in_sqs(&order())])).await.assert_once();
    }

    #[tokio::test]
    async fn an_order_that_is_published_again_is_shipped_once() {
        let service = testing::engine().sqs(Key::pointer("/order_id"), ship).envelope(Sns);
        let batch = testing::sqs::batch([sns::in_sqs(&order()), sns::in_sqs(&order()), sns::in_sqs_raw(&order())]);
        let outcomes = testing::deliver(&service, &batch).await.outcomes();
        assert_eq!(outcomes, [Ok(Executed), Ok(Replayed), Ok(Replayed)]);
    }
}
