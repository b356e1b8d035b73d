//! The protection that is often hand-written with the clients of Redis and PostgreSQL.
//!
//! Redis: one pipeline of `SET … NX GET`, the handlers, one pipeline of `SET`. PostgreSQL: one
//! `INSERT … ON CONFLICT DO NOTHING`, a `SELECT` of the existing rows, the handlers, one `UPDATE`. There is no owner,
//! no lease that is checked, no takeover, no fingerprint and no deadline.

use std::time::Duration;

use anyhow::{Result, ensure};
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures_util::{StreamExt, stream};
use lambda_once::store::postgres::tokio_postgres::{Client, types::Type};
use redis::{Pipeline, Value, aio::MultiplexedConnection};

use crate::{
    order::{Order, Receipt, handle},
    raw,
};

const IN_PROGRESS: &str = "INPROGRESS";
const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(15 * 24 * 60 * 60);
const CONCURRENCY: usize = 10;

/// Processes a batch on Redis.
///
/// # Errors
///
/// If the server rejects a command.
pub async fn redis(connection: &mut MultiplexedConnection, event: SqsEvent) -> Result<SqsBatchResponse> {
    let jobs = jobs(event)?;
    let mut claims = Pipeline::with_capacity(jobs.len());
    for (id, _) in &jobs {
        claims.cmd("SET").arg(id).arg(IN_PROGRESS).arg("NX").arg("GET").arg("PX").arg(LEASE.as_millis() as u64);
    }
    let found: Vec<Value> = claims.query_async(connection).await?;
    let granted = jobs.into_iter().zip(found).filter(|(_, found)| *found == Value::Nil).map(|(job, _)| job);
    let done = run(granted.collect()).await?;
    if !done.is_empty() {
        let mut outcomes = Pipeline::with_capacity(done.len());
        for (id, data) in done {
            outcomes.cmd("SET").arg(id).arg(data).arg("PX").arg(RETENTION.as_millis() as u64).ignore();
        }
        outcomes.exec_async(connection).await?;
    }
    Ok(SqsBatchResponse::default())
}

/// The table of [`postgres`].
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS by_hand (id text PRIMARY KEY, status text NOT NULL, data text, \
                         expiration timestamptz NOT NULL)";

/// Processes a batch on PostgreSQL.
///
/// # Errors
///
/// If the server rejects a statement.
pub async fn postgres(client: &Client, event: SqsEvent) -> Result<SqsBatchResponse> {
    let jobs = jobs(event)?;
    let ids: Vec<&str> = jobs.iter().map(|(id, _)| id.as_str()).collect();
    let insert = "INSERT INTO by_hand (id, status, expiration) SELECT id, 'INPROGRESS', now() + interval '15 days' \
                  FROM unnest($1::text[]) AS w (id) ON CONFLICT DO NOTHING RETURNING id";
    let select = "SELECT id, status, data FROM by_hand WHERE id = ANY ($1::text[])";
    let inserted = client.query_typed(insert, &[(&ids, Type::TEXT_ARRAY)]).await?;
    let inserted: std::collections::HashSet<String> = inserted.iter().map(|row| row.get(0)).collect();
    if inserted.len() < jobs.len() {
        let found = client.query_typed(select, &[(&ids, Type::TEXT_ARRAY)]).await?;
        ensure!(
            found.iter().all(|row| inserted.contains(row.get::<_, &str>(0)) || row.get::<_, &str>(1) == "COMPLETED")
        );
    }
    let granted = jobs.into_iter().filter(|(id, _)| inserted.contains(id));
    let done = run(granted.collect()).await?;
    if !done.is_empty() {
        let (ids, data): (Vec<String>, Vec<String>) = done.into_iter().unzip();
        let update = "UPDATE by_hand b SET status = 'COMPLETED', data = w.data FROM unnest($1::text[], $2::text[]) AS w (id, data) \
                      WHERE b.id = w.id";
        let updated = client.execute_typed(update, &[(&ids, Type::TEXT_ARRAY), (&data, Type::TEXT_ARRAY)]).await?;
        ensure!(updated == ids.len() as u64, "an outcome has no record");
    }
    Ok(SqsBatchResponse::default())
}

fn jobs(event: SqsEvent) -> Result<Vec<(String, Order)>> {
    let job = |message: SqsMessage| {
        let order: Order = serde_json::from_str(&message.body.unwrap_or_default())?;
        Ok((raw::id(&order.order_id), order))
    };
    event.records.into_iter().map(job).collect()
}

/// Runs the handlers, and returns their results in the stored form.
async fn run(jobs: Vec<(String, Order)>) -> Result<Vec<(String, String)>> {
    let runs = stream::iter(jobs).map(|(id, order)| run_one(id, order));
    runs.buffer_unordered(CONCURRENCY).collect::<Vec<Result<_>>>().await.into_iter().collect()
}

async fn run_one(id: String, order: Order) -> Result<(String, String)> {
    let receipt: Receipt = handle(order).await?;
    Ok((id, serde_json::to_string(&receipt)?))
}
