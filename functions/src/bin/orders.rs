//! Books orders that arrive in an SQS queue, each of them once.

use functions::{Entry, Ledger, Run, Setup, Simulation, init, simulation_if_allowed};
use lambda_once::{Failure, Key, RecordContext, batch::FullBatchFailure};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    order_id: String,
    customer_id: String,
    amount_cents: u64,
    currency: String,
    #[serde(default, deserialize_with = "simulation_if_allowed")]
    simulate: Option<Simulation>,
}

/// Runs once for each order id. A plain error is transient, so the message is redelivered and retried.
async fn book(ledger: Ledger, order: Order, context: RecordContext) -> Result<String, Failure> {
    let delivery = (context.record().id(), context.record().receive_count());
    let _run = Run::start("order", &order.order_id, Some(delivery), context.claim());
    if let Some(simulation) = order.simulate {
        simulation.run(context.record().receive_count()).await?;
    }
    let Order { order_id, customer_id, amount_cents, currency, .. } = order;
    let entry = Entry { operation: "order", key: order_id, party_id: customer_id, amount_cents, currency };
    Ok(ledger.enter(&entry).await?)
}

#[tokio::main]
async fn main() -> Result<(), lambda_runtime::Error> {
    lambda_runtime::tracing::init_default_subscriber();
    let Setup { once, ledger, .. } = init().await?;
    let handler = move |order, context| book(ledger.clone(), order, context);
    // Reports a misspelt pointer at the deployment.
    let service = once.sqs(Key::pointer("/order_id"), handler);
    // A table that does not respond then shows in Lambda's error metric, and an order that fails in the dead-letter
    // queue.
    let service = service.on_full_batch_failure(FullBatchFailure::StoreError).validate()?;
    lambda_runtime::run(service).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_exactly_its_fields() {
        let order =
            |more: &str| format!(r#"{{"order_id":"o","customer_id":"c","amount_cents":1,"currency":"EUR"{more}}}"#);
        assert!(serde_json::from_str::<Order>(&order("")).is_ok());
        assert!(serde_json::from_str::<Order>(&order(r#","x":1"#)).is_err());
        assert!(serde_json::from_str::<Order>(r#"{"order_id":"o"}"#).is_err());
    }

    #[test]
    fn a_simulation_is_refused_where_it_is_not_allowed() {
        let body =
            r#"{"order_id":"o","customer_id":"c","amount_cents":1,"currency":"EUR","simulate":{"outcome":"panic"}}"#;
        let error = serde_json::from_str::<Order>(body).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.starts_with("unknown field `simulate`")));
    }
}
