//! `demo` — duplicate, failing and poisonous deliveries through the real functions.
//!
//! It plays the part of SQS and of API Gateway's clients against the functions `orders`, `payouts` and `charges`. These
//! run behind the Lambda APIs of `cargo lambda watch`, and keep their claims in a DynamoDB inside this process or in
//! the store that `STORE` names. Then it does the same with the protection switched off. It exits with 0 if every
//! effect happened as often as expected, every seller was paid in order, every message was deleted or dead-lettered as
//! expected, and the unprotected run shows double effects; with 1 otherwise, and with 128 + the signal's number after
//! SIGHUP, SIGINT or SIGTERM. `DETAILS=1` prints each delivery, and `target/demo/report.html` shows it on a timeline.
//!
//! Nothing listens beyond 127.0.0.1, and everything that was started is stopped, however it ends.

mod api;
mod body;
mod charge;
mod emulator;
mod events;
mod invoke;
mod ledger;
mod logs;
mod message;
mod page;
mod process;
mod project;
mod records;
mod report;
mod scenario;
mod sqs;
mod table;
mod timeline;
mod verdict;

use std::{
    env,
    future::Future,
    io::{Write as _, stdout},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use local_stack::EmbeddedDynamoDb;
use tokio::signal::unix::{SignalKind, signal};

use crate::{events::Events, project::Project, records::Kind, scenario::Mode};

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = tokio::select! {
        biased;
        code = interrupted() => {
            eprintln!("\nInterrupted; everything that was started is stopped.");
            return code;
        }
        outcome = demo() => outcome,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("\nThe demo could not be completed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn demo() -> Result<bool> {
    let project = Project::find()?;
    let events = Events::load(&project.events())?;

    let store = Kind::from_env()?;
    emulator::binaries()?;

    let dynamodb = EmbeddedDynamoDb::start()?;
    let protected = step(
        "Sending every event more than once, as SQS and HTTP clients do",
        scenario::run(&project, &dynamodb, store, &events, Mode::Protected),
    )
    .await?;
    let unprotected = step(
        "Sending the same with LAMBDA_ONCE_DISABLED=1, as a control",
        scenario::run(&project, &dynamodb, store, &events, Mode::Unprotected),
    )
    .await?;
    dynamodb.shutdown().await;
    let details = env::var("DETAILS").is_ok_and(|set| !matches!(&*set, "" | "0"));
    let (passed, report) = report::print(&events, store, &protected, &unprotected, details);
    let path = project.output().join("report.html");
    report.write(&path).with_context(|| path.display().to_string())?;
    println!(
        "       {} shows each delivery on a timeline.",
        path.strip_prefix(project.root()).unwrap_or(&path).display()
    );
    Ok(passed)
}

/// Prints the current step, and its duration.
async fn step<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    print!("{what} … ");
    stdout().flush()?;
    let start = Instant::now();
    let result = work.await;
    match &result {
        Ok(_) => println!("{}", seconds(start.elapsed())),
        Err(_) => println!("failed"),
    }
    result
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.1} s", elapsed.as_secs_f64())
}

/// Waits for a signal to stop and returns the exit code that indicates it.
async fn interrupted() -> ExitCode {
    let received = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut signal) => signal.recv().await,
            // Without a handler the signal ends the process by itself.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = received(SignalKind::hangup()) => ExitCode::from(129),
        _ = received(SignalKind::interrupt()) => ExitCode::from(130),
        _ = received(SignalKind::terminate()) => ExitCode::from(143),
    }
}
