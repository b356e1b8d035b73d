//! A Lambda function with several queues, each with the library's SQS service.

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_once::{
    AfterUnknown, BoxError, BoxFuture, Error, Failure, Key, PostgresStore, RecordContext,
    batch::{PermanentFailures, in_transaction},
    store::postgres::Transaction,
};
use lambda_runtime::{LambdaEvent, service_fn};
use serde::Deserialize;
use tower::ServiceExt;

use super::{Context, handler};
use crate::settings::StoreKind;

/// The body of a message.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Order {
    key: u32,
    poison: bool,
}

type Queue = Box<dyn Fn(LambdaEvent<SqsEvent>) -> BoxFuture<'static, Result<SqsBatchResponse, Error>> + Send + Sync>;

/// Handles events until the process ends.
pub(super) async fn run(context: Context) -> Result<(), BoxError> {
    let mut queues = vec![
        ("rerun", queue(&context, "rerun", AfterUnknown::Rerun).await?),
        ("refuse", queue(&context, "refuse", AfterUnknown::Refuse).await?),
        ("probe", queue(&context, "probe", AfterUnknown::Probe).await?),
        ("ordered", queue(&context, "ordered", AfterUnknown::Rerun).await?),
    ];
    if context.store == StoreKind::Postgres {
        queues.push(("transaction", transactions(&context)?));
    }
    let function = service_fn(move |event: LambdaEvent<SqsEvent>| {
        let arn = event.payload.records.first().and_then(|record| record.event_source_arn.as_deref());
        let name = arn.and_then(|arn| arn.rsplit(':').next()).unwrap_or_default();
        let handled = queues.iter().find(|(queue, _)| *queue == name).map(|(_, queue)| queue(event));
        async move {
            match handled {
                Some(handled) => handled.await.map_err(BoxError::from),
                None => Err("no such queue".into()),
            }
        }
    });
    lambda_runtime::run(function).await
}

/// Returns the queue whose effects are committed together with their outcomes.
fn transactions(context: &Context) -> Result<Queue, BoxError> {
    let store = PostgresStore::from_env()?;
    let once = context.engine_on(store.clone(), AfterUnknown::Rerun)?.named("transaction");
    let ledger = context.ledger.clone();
    let handle = move |order: Order, context: RecordContext, transaction: Transaction| {
        handler::run_in(transaction, ledger.clone(), order.key, context.took_over())
    };
    let service = once.sqs(Key::pointer("/key"), in_transaction(&store, handle)).validate()?;
    Ok(Box::new(move |event| Box::pin(service.clone().oneshot(event))))
}

async fn queue(context: &Context, name: &'static str, policy: AfterUnknown) -> Result<Queue, BoxError> {
    let once = context.engine(policy).await?.named(name);
    let ledger = context.ledger.clone();
    let handle = move |order: Order, context: RecordContext| {
        let ledger = ledger.clone();
        async move { handler::run(ledger, order.key, context.took_over(), order.poison).await }
    };
    let service = once.sqs(Key::pointer("/key"), handle).permanent_failures(PermanentFailures::Report);
    if policy == AfterUnknown::Probe {
        let ledger = context.ledger.clone();
        let probe = move |order: Order, _: RecordContext| {
            let ledger = ledger.clone();
            async move { ledger.probe(order.key).await.map_err(Failure::from) }
        };
        let service = service.probe(probe).validate()?;
        return Ok(Box::new(move |event| Box::pin(service.clone().oneshot(event))));
    }
    let is_ordered = name == "ordered";
    let service =
        if is_ordered { service.ordered_by(Key::pointer("/entity"), Key::pointer("/sequence")) } else { service };
    let service = service.validate()?;
    Ok(Box::new(move |event| Box::pin(service.clone().oneshot(event))))
}
