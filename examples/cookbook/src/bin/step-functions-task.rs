//! A Step Functions task. A retry of the state machine gets the first result. The state machine, with its `Retry`, is
//! `step-functions-task.asl.json`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lambda_once::{
    DynamoDbStore, Idempotency, Key,
    invocation::{InvocationLayer, claim},
};
use lambda_runtime::{Error, LambdaEvent, service_fn, tower::Layer};

#[derive(serde::Deserialize, serde::Serialize)]
struct Booking {
    /// The ids of the execution and of its state.
    execution: String,
    seats: u32,
}

/// Stands in for a client of the airline, which recognizes a booking by its key.
#[derive(Default)]
struct Airline {
    seats: HashMap<String, u32>,
    /// The duration of its next response.
    delay: Duration,
}

async fn book(airline: Arc<Mutex<Airline>>, event: LambdaEvent<Booking>) -> Result<String, Error> {
    // The same key in each run of this state. A run may have ended after the airline booked the seats.
    let key = claim().map(|claim| claim.key().to_hex()).ok_or("the function runs without protection")?;
    let seats = event.payload.seats;
    let delay = {
        let mut airline = airline.lock().unwrap_or_else(PoisonError::into_inner);
        airline.seats.insert(key, seats);
        std::mem::take(&mut airline.delay)
    };
    tokio::time::sleep(delay).await;
    Ok(format!("{seats} seats are booked"))
}

fn layer(once: Idempotency) -> Result<InvocationLayer<Booking>, lambda_once::Error> {
    InvocationLayer::new(once, Key::pointer("/execution")).validate()
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let once = Idempotency::new(DynamoDbStore::from_env().await?);
    let airline = Arc::default();
    let book = service_fn(move |event| book(Arc::clone(&airline), event));
    lambda_runtime::run(layer(once)?.layer(book)).await
}

#[cfg(test)]
mod tests {
    use lambda_once::{
        invocation::{Diagnostic, InvocationError},
        testing,
    };
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;

    /// Returns the time for which Step Functions waits before it first retries this error, if it does.
    fn retry_after(error_type: &str) -> Option<Duration> {
        let machine: Value = serde_json::from_str(include_str!("step-functions-task.asl.json")).expect("JSON");
        let mut retriers = machine["States"]["Book"]["Retry"].as_array().expect("an array").iter();
        let is_matched =
            |names: &Value| names.as_array().is_some_and(|names| names.iter().any(|name| name == error_type));
        let retrier = retriers.find(|retrier| is_matched(&retrier["ErrorEquals"]))?;
        retrier["IntervalSeconds"].as_u64().map(Duration::from_secs)
    }

    fn error_type(error: InvocationError<Error>) -> String {
        Diagnostic::from(error).error_type
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_gets_the_result_and_the_seats_are_booked_once() -> Result<(), Error> {
        let airline = Arc::new(Mutex::new(Airline { delay: Duration::from_secs(600), ..Airline::default() }));
        let of_function = Arc::clone(&airline);
        let service = layer(testing::engine())?.layer(service_fn(move |event| book(Arc::clone(&of_function), event)));
        let event = |seats| testing::event(&Booking { execution: "an execution/Book".to_owned(), seats });

        // The airline books, and does not respond in time.
        let cancelled = service.clone().oneshot(event(2)).await.map_err(error_type);
        assert_eq!(cancelled, Err("lambda_once.cancelled".to_owned()));
        // A retry before the claim has ended would be in progress, and would be retried in turn.
        let early = service.clone().oneshot(event(2)).await.map_err(error_type);
        assert_eq!(early, Err("lambda_once.in_progress".to_owned()));
        assert_eq!(retry_after("lambda_once.in_progress"), retry_after("lambda_once.cancelled"));
        tokio::time::advance(retry_after("lambda_once.cancelled").expect("a retry")).await;

        // The retry, and a retry of a response that Step Functions has not received.
        for _ in 0..2 {
            let booked = service.clone().oneshot(event(2)).await.map_err(error_type);
            assert_eq!(booked, Ok("2 seats are booked".to_owned()));
        }
        let booked = airline.lock().unwrap_or_else(PoisonError::into_inner).seats.values().copied().collect::<Vec<_>>();
        assert_eq!(booked, [2]);

        // Other arguments for the same state are a mistake, which no retry can fix.
        let other = service.oneshot(event(3)).await.map_err(error_type);
        assert_eq!(other, Err("lambda_once.mismatch".to_owned()));
        assert_eq!(retry_after("lambda_once.mismatch"), None);
        Ok(())
    }
}
