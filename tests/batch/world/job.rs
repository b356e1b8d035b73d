//! The handler of the tests: each payload says what it is to do.

use std::time::Duration;

use lambda_once::{Classify, Failure, record::KeyHash};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{journal::Journal, millis};

/// What the handler is told to do.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) order_id: String,
    pub(crate) act: String,
    pub(crate) ms: u64,
}

/// A payload: work for `ms` milliseconds, then do `act`.
pub(crate) fn work(key: &str, act: &str, ms: u64) -> Value {
    json!({ "order_id": key, "act": act, "ms": ms })
}

/// A payload whose handler succeeds at once.
pub(crate) fn order(key: &str) -> Value {
    work(key, "succeed", 0)
}

/// `n` orders with keys of their own.
pub(crate) fn orders(n: usize, act: &str, ms: u64) -> Vec<Value> {
    (0..n).map(|i| work(&format!("order-{i}"), act, ms)).collect()
}

/// An order for each act, with keys of their own.
pub(crate) fn jobs(acts: &[(&str, u64)]) -> Vec<Value> {
    acts.iter().enumerate().map(|(i, (act, ms))| work(&format!("order-{i}"), act, *ms)).collect()
}

/// A panic, without its lines on standard error.
pub(super) fn burn() -> ! {
    std::panic::resume_unwind(Box::new("the shop is on fire"))
}

/// The handler. `block` lets time pass without yielding.
pub(super) async fn perform(
    journal: Journal,
    block: fn(Duration),
    job: Job,
    key: Option<KeyHash>,
) -> Result<String, Failure> {
    if journal.is_dead() {
        std::future::pending::<()>().await;
    }
    let run = journal.begin(&job.order_id, key);
    if job.act == "sleep, then block" {
        tokio::time::sleep(millis(50)).await;
    }
    if job.act.ends_with("block") {
        block(millis(job.ms));
        run.blocked();
        if journal.is_dead() {
            std::future::pending::<()>().await;
        }
    } else if job.ms > 0 {
        tokio::time::sleep(millis(job.ms)).await;
    }
    let closed = || Err(std::io::Error::other("the shop is closed"));
    match job.act.as_str() {
        "transient once" | "hang once" if journal.times_run()[&job.order_id] > 1 => {}
        "succeed" | "block" | "sleep, then block" => {}
        "transient" | "transient once" => closed()?,
        "permanent" => closed().permanent()?,
        "unknown" => closed().unknown()?,
        "panic" => burn(),
        "hang" | "hang once" => std::future::pending().await,
        other => panic!("no such act: {other}"),
    }
    run.succeeded();
    Ok(job.order_id)
}
