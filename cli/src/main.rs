//! The operator's tool, which shows, lists and repairs the records of operations.

mod advice;
mod apply;
mod args;
mod audit;
mod change;
mod explain;
mod id;
mod list;
mod output;
mod policy;
mod result;
mod select;
mod settings;
mod show;
mod spec;
mod state;
mod store;
mod table;
mod text;
mod time;
mod view;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use args::{Cli, Command};
use output::Ending;
use settings::Settings;

/// Wrong usage or settings, or the store could not be reached. clap uses the same code for wrong usage.
const FAILED: u8 = 2;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(ending) => ending.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            FAILED.into()
        }
    }
}

async fn run(cli: Cli) -> Result<Ending> {
    let settings = Settings::load(cli.options)?;
    match cli.command {
        Command::Show(show) => show::run(show, &settings).await,
        Command::List(list) => list::run(list, &settings).await,
        Command::Release(change) => change::release(change, &settings).await,
        Command::Forget(forget) => change::forget(forget, &settings).await,
        Command::Settle(settle) => change::settle(settle, &settings).await,
        Command::Redact(change) => change::redact(change, &settings).await,
        Command::Table(table) => table::run(table, &settings).await,
    }
}
