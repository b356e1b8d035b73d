//! The operator's tool, which shows, lists and repairs the records of operations.

mod advice;
mod apply;
mod args;
mod audit;
mod aws;
mod change;
mod confirm;
mod dlq;
mod doctor;
mod explain;
#[cfg(test)]
mod fuzz;
mod id;
mod list;
mod order;
mod output;
mod pace;
mod policy;
mod result;
mod select;
mod settings;
mod show;
mod spec;
mod sqs;
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
use output::{Ending, Usage};
use settings::Settings;

/// An error, such as a store that could not be reached.
const FAILED: u8 = 1;
/// Wrong usage or settings, as of clap.
const WRONG_USAGE: u8 = 2;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_store_given = cli.options.store.is_some();
    let ended = match Settings::load(cli.options) {
        Ok(settings) => run(cli.command, settings, is_store_given).await,
        Err(error) => Err(Usage::of(error)),
    };
    ended.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            if error.is::<Usage>() { WRONG_USAGE } else { FAILED }.into()
        },
        ExitCode::from,
    )
}

async fn run(command: Command, settings: Settings, is_store_given: bool) -> Result<Ending> {
    match command {
        Command::Show(show) => show::run(show, &settings).await,
        Command::List(list) => list::run(list, &settings).await,
        Command::Release(change) => change::release(change, &settings).await,
        Command::Forget(forget) => change::forget(forget, &settings).await,
        Command::Settle(settle) => change::settle(settle, &settings).await,
        Command::Redact(change) => change::redact(change, &settings).await,
        Command::Order(command) => order::run(command, &settings).await,
        Command::Doctor(doctor) => doctor::run(doctor, &settings, is_store_given).await,
        Command::Dlq(command) => dlq::run(command, settings, is_store_given).await,
        Command::Table(table) => table::run(table, &settings).await,
    }
}
