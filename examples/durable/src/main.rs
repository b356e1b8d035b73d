//! A durable function that makes a payment in a step.
//!
//! A step runs again if the function ends before its result is recorded. The SDK stores the results of one execution only.
//! The operation inside the step has the order as its key, so the payment is made once for all attempts, and for all
//! executions of an order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use aws_durable_execution_sdk::{BoxError, DurableContext, RetryDecision};
use lambda_once::{DynamoDbStore, Failure, Idempotency};

#[derive(Clone, serde::Deserialize, serde::Serialize)]
struct Order {
    id: String,
    cents: u64,
}

/// Stands in for a client of a payment provider.
#[derive(Clone, Default)]
struct Provider {
    payments: Arc<AtomicU32>,
}

impl Provider {
    async fn pay(&self, order: &Order) -> Result<String, Failure> {
        let number = self.payments.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(format!("payment {number} of {} cents for order {}", order.cents, order.id))
    }
}

#[derive(Clone)]
struct Payments {
    once: Idempotency,
    provider: Provider,
}

impl Payments {
    async fn handle(self, order: Order, context: DurableContext) -> Result<String, BoxError> {
        // Longer than the lease of 30 seconds and the skew margin, so the claim of a lost run has ended.
        let retry = |_: &_, attempt| match attempt {
            ..5 => RetryDecision::Retry { delay: Duration::from_secs(35) },
            _ => RetryDecision::Stop,
        };
        let paid = context.step(move |_| async move { self.pay(order).await }).name("pay").retry_strategy(retry);
        Ok(paid.await?)
    }

    /// Returns an error if it is not certain that the payment was made.
    async fn pay(&self, order: Order) -> Result<String, BoxError> {
        let operation = self.once.operation("pay", &order.id).payload(&order);
        let outcome = operation.run(|| self.provider.pay(&order)).await?;
        let kind = outcome.as_str();
        outcome.into_value().ok_or_else(|| format!("the payment is not known to be made: {kind}").into())
    }
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    let payments = Payments { once, provider: Provider::default() };
    aws_durable_execution_sdk::run(move |order, context| payments.clone().handle(order, context)).await
}

#[cfg(test)]
mod tests {
    use aws_durable_execution_sdk::test_util::LocalRunner;
    use lambda_once::testing;

    use super::*;

    /// Returns the receipts of these executions of one order, and the number of its payments.
    async fn receipts(executions: impl IntoIterator<Item = LocalRunner>) -> (Vec<String>, u32) {
        let payments = Payments { once: testing::engine(), provider: Provider::default() };
        let order = Order { id: "7".to_owned(), cents: 1_999 };
        let mut receipts = Vec::new();
        for runner in executions {
            let payments = payments.clone();
            let handler = move |order, context| payments.clone().handle(order, context);
            receipts.extend(runner.run(handler, order.clone()).await.into_output());
        }
        (receipts, payments.provider.payments.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_step_whose_result_was_not_recorded_runs_again_and_pays_once() {
        // The start of the step is recorded, but its result is not.
        let (receipts, payments) = receipts([LocalRunner::new().fail_checkpoints_after_retryable(1, 1)]).await;
        assert_eq!((receipts, payments), (vec!["payment 1 of 1999 cents for order 7".to_owned()], 1));
    }

    #[tokio::test]
    async fn a_second_execution_of_an_order_gets_the_first_receipt() {
        let (receipts, payments) = receipts([LocalRunner::new(), LocalRunner::new()]).await;
        assert_eq!((receipts, payments), (vec!["payment 1 of 1999 cents for order 7".to_owned(); 2], 1));
    }
}
