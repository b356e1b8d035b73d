//! A handler that detects whether an earlier run may have taken effect, and its unit tests.

use lambda_once::{DynamoDbStore, Failure, Idempotency, Key, RecordContext, batch::handler_with_context};

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    id: String,
}

async fn mail(order: Order, context: RecordContext) -> Result<String, Failure> {
    let again = if context.took_over() { "perhaps again: " } else { "" };
    Ok(format!("{again}mail for {} of {}", order.id, context.record().header("tenant").unwrap_or("nobody")))
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    lambda_runtime::run(once.sqs(Key::pointer("/id"), handler_with_context(mail)).validate()?).await
}

#[cfg(test)]
mod tests {
    use lambda_once::{batch::RecordInfo, testing};

    use super::*;

    #[tokio::test]
    async fn after_a_takeover_the_mail_is_marked_as_a_possible_repeat() -> Result<(), Failure> {
        let record = RecordInfo::new("m-1").with_header("tenant", "a");
        let context = testing::record_context(record).with_claim(testing::claim("7").with_takeover());
        let sent = mail(Order { id: "7".to_owned() }, context).await?;
        assert_eq!(sent, "perhaps again: mail for 7 of a");
        Ok(())
    }

    #[tokio::test]
    async fn it_is_safe_to_redeliver_and_to_deliver_twice_at_once() {
        let service = testing::engine().sqs(Key::pointer("/id"), mail);
        let orders = ["7", "8"].map(|id| testing::record(&Order { id: id.to_owned() }));
        testing::deliver_twice(&service, &testing::sqs::batch(orders.clone())).await.assert_once();
        let service = testing::engine().sqs(Key::pointer("/id"), mail);
        testing::deliver_at_once(&service, &testing::sqs::batch(orders)).await.assert_once();
    }
}
