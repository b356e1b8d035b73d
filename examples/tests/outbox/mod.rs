//! The relays of an outbox, on real servers, each killed while it publishes.

mod dynamodb;
mod function;
mod postgres;
mod queue;

use std::{future::Future, time::Duration};

use futures_util::{StreamExt as _, stream};
use lambda_once::{Error, Failure, Idempotency, Outcome};
use queue::Message;

const ORDERS: usize = 300;
/// The number of operations that run concurrently.
const CONCURRENCY: usize = 8;
/// The timeout of steps that should take seconds, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The operation that writes an order and its message, and the one that a message triggers.
const PLACE_ORDER: &str = "place-order";
const SHIP: &str = "ship";

/// A payload so large that a pipe does not hold a batch, so a relay whose output is not read blocks within one.
fn payload(order: &str) -> String {
    format!("{order}{}", " ".repeat(16 * 1024))
}

/// Places every order, some of them twice simultaneously, and others at first with a handler that fails after its writes.
async fn place_all<F>(place: impl Fn(String, Result<(), Failure>) -> F + Send + Sync)
where
    F: Future<Output = Result<Outcome<()>, Error>> + Send,
{
    let tries = (0..ORDERS).flat_map(|number| {
        let order = format!("order {number}");
        let first = match number % 10 {
            0 => Err(Failure::transient("after the writes")),
            _ => Ok(()),
        };
        let second = (number % 5 == 0).then_some((order.clone(), Ok(())));
        [Some((order, first)), second].into_iter().flatten()
    });
    let outcomes: Vec<_> =
        stream::iter(tries).map(|(order, end)| place(order, end)).buffer_unordered(CONCURRENCY).collect().await;
    for outcome in outcomes {
        match outcome.unwrap() {
            Outcome::Executed(()) | Outcome::Replayed(()) | Outcome::InProgress { .. } | Outcome::Failed(_) => {}
            other => panic!("{other:?}"),
        }
    }
    // Retries operations that were in progress, or had failed.
    for number in (0..ORDERS).step_by(5) {
        let order = format!("order {number}");
        match place(order, Ok(())).await.unwrap() {
            Outcome::Executed(()) | Outcome::Replayed(()) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Gives every delivery to a consumer that uses the message's id as its key.
async fn consume_all<F>(deliveries: Vec<Message>, ship: impl Fn(Message) -> F + Send + Sync)
where
    F: Future<Output = Result<Outcome<()>, Error>> + Send,
{
    let outcomes: Vec<_> = stream::iter(deliveries).map(ship).buffer_unordered(CONCURRENCY).collect().await;
    for outcome in outcomes {
        match outcome.unwrap() {
            Outcome::Executed(()) | Outcome::Replayed(()) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the ids of the expected messages, in order.
fn expected_ids(once: &Idempotency) -> Vec<String> {
    let id = |number| once.key_hash(PLACE_ORDER, &format!("order {number}")).unwrap().to_hex();
    sorted((0..ORDERS).map(id))
}

fn sorted(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_unstable();
    texts
}
