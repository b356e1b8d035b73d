//! The library, as a function uses it.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_once::{
    Error, Idempotency, Key, Store,
    batch::{BatchService, Handler, sqs::Sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use tower_service::Service;

use crate::order::{Order, handle};

/// The time left of an invocation: Lambda's maximum.
const TIME_LEFT: Duration = Duration::from_secs(15 * 60);

/// Creates an engine whose keys do not depend on the environment.
///
/// # Errors
///
/// None in practice, because the settings are the defaults.
pub fn engine(store: impl Store) -> Result<Idempotency> {
    Ok(Idempotency::builder(store).scope("bench").build()?)
}

/// Returns the service for SQS.
pub fn service(engine: &Idempotency) -> BatchService<Sqs, impl Handler<Order, (Order,)> + use<>, Order, (Order,)> {
    engine.sqs(Key::pointer("/order_id"), handle)
}

/// Runs one invocation with this event.
///
/// # Errors
///
/// The service's.
pub async fn deliver<S>(service: &S, event: SqsEvent) -> Result<SqsBatchResponse, Error>
where
    S: Service<LambdaEvent<SqsEvent>, Response = SqsBatchResponse, Error = Error, Future: Send> + Clone + Send + Sync,
{
    service.clone().call(LambdaEvent::new(event, context())).await
}

/// Returns the context of an invocation with the maximum time left.
pub fn context() -> Context {
    let deadline = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + TIME_LEFT;
    let mut context = Context::default();
    context.deadline = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
    context
}
