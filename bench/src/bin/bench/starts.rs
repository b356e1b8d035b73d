//! Part 6: the start and the size of a function with the library, compared with a hand-written one.

use std::{fs, path::PathBuf, time::Instant};

use anyhow::{Context, Result, ensure};
use benches::endpoint::{Counts, counts};

use crate::{
    page::Section,
    processes::{Endpoint, command},
    runtime_api::RuntimeApi,
    table::{Table, figure, figure_or_nothing, median},
    targets::Target,
};

const STARTS: usize = 15;
/// A program to start.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Program {
    name: &'static str,
    binary: &'static str,
    /// Whether the hand-written function opens its connection in init.
    warm: bool,
}

const ORDERS: Program = Program { name: "`orders`", binary: "orders", warm: false };
const ORDERS_COLD: Program = Program { name: "`orders` without `warm_up()`", binary: "orders-cold", warm: false };
const BY_HAND: Program = Program { name: "by hand, with a read in init", binary: "raw-orders", warm: true };
const BY_HAND_COLD: Program = Program { name: "by hand", binary: "raw-orders", warm: false };
const PROGRAMS: [Program; 4] = [ORDERS, BY_HAND, ORDERS_COLD, BY_HAND_COLD];

/// The results of one start, in milliseconds.
struct Start {
    program: Program,
    to_first_next: f64,
    to_first_answer: f64,
    /// The store's counters for the first invocation.
    invocation: Counts,
}

pub(crate) async fn measure(endpoint: &Endpoint, quick: bool) -> Result<Section> {
    eprintln!("-- starts");
    endpoint.create_table("start-records", "id").await?;
    endpoint.create_table("start-ledger", "entry_id").await?;
    let mut starts = Vec::new();
    for number in 0..if quick { 3 } else { STARTS } {
        for program in PROGRAMS {
            starts.push(start(endpoint, program, number).await?);
        }
    }
    endpoint.delete_table("start-records").await?;
    endpoint.delete_table("start-ledger").await?;

    let median_of = |program: Program, value: fn(&Start) -> f64| {
        median(starts.iter().filter(|start| start.program == program).map(value))
    };
    let mut table = Table::new(
        "Start and size",
        ["function", "start to first `/next`, ms", "to first answer, ms", "connections opened in it", "size, MB"],
    );
    for program in PROGRAMS {
        table.row([
            program.name.to_owned(),
            figure_or_nothing(median_of(program, |start| start.to_first_next)),
            figure_or_nothing(median_of(program, |start| start.to_first_answer)),
            format!("{:.0}", median_of(program, |start| start.invocation.connections as f64).unwrap_or_default()),
            figure(megabytes(program.binary)?),
        ]);
    }
    let next = |program| median_of(program, |start| start.to_first_next);
    let slower = |ours, theirs| Some(next(ours)? / next(theirs)?);
    Ok(Section {
        title: "Start",
        text: include_str!("starts.md"),
        tables: vec![table],
        targets: vec![
            Target::new(
                "size: orders − by hand",
                Some(megabytes(ORDERS.binary)? - megabytes(BY_HAND.binary)?),
                0.6,
                "MB",
            ),
            Target::new("start to first /next: orders ÷ by hand", slower(ORDERS, BY_HAND_COLD), 1.2, ""),
            Target::new("the same, both with a read in init", slower(ORDERS, BY_HAND), 1.2, ""),
            Target::new("the same, neither with a read in init", slower(ORDERS_COLD, BY_HAND_COLD), 1.2, ""),
            Target::new(
                "connections opened in the first invocation of orders",
                median_of(ORDERS, |start| start.invocation.connections as f64),
                0.0,
                "",
            ),
        ],
        charts: Vec::new(),
    })
}

/// Returns the path of the program in the release profile.
fn release(program: &str) -> Result<PathBuf> {
    let target = std::env::current_exe()?;
    let target = target.parent().and_then(|profile| profile.parent()).context("the target directory")?;
    Ok(target.join("release").join(program))
}

fn megabytes(program: &str) -> Result<f64> {
    let path = release(program)?;
    let metadata = fs::metadata(&path).with_context(|| format!("{} is built by `make bench`", path.display()))?;
    Ok(metadata.len() as f64 / 1e6)
}

async fn start(endpoint: &Endpoint, program: Program, number: usize) -> Result<Start> {
    let mut api = RuntimeApi::listen().await?;
    let store = endpoint.url(0)?;
    let mut command = command(release(program.binary)?);
    if program.warm {
        command.env("WARM", "1");
    }
    command
        .env("AWS_LAMBDA_RUNTIME_API", api.address.to_string())
        .env("AWS_LAMBDA_FUNCTION_NAME", "orders")
        .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
        .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
        .env("AWS_LAMBDA_LOG_GROUP_NAME", "group")
        .env("AWS_LAMBDA_LOG_STREAM_NAME", "stream")
        .env("AWS_ENDPOINT_URL_DYNAMODB", store)
        .env("IDEMPOTENCY_TABLE", "start-records")
        .env("LEDGER_TABLE", "start-ledger")
        .stdout(std::process::Stdio::null());
    let begun = Instant::now();
    let mut process = command.spawn().with_context(|| program.binary)?;
    let to_first_next = (api.asked().await? - begun).as_secs_f64() * 1e3;
    let before = counts(store).await?;
    let (invocation, answer) = api.invoke(event(program, number)).await?;
    let invocation_counts = counts(store).await?.since(before);
    process.kill().await?;
    ensure!(&*answer == br#"{"batchItemFailures":[]}"#, "{}: {}", program.name, String::from_utf8_lossy(&answer));
    Ok(Start {
        program,
        to_first_next,
        to_first_answer: to_first_next + invocation.as_secs_f64() * 1e3,
        invocation: invocation_counts,
    })
}

/// Returns a batch of one order.
fn event(program: Program, number: usize) -> String {
    let Program { binary, warm, .. } = program;
    let body = format!(
        r#"{{"order_id":"{binary}-{warm}-{number}","customer_id":"customer-17","amount_cents":4990,"currency":"EUR"}}"#
    );
    bench_batches::order::event_of_bodies([body])
}
