//! The measured processes, and the process of the store.

use std::{env, path::PathBuf, process::Stdio};

use anyhow::{Context, Result, ensure};
use aws_sdk_dynamodb::Client;
use benches::endpoint::Front;
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

/// Returns the program of this name, which was built with this one.
fn program(name: &str) -> Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name(name))
}

/// Returns a command with an environment like a function's, without the user's variables.
pub(crate) fn command(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("AWS_REGION", local_stack::REGION)
        .env("AWS_ACCESS_KEY_ID", local_stack::ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", local_stack::SECRET_KEY)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs one of the benchmark's programs, which prints a line of JSON.
pub(crate) async fn run<T: DeserializeOwned>(name: &str, arguments: &[String]) -> Result<T> {
    output(name, command(program(name)?).args(arguments)).await
}

/// Runs a program that also needs these variables.
pub(crate) async fn run_with<T: DeserializeOwned>(name: &str, arguments: &[String], variables: &[&str]) -> Result<T> {
    let mut command = command(program(name)?);
    for variable in variables {
        command.env(variable, env::var(variable).with_context(|| format!("{variable} is not set"))?);
    }
    output(name, command.args(arguments)).await
}

async fn output<T: DeserializeOwned>(name: &str, command: &mut Command) -> Result<T> {
    let output = command.stderr(Stdio::inherit()).output().await?;
    ensure!(output.status.success(), "{name}: {}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("what {name} printed"))
}

/// The store, as a separate process.
pub(crate) struct Endpoint {
    fronts: Vec<Front>,
    tables: Client,
    _process: Child,
}

impl Endpoint {
    /// Starts it with a front for each latency, the first of which is 0.
    pub(crate) async fn start(latencies_ms: &[u64]) -> Result<Self> {
        let mut process = command(program("endpoint")?)
            .args(latencies_ms.iter().map(u64::to_string))
            // It ends with its standard input, even if this process is killed.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().context("its standard output")?;
        let line = BufReader::new(stdout).lines().next_line().await?.context("the endpoint's first line")?;
        let fronts: Vec<Front> = serde_json::from_str(&line)?;
        let tables = local_stack::client(&fronts.first().context("a front")?.url);
        Ok(Self { fronts, tables, _process: process })
    }

    /// Returns the address of the front with this latency.
    pub(crate) fn url(&self, latency_ms: u64) -> Result<&str> {
        let front = self.fronts.iter().find(|front| front.latency_ms == latency_ms);
        Ok(&front.context("a front for each latency")?.url)
    }

    /// Creates an empty table.
    pub(crate) async fn create_table(&self, name: &str, partition_key: &str) -> Result<()> {
        Ok(local_stack::create_table(&self.tables, name, partition_key).await?)
    }

    /// Deletes a table, so that the store stays small.
    pub(crate) async fn delete_table(&self, name: &str) -> Result<()> {
        self.tables.delete_table().table_name(name).send().await?;
        Ok(())
    }
}
