//! A custom error of an invocation's handler, without `handler_error!`.
// alone: `ChargeError` is not an error from which an invocation layer reads a verdict
// alone: write `lambda_once::handler_error!(ChargeError);`

use lambda_once::{Idempotency, Key, MemoryStore, invocation::InvocationLayer};
use lambda_runtime::{LambdaEvent, service_fn, tower::Layer};

#[derive(serde::Deserialize)]
struct Order {
    id: String,
}

#[derive(Debug)]
struct ChargeError;

impl std::fmt::Display for ChargeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("declined")
    }
}

impl std::error::Error for ChargeError {}

async fn charge(event: LambdaEvent<Order>) -> Result<String, ChargeError> {
    Ok(event.payload.id)
}

fn main() {
    let once = Idempotency::new(MemoryStore::new());
    let layer = InvocationLayer::new(once, Key::pointer("/id"));
    let _ = lambda_runtime::run(layer.layer(service_fn(charge)));
}
