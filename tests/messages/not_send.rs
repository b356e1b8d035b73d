//! A handler whose future is not `Send`.
// alone: `fn(Order) -> impl Future<Output = Result<(), Failure>> {book}` is not a handler of records
// alone: wrap it in `lambda_once::batch::handler`
// wrapped: future cannot be sent between threads safely
// wrapped: has type `Rc<

use std::rc::Rc;

use lambda_once::{Failure, Idempotency, Key, MemoryStore};

#[derive(serde::Deserialize)]
struct Order {
    id: String,
}

async fn book(order: Order) -> Result<(), Failure> {
    let shared = Rc::new(order.id);
    std::future::ready(()).await;
    drop(shared);
    Ok(())
}

fn main() {
    let once = Idempotency::new(MemoryStore::new());
    let _ = once.sqs(Key::pointer("/id"), HANDLER(book));
}
