//! A task of Step Functions: a retry of the state machine gets the first result.

use lambda_once::{DynamoDbStore, Idempotency, Key, invocation::InvocationLayer};
use lambda_runtime::{Error, LambdaEvent, service_fn, tower::Layer};

#[derive(serde::Deserialize, serde::Serialize)]
struct Booking {
    execution: String,
    seats: u32,
}

async fn book(event: LambdaEvent<Booking>) -> Result<String, Error> {
    Ok(format!("{} seats are booked", event.payload.seats))
}

fn layer(once: Idempotency) -> Result<InvocationLayer<Booking>, lambda_once::Error> {
    // `$states.context.Execution.Id` and the state's name make a good key in the task's arguments.
    InvocationLayer::new(once, Key::pointer("/execution")).validate()
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    lambda_runtime::run(layer(once)?.layer(service_fn(book))).await
}

#[cfg(test)]
mod tests {
    use lambda_once::{OutcomeKind, invocation::InvocationError, testing};
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_retry_gets_the_first_result_and_other_arguments_are_refused() -> Result<(), Error> {
        let service = layer(testing::engine())?.layer(service_fn(book));
        let event = |seats| testing::event(&Booking { execution: "arn:of:an:execution".to_owned(), seats });
        for _ in 0..2 {
            let booked = service.clone().oneshot(event(2)).await.map_err(InvocationError::into_inner)?;
            assert_eq!(booked, "2 seats are booked");
        }
        let refused = service.oneshot(event(3)).await;
        assert!(matches!(refused, Err(InvocationError::NoResult { outcome: OutcomeKind::Mismatch, .. })));
        Ok(())
    }
}
