//! The handler of the tests, whose payloads specify its behavior.

use std::{future::poll_fn, task::Poll, time::Duration};

use lambda_once::{Classify, Failure, record::KeyHash};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{journal::Journal, millis};

/// The payload of the handler.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) order_id: String,
    pub(crate) act: String,
    pub(crate) ms: u64,
}

/// Returns a payload: work for `ms` milliseconds, then do `act`.
pub(crate) fn work(key: &str, act: &str, ms: u64) -> Value {
    json!({ "order_id": key, "act": act, "ms": ms })
}

/// Returns a payload whose handler succeeds immediately.
pub(crate) fn order(key: &str) -> Value {
    work(key, "succeed", 0)
}

/// Returns `n` orders with distinct keys.
pub(crate) fn orders(n: usize, act: &str, ms: u64) -> Vec<Value> {
    (0..n).map(|i| work(&format!("order-{i}"), act, ms)).collect()
}

/// Returns an order for each act, with distinct keys.
pub(crate) fn jobs(acts: &[(&str, u64)]) -> Vec<Value> {
    acts.iter().enumerate().map(|(i, (act, ms))| work(&format!("order-{i}"), act, *ms)).collect()
}

/// Panics without output on standard error.
pub(super) fn burn() -> ! {
    std::panic::resume_unwind(Box::new("the shop is on fire"))
}

/// Returns at the second poll, and asks for it in the first one. Unlike tokio's `yield_now`, it does so immediately.
async fn wake_itself() {
    let mut is_woken = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_woken, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Performs a job. `block` lets time pass without yielding.
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
    if job.act == "wake itself, then block" {
        wake_itself().await;
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
        "succeed" | "block" | "sleep, then block" | "wake itself, then block" => {}
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
