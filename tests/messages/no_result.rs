//! A handler that returns no `Result`.
// alone: is not a handler of records
// alone: it returns a Result<R, E>
// wrapped: to be a future that resolves to `Result<_, _>`, but it resolves to `String`

use lambda_once::{Idempotency, Key, MemoryStore};

#[derive(serde::Deserialize)]
struct Order {
    id: String,
}

async fn book(order: Order) -> String {
    order.id
}

fn main() {
    let once = Idempotency::new(MemoryStore::new());
    let _ = once.sqs(Key::pointer("/id"), HANDLER(book));
}
