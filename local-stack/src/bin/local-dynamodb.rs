//! `local-dynamodb [PORT]` — an in-memory DynamoDB on 127.0.0.1, until SIGINT or SIGTERM.
//!
//! The first line on standard output is `DYNAMODB_ENDPOINT=http://127.0.0.1:PORT`. The port is the
//! argument, else `DYNAMODB_PORT`, else a free one. The tables named by `IDEMPOTENCY_TABLE` and
//! `LEDGER_TABLE` are created where set.

use std::{env, io::Write as _, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use local_stack::{EmbeddedDynamoDb, client, create_table};
use tokio::signal::unix::{SignalKind, signal};

/// The environment variables that name a table, with the table's partition key.
const TABLES: [(&str, &str); 2] = [("IDEMPOTENCY_TABLE", "id"), ("LEDGER_TABLE", "entry_id")];

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("local-dynamodb: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<()> {
    let port = port()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;

    let dynamodb = EmbeddedDynamoDb::start_on(port)?;
    let client = client(dynamodb.endpoint());
    for (variable, partition_key) in TABLES {
        if let Ok(table) = env::var(variable) {
            create_table(&client, &table, partition_key).await?;
        }
    }
    let mut stdout = std::io::stdout();
    writeln!(stdout, "DYNAMODB_ENDPOINT={}", dynamodb.endpoint())?;
    stdout.flush()?;

    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    dynamodb.shutdown().await;
    Ok(())
}

fn port() -> Result<u16> {
    let mut arguments = env::args().skip(1);
    let port = arguments.next().or_else(|| env::var("DYNAMODB_PORT").ok());
    if arguments.next().is_some() {
        bail!("usage: local-dynamodb [PORT]");
    }
    port.map_or(Ok(0), |port| {
        port.parse().with_context(|| format!("{port:?} is not a port; usage: local-dynamodb [PORT]"))
    })
}
