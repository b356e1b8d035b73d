//! Pays sellers, each payout once and those to one seller in the order in which they were sent.
//!
//! The queue is FIFO, and the message group is the seller's id. A payout that fails blocks later ones to the same
//! seller, but not to others.
//!
//! Records and ledger are in DynamoDB, so a payout's row and its outcome are one transaction. No matter when the
//! function dies, neither exists without the other. With records in another store they are two writes, and a crash
//! between them leaves a payout that may have been made.

use functions::{Entry, Ledger, Run, Setup, Simulation, init, simulation_if_allowed};
use lambda_once::{
    Failure, Key, RecordContext,
    batch::{FullBatchFailure, in_transaction},
    store::dynamodb::Writes,
};
use serde::Deserialize;

/// The queue's `maxReceiveCount` in `template.yaml`. With it the log warns when a last delivery fails, because the
/// dead-letter queue then also receives the seller's next payouts if they were delivered as often. Change both.
const MAX_RECEIVES: u32 = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payout {
    payout_id: String,
    seller_id: String,
    amount_cents: u64,
    currency: String,
    #[serde(default, deserialize_with = "simulation_if_allowed")]
    simulate: Option<Simulation>,
}

impl Payout {
    fn start(&self, context: &RecordContext) -> Run {
        let delivery = (context.record().id(), context.record().receive_count());
        Run::start("payout", &self.payout_id, Some(delivery), context.claim())
    }

    async fn simulate(&self, context: &RecordContext) -> Result<(), Failure> {
        match self.simulate {
            Some(simulation) => simulation.run(context.record().receive_count()).await,
            None => Ok(()),
        }
    }

    fn into_entry(self) -> Entry {
        let Self { payout_id, seller_id, amount_cents, currency, .. } = self;
        Entry { operation: "payout", key: payout_id, party_id: seller_id, amount_cents, currency }
    }
}

/// Takes effect once for each payout id, after the preceding payout in the group has its outcome.
async fn pay(ledger: Ledger, payout: Payout, context: RecordContext, writes: Writes) -> Result<String, Failure> {
    let _run = payout.start(&context);
    payout.simulate(&context).await?;
    ledger.enter_within(&writes, &payout.into_entry())
}

/// Pays without a transaction of records and ledger.
async fn pay_apart(ledger: Ledger, payout: Payout, context: RecordContext) -> Result<String, Failure> {
    let _run = payout.start(&context);
    payout.simulate(&context).await?;
    Ok(ledger.enter(&payout.into_entry()).await?)
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let Setup { once, ledger, dynamodb } = init().await?;
    let key = Key::pointer("/payout_id");
    match dynamodb {
        Some(store) => {
            let handler = move |payout, context, writes| pay(ledger.clone(), payout, context, writes);
            let service = once.sqs(key, in_transaction(&store, handler));
            let service = service.max_receive_count(MAX_RECEIVES).on_full_batch_failure(FullBatchFailure::StoreError);
            lambda_runtime::run(service.validate()?).await
        }
        None => {
            let handler = move |payout, context| pay_apart(ledger.clone(), payout, context);
            let service = once.sqs(key, handler).max_receive_count(MAX_RECEIVES);
            lambda_runtime::run(service.on_full_batch_failure(FullBatchFailure::StoreError).validate()?).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payout_has_exactly_its_fields() {
        let payout =
            |more: &str| format!(r#"{{"payout_id":"p","seller_id":"s","amount_cents":1,"currency":"EUR"{more}}}"#);
        assert!(serde_json::from_str::<Payout>(&payout("")).is_ok());
        assert!(serde_json::from_str::<Payout>(&payout(r#","x":1"#)).is_err());
        assert!(serde_json::from_str::<Payout>(r#"{"payout_id":"p"}"#).is_err());
    }

    #[test]
    fn a_simulation_is_refused_where_it_is_not_allowed() {
        let body =
            r#"{"payout_id":"p","seller_id":"s","amount_cents":1,"currency":"EUR","simulate":{"outcome":"panic"}}"#;
        let error = serde_json::from_str::<Payout>(body).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.starts_with("unknown field `simulate`")));
    }

    #[test]
    fn max_receives_matches_the_template() {
        let template = include_str!("../../../template.yaml");
        let queue = template.split("\n  PayoutsQueue:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        let limit = format!("maxReceiveCount: {MAX_RECEIVES}\n");
        assert!(queue.is_some_and(|queue| format!("{queue}\n").contains(&limit)), "{queue:?}");
    }
}
