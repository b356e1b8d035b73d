//! A queue of payments, whose handler returns errors of a custom type.

use lambda_once::{Builder, DynamoDbStore, Idempotency, Key, Verdict};

#[derive(serde::Deserialize, serde::Serialize)]
struct Payment {
    id: String,
    cents: i64,
}

#[derive(Debug, thiserror::Error)]
enum PaymentError {
    #[error("the amount is not positive")]
    Amount,
    #[error("the bank has not answered")]
    TimedOut,
}

async fn pay(payment: Payment) -> Result<String, PaymentError> {
    match payment.cents {
        ..=0 => Err(PaymentError::Amount),
        1_000_000.. => Err(PaymentError::TimedOut),
        _ => Ok(format!("receipt of {}", payment.id)),
    }
}

fn settings(builder: Builder) -> Builder {
    builder.classify(|error: &PaymentError| match error {
        PaymentError::Amount => Verdict::Permanent,
        PaymentError::TimedOut => Verdict::Unknown,
    })
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    let once = settings(Idempotency::builder(DynamoDbStore::from_env().await?)).build()?;
    lambda_runtime::run(once.sqs(Key::pointer("/id"), pay).validate()?).await
}

#[cfg(test)]
mod tests {
    use lambda_once::{OutcomeKind::*, testing};

    use super::*;

    #[tokio::test]
    async fn each_error_has_its_verdict_and_a_permanent_failure_is_replayed() -> Result<(), lambda_once::Error> {
        let once = settings(testing::builder(testing::store())).build()?;
        let service = once.sqs(Key::pointer("/id"), pay);
        let payment = |id: &str, cents| testing::record(&Payment { id: id.to_owned(), cents });
        let batch = testing::sqs::batch([payment("a", 995), payment("b", 0), payment("c", 5_000_000)]);
        let first = testing::deliver(&service, &batch).await.outcomes();
        assert_eq!(first, [Ok(Executed), Ok(Failed(Verdict::Permanent)), Ok(Failed(Verdict::Unknown))]);
        let second = testing::deliver(&service, &batch).await.outcomes();
        assert_eq!(second, [Ok(Replayed), Ok(ReplayedFailure), Ok(InProgress)]);
        Ok(())
    }
}
