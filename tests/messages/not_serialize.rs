//! A handler whose result cannot be stored.
// alone: is not a handler of records
// wrapped: Serialize` is not satisfied
// wrapped: required by this bound in `handler`

use lambda_once::{Failure, Idempotency, Key, MemoryStore};

#[derive(serde::Deserialize)]
struct Order {
    id: String,
}

struct Receipt(String);

async fn book(order: Order) -> Result<Receipt, Failure> {
    Ok(Receipt(order.id))
}

fn main() {
    let once = Idempotency::new(MemoryStore::new());
    let _ = once.sqs(Key::pointer("/id"), HANDLER(book));
}
