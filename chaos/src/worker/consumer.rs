//! A consumer of a queue without Lambda, which handles several messages at a time, each as an operation.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use lambda_once::{AfterUnknown, BoxError, Claim, Error, Failure, Idempotency, Operation, Outcome, PostgresStore};
use tokio::task::JoinSet;

use super::{
    Context,
    handler::{self, Ledger},
};
use crate::{
    client::{HttpClient, client},
    history::Policy,
    settings::StoreKind,
    world::{Disposition, Receipt},
};

/// The messages that are handled at the same time.
const CONCURRENCY: usize = 8;
/// The name of the operations.
const OPERATION: &str = "consume";

struct Consumer {
    rerun: Idempotency,
    refuse: Idempotency,
    probe: Idempotency,
    /// On PostgreSQL, the store whose transactions contain the effects under `Rerun`.
    transactions: Option<PostgresStore>,
    ledger: Ledger,
    client: HttpClient,
    queue: String,
}

/// Handles messages until the process ends.
pub(super) async fn run(context: Context, queue: String) -> Result<(), BoxError> {
    let transactions = match context.store {
        StoreKind::Postgres => Some(PostgresStore::from_env()?),
        _ => None,
    };
    let consumer = Arc::new(Consumer {
        rerun: match &transactions {
            Some(store) => context.engine_on(store.clone(), AfterUnknown::Rerun)?,
            None => context.engine(AfterUnknown::Rerun).await?,
        },
        refuse: context.engine(AfterUnknown::Refuse).await?,
        probe: context.engine(AfterUnknown::Probe).await?,
        transactions,
        ledger: context.ledger,
        client: client(),
        queue,
    });
    let mut running = JoinSet::new();
    loop {
        while running.len() >= CONCURRENCY {
            // The engine catches a handler's panic.
            if let Some(ended) = running.join_next().await {
                ended??;
            }
        }
        let receipt = consumer.receive().await?;
        running.spawn(Arc::clone(&consumer).handle(receipt));
    }
}

impl Consumer {
    /// Waits for a message.
    async fn receive(&self) -> Result<Receipt, BoxError> {
        let request = axum::http::Request::get(format!("http://{}/message", self.queue)).body(Full::default())?;
        let response = self.client.request(request).await?;
        Ok(serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?)
    }

    async fn handle(self: Arc<Self>, receipt: Receipt) -> Result<(), BoxError> {
        let disposition = match self.operate(receipt).await {
            Ok(outcome) if outcome.is_done() => Disposition::Acknowledge,
            Ok(_) | Err(_) => Disposition::Leave,
        };
        let end = serde_json::to_vec(&disposition)?;
        let request = axum::http::Request::post(format!("http://{}/message/{}", self.queue, receipt.id))
            .header("content-type", "application/json")
            .body(Full::<Bytes>::from(end))?;
        self.client.request(request).await?;
        Ok(())
    }

    async fn operate(&self, receipt: Receipt) -> Result<Outcome<u32>, Error> {
        let Receipt { id, key, policy, is_poison } = receipt;
        let ledger = self.ledger.for_receipt(id);
        let took_over = |claim: Option<Claim>| claim.is_some_and(|claim| claim.took_over());
        let work = |claim| handler::run(ledger.clone(), key, took_over(claim), is_poison);
        match (policy, &self.transactions) {
            (Policy::Rerun, Some(store)) => {
                let work = |claim, transaction| handler::run_in(transaction, ledger.clone(), key, took_over(claim));
                operation(&self.rerun, &key).in_transaction(store).run_with(work).await
            }
            (Policy::Rerun, None) => operation(&self.rerun, &key).run_with(work).await,
            (Policy::Refuse, _) => operation(&self.refuse, &key).run_with(work).await,
            (Policy::Probe, _) => {
                let probe = |_| async { ledger.probe(key).await.map_err(Failure::unknown) };
                operation(&self.probe, &key).probe(probe).run_with(work).await
            }
        }
    }
}

fn operation<'a>(once: &'a Idempotency, key: &u32) -> Operation<'a> {
    once.operation(OPERATION, key).payload(key)
}
