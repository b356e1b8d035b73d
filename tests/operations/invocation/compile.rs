//! Uses of the layer that must compile.

use lambda_once::{
    Failure, Idempotency, Key, MemoryStore,
    invocation::{InvocationLayer, InvocationService},
};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, value::RawValue};
use tower::{Service, ServiceBuilder};

fn layer<T>() -> InvocationLayer<T> {
    InvocationLayer::new(Idempotency::new(MemoryStore::new()), Key::pointer("/id"))
}

async fn plain(event: LambdaEvent<Value>) -> Result<Value, Error> {
    Ok(event.payload)
}

/// A type with only `Deserialize`.
#[derive(serde::Deserialize)]
struct Order {
    id: std::collections::HashSet<String>,
}

async fn typed(event: LambdaEvent<Order>) -> Result<usize, Error> {
    Ok(event.payload.id.len())
}

async fn raw(event: LambdaEvent<Box<RawValue>>) -> Result<Box<RawValue>, Failure> {
    Ok(event.payload)
}

fn is_a_service<S>(_: &S)
where
    S: Service<LambdaEvent<Box<RawValue>>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
}

/// Tests only that it compiles, and is never called.
#[expect(dead_code, reason = "it would wait for Lambda")]
async fn the_runtime_runs_it_one_by_one_and_concurrently() -> Result<(), Error> {
    let service = ServiceBuilder::new().layer(layer()).service(service_fn(plain));
    is_a_service(&service);
    lambda_runtime::run(service.clone()).await?;
    lambda_runtime::run_concurrent(service).await?;
    let checked = InvocationLayer::new(Idempotency::new(MemoryStore::new()), Key::pointer("/id")).validate()?;
    let service = ServiceBuilder::new().layer(checked).service(service_fn(typed));
    is_a_service(&service);
    lambda_runtime::run(service.clone()).await?;
    lambda_runtime::run_concurrent(service).await?;
    let closure = service_fn(|event: LambdaEvent<Order>| async move { Ok::<_, Error>(event.payload.id.len()) });
    lambda_runtime::run(ServiceBuilder::new().layer(layer()).service(closure)).await?;
    let service = ServiceBuilder::new().layer(layer()).service(service_fn(raw));
    is_a_service(&service);
    lambda_runtime::run(service.clone()).await?;
    lambda_runtime::run_concurrent(service).await
}

#[test]
fn it_crosses_threads() {
    fn crosses<T: Clone + Send + Sync + 'static>() {}
    crosses::<InvocationLayer<std::cell::RefCell<Value>>>();
    crosses::<InvocationService<fn(), std::cell::RefCell<Value>>>();
}
