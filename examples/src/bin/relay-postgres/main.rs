//! `relay-postgres` — publishes the messages in the table `outbox`, and deletes them.
//!
//! Any number of relays may run, and each may be killed at any time. A message is deleted in a transaction that commits
//! once it has been published, so it is published at least once, each time with the same id. A relay exits on an error and
//! must be restarted. The database comes from `POSTGRES_URL`, the table from `schema.sql`.

use std::{env, time::Duration};

use anyhow::{Context as _, Result};
use lambda_once::store::postgres::tokio_postgres::{self, Client, NoTls, types::Type};
use serde::Serialize;
use tokio::{
    io::{AsyncWriteExt as _, stdout},
    time::sleep,
};

/// Takes up to `$1` messages that no other relay has taken.
const TAKE: &str = include_str!("take.sql");
/// The most messages in a transaction, all of which are published again after a crash.
const BATCH: i64 = 10;
/// The pause when there is no message.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Serialize)]
struct Message<'a> {
    id: &'a str,
    payload: &'a str,
}

/// Stands in for a queue. Returns when the queue has the message.
async fn publish(message: &Message<'_>) -> Result<()> {
    let mut queue = stdout();
    queue.write_all(format!("{}\n", serde_json::to_string(message)?).as_bytes()).await?;
    Ok(queue.flush().await?)
}

/// Publishes a batch, and returns how many messages it had.
async fn relay(client: &mut Client) -> Result<usize> {
    let transaction = client.transaction().await?;
    let messages = transaction.query_typed(TAKE, &[(&BATCH, Type::INT8)]).await?;
    for message in &messages {
        publish(&Message { id: message.try_get("id")?, payload: message.try_get("payload")? }).await?;
    }
    transaction.commit().await?;
    Ok(messages.len())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("POSTGRES_URL").context("POSTGRES_URL")?;
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    loop {
        if relay(&mut client).await? == 0 {
            sleep(PAUSE).await;
        }
    }
}
