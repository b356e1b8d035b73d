//! What must type-check, everywhere the layer is used.

use lambda_once::{
    Failure, Idempotency, Key, MemoryStore,
    invocation::{InvocationLayer, InvocationService},
};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, value::RawValue};
use tower::{Service, ServiceBuilder};

fn layer() -> InvocationLayer {
    InvocationLayer::new(Idempotency::new(MemoryStore::new()), Key::pointer("/id"))
}

async fn plain(event: LambdaEvent<Value>) -> Result<Value, Error> {
    Ok(event.payload)
}

async fn raw(event: LambdaEvent<Box<RawValue>>) -> Result<Box<RawValue>, Failure> {
    Ok(event.payload)
}

fn is_a_service<T, S>(_: &S)
where
    S: Service<LambdaEvent<T>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
{
}

/// Never called: to compile is the test.
#[expect(dead_code, reason = "it would wait for Lambda")]
async fn the_runtime_runs_it_one_by_one_and_concurrently() -> Result<(), Error> {
    let service = ServiceBuilder::new().layer(layer()).service(service_fn(plain));
    is_a_service(&service);
    lambda_runtime::run(service.clone()).await?;
    lambda_runtime::run_concurrent(service).await?;
    let service = ServiceBuilder::new().layer(layer()).service(service_fn(raw));
    is_a_service(&service);
    lambda_runtime::run(service.clone()).await?;
    lambda_runtime::run_concurrent(service).await
}

#[test]
fn it_crosses_threads() {
    fn crosses<T: Clone + Send + Sync + 'static>() {}
    crosses::<InvocationLayer>();
    crosses::<InvocationService<fn()>>();
}
