//! The handler of all workers, which enters its effect in the ledger.

use std::{sync::Arc, time::Duration};

use http_body_util::{BodyExt, Full};
use lambda_once::{BoxError, Failure, ProbeResult, store::postgres::Transaction};
use tokio::time::sleep;

use crate::{
    client::{HttpClient, client},
    world::{Ending, Report},
};

/// The client of the ledger.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    worker: u32,
    /// The receipt that a consumer handles.
    receipt: Option<u32>,
    url: Arc<str>,
    client: HttpClient,
}

impl Ledger {
    pub(super) fn new(worker: u32, address: &str) -> Self {
        // A report must not arrive twice.
        Self { worker, receipt: None, url: format!("http://{address}/").into(), client: client() }
    }

    /// Returns a client whose begins are those of a consumer's receipt.
    pub(super) fn for_receipt(&self, receipt: u32) -> Self {
        Self { receipt: Some(receipt), ..self.clone() }
    }

    /// Enters the begin of a run, and returns its number.
    async fn begin(&self, key: u32, took_over: bool) -> Result<u32, Failure> {
        let begin = Report::Begin { worker: self.worker, key, receipt: self.receipt, took_over };
        self.enter(begin).await?.ok_or_else(|| Failure::unknown("the ledger gave no number"))
    }

    async fn report(&self, report: Report) -> Result<Option<u32>, BoxError> {
        let request = axum::http::Request::post(&*self.url).header("content-type", "application/json");
        let request = request.body(Full::from(serde_json::to_vec(&report)?))?;
        let response = self.client.request(request).await?;
        if !response.status().is_success() {
            return Err(format!("the ledger responded with {}", response.status()).into());
        }
        Ok(serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?)
    }

    /// Enters a report of a handler. One that fails may have arrived.
    async fn enter(&self, report: Report) -> Result<Option<u32>, Failure> {
        self.report(report).await.map_err(Failure::unknown)
    }

    /// Reports to the coordinator the port on which this worker listens.
    pub(super) async fn listening(&self, port: u16) -> Result<(), BoxError> {
        self.report(Report::Listening { worker: self.worker, port }).await.map(drop)
    }

    /// Finds out truthfully whether an earlier run took effect.
    pub(super) async fn probe(&self, key: u32) -> Result<ProbeResult<u32>, BoxError> {
        let found = self.report(Report::Probe { key }).await?;
        Ok(found.map_or(ProbeResult::NotDone, ProbeResult::Done))
    }
}

/// The behavior of a run.
enum Behavior {
    Succeed,
    Fail(Ending),
    Panic,
    Hang,
}

fn behavior(is_poison: bool) -> Behavior {
    match fastrand::u32(0..100) {
        _ if is_poison => Behavior::Fail(Ending::Permanent),
        0..4 => Behavior::Fail(Ending::Transient),
        4 => Behavior::Fail(Ending::Unknown),
        5 => Behavior::Panic,
        6 => Behavior::Hang,
        _ => Behavior::Succeed,
    }
}

async fn pause() {
    let longest = if fastrand::u32(0..100) < 5 { 450 } else { 50 };
    sleep(Duration::from_millis(fastrand::u64(1..=longest))).await;
}

/// Runs an operation whose effect is a row, and returns the number of the run.
pub(super) async fn run_in(
    transaction: Transaction,
    ledger: Ledger,
    key: u32,
    took_over: bool,
) -> Result<u32, Failure> {
    let run = ledger.begin(key, took_over).await?;
    pause().await;
    if let Err(error) = insert(&transaction, run).await {
        // The transaction is rolled back.
        ledger.enter(Report::End { run, end: Ending::Transient }).await?;
        return Err(Failure::transient(error));
    }
    pause().await;
    ledger.enter(Report::End { run, end: Ending::Returned }).await?;
    Ok(run)
}

async fn insert(transaction: &Transaction, run: u32) -> Result<u64, BoxError> {
    let insert = format!("INSERT INTO {} (run) VALUES ($1)", super::ROWS);
    Ok(transaction.client().await?.execute(&insert, &[&i64::from(run)]).await?)
}

/// Runs an operation, and returns the number of the run.
pub(super) async fn run(ledger: Ledger, key: u32, took_over: bool, is_poison: bool) -> Result<u32, Failure> {
    let run = ledger.begin(key, took_over).await?;
    let behavior = behavior(is_poison);
    pause().await;
    let has_effect = match behavior {
        Behavior::Succeed => true,
        Behavior::Fail(Ending::Transient | Ending::Permanent) => false,
        _ => fastrand::bool(),
    };
    if has_effect {
        ledger.enter(Report::Effect { run }).await?;
    }
    pause().await;
    match behavior {
        Behavior::Succeed => {
            ledger.enter(Report::End { run, end: Ending::Returned }).await?;
            Ok(run)
        }
        Behavior::Fail(end) => {
            ledger.enter(Report::End { run, end }).await?;
            Err(match end {
                Ending::Transient => Failure::transient("chaos: not now"),
                Ending::Permanent => Failure::permanent("chaos: never"),
                _ => Failure::unknown("chaos: no response"),
            })
        }
        Behavior::Panic => {
            ledger.enter(Report::End { run, end: Ending::Unknown }).await?;
            // As a panic, but without the message that the hook prints.
            std::panic::resume_unwind(Box::new("chaos"))
        }
        Behavior::Hang => {
            // Longer than any invocation. The run is dropped.
            sleep(Duration::from_secs(3_600)).await;
            Err(Failure::unknown("chaos: it hung"))
        }
    }
}
