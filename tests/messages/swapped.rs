//! A handler with swapped arguments.
// alone: is not a handler of records
// alone: a cloneable async fn(T) or async fn(T, RecordContext)
// wrapped: type mismatch in function arguments
// wrapped: found function signature `fn(RecordContext, Order) -> _`

use lambda_once::{Failure, Idempotency, Key, MemoryStore, RecordContext};

#[derive(serde::Deserialize)]
struct Order {
    id: String,
}

async fn book(_: RecordContext, order: Order) -> Result<String, Failure> {
    Ok(order.id)
}

fn main() {
    let once = Idempotency::new(MemoryStore::new());
    let _ = once.sqs(Key::pointer("/id"), HANDLER_WITH_CONTEXT(book));
}
