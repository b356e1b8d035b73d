//! `consumer` — debits the orders of a Redis stream in PostgreSQL, each once, without Lambda.
//!
//! `consumer migrate` creates the tables. `consumer` reads the stream until SIGTERM or SIGINT.

mod config;
mod consume;
mod debit;
mod stream;

use std::{env, process::ExitCode, sync::Arc};

use anyhow::{Context as _, Result, bail};
use lambda_once::{PostgresStore, store::postgres::tokio_postgres};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::info;

use crate::{
    config::Config,
    consume::consume,
    debit::Debits,
    stream::{Group, Reader},
};

async fn run() -> Result<()> {
    let config = Config::from_env()?;
    let stop = stopped()?;
    let debits = Debits::new(&config)?;
    debits.warm_up().await?;
    let group = Group::connect(&config).await.context("cannot connect to Redis")?;
    group.create().await.context("cannot create the group")?;
    let reader = Reader::connect(&config).await.context("cannot connect to Redis")?;
    info!(stream = config.stream, consumer = config.consumer, "reading");
    consume(&config, reader, group, Arc::new(debits), stop).await;
    Ok(())
}

/// Becomes true at SIGTERM or SIGINT.
fn stopped() -> Result<watch::Receiver<bool>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.send_replace(true);
    });
    Ok(stopped)
}

/// Creates the library's table and the ledger, during deployment.
async fn migrate() -> Result<()> {
    PostgresStore::from_env()?.migrate().await?;
    let url = env::var("POSTGRES_URL")?;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client.batch_execute(include_str!("ledger.sql")).await?)
}

async fn start(command: Option<String>) -> Result<()> {
    match command.as_deref() {
        None => run().await,
        Some("migrate") => migrate().await,
        Some(_) => bail!("usage: consumer [migrate]"),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    match start(env::args().nth(1)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("consumer: {error:#}");
            ExitCode::FAILURE
        }
    }
}
