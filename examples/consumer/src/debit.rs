//! Debits each order once, regardless of how often it is delivered.

use std::time::Duration;

use lambda_once::{
    Classify as _, Error, Failure, Idempotency, Outcome, PostgresStore, Verdict,
    store::postgres::{Config as StoreConfig, Transaction, tokio_postgres},
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::config::{Config, SKEW_MARGIN};

/// The longest time that a debit may take. Its lease is renewed meanwhile.
const MAX_DURATION: Duration = Duration::from_secs(300);

/// The order, in JSON. Its id is the key, so an order that the producer sends twice is debited once.
#[derive(Deserialize, Serialize)]
struct Order {
    id: String,
    account: String,
    cents: i64,
}

/// The result of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The order is debited, now or earlier.
    Done,
    /// No further delivery can help.
    Refused(String),
    /// The order is in progress elsewhere, has failed, or its outcome is unknown. It needs another delivery.
    Undecided,
}

pub(crate) struct Debits {
    once: Idempotency,
    store: PostgresStore,
    delay: Duration,
}

impl Debits {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        // Each debit holds a connection for its transaction. Claims, renewals and releases use another three.
        let store = StoreConfig::from_env()?.pool_size(config.concurrency + 3).build()?;
        let once = Idempotency::builder(store.clone())
            .scope("consumer")
            .lease(config.lease)
            .skew_margin(SKEW_MARGIN)
            .heartbeat(MAX_DURATION)
            .build()?;
        Ok(Self { once, store, delay: config.delay })
    }

    /// Opens the first connection, so that a wrong URL fails the start.
    pub(crate) async fn warm_up(&self) -> Result<(), Error> {
        self.once.warm_up().await
    }

    /// Debits an order, which may have been delivered before. `entry` is for the log.
    pub(crate) async fn handle(&self, entry: &str, order: &[u8]) -> Decision {
        let order: Order = match serde_json::from_slice(order) {
            Ok(order) => order,
            Err(error) => return Decision::Refused(format!("not an order: {error}")),
        };
        let debit = self.once.operation("debit", &order.id).payload(&order).in_transaction(&self.store);
        match debit.run(|transaction| self.debit(transaction, &order)).await {
            Ok(outcome) => {
                tracing::info!(entry, outcome = outcome.as_str(), "handled");
                decide(&outcome)
            }
            Err(error) => {
                tracing::warn!(entry, %error, "undecided");
                Decision::Undecided
            }
        }
    }

    /// The row and the outcome are committed together.
    async fn debit(&self, transaction: Transaction, order: &Order) -> Result<(), Failure> {
        if order.cents <= 0 {
            return Err(Failure::permanent("the amount is not positive"));
        }
        let insert = "INSERT INTO ledger (order_id, account, cents) VALUES ($1, $2, $3)";
        let client = transaction.client().await?;
        client.execute(insert, &[&order.id, &order.account, &order.cents]).await.classify(verdict)?;
        sleep(self.delay).await;
        Ok(())
    }
}

/// Classifies an error. PostgreSQL refuses data again if it is invalid (class 22) or violates a constraint (class 23).
fn verdict(error: &tokio_postgres::Error) -> Verdict {
    match error.code() {
        Some(state) if state.code().starts_with("22") || state.code().starts_with("23") => Verdict::Permanent,
        _ => Verdict::Transient,
    }
}

fn decide(outcome: &Outcome<()>) -> Decision {
    match outcome {
        outcome if outcome.is_done() => Decision::Done,
        Outcome::Failed(failure) if failure.verdict() == Verdict::Permanent => Decision::Refused(failure.to_string()),
        Outcome::ReplayedFailure(failure) => {
            Decision::Refused(failure.message.clone().unwrap_or_else(|| "refused before".to_owned()))
        }
        // While that order is running, its claim may still be released.
        Outcome::Mismatch(mismatch) if mismatch.is_final() => Decision::Refused("another order has this id".to_owned()),
        _ => Decision::Undecided,
    }
}
