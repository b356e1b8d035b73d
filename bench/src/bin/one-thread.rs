//! Measures batches on one thread with a store that responds in the process, and prints [`OneThread`] as JSON.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use benches::{
    library,
    one_thread::{Cpu, OneThread, Wall},
    order::{self, Order, handle},
    raw::{self, Table},
    stub, usage,
};
use lambda_once::{Failure, Key, store::dynamodb::Config};

const TABLE: &str = "records";

const CPU_SIZES: [usize; 3] = [10, 100, 1_000];
const WALL_SIZES: [usize; 3] = [100, 1_000, 10_000];
const LATENCY: Duration = Duration::from_millis(5);
const SLOW: Duration = Duration::from_millis(50);

const ROUNDS: usize = 9;
/// The number of records of a CPU time measurement, in as many batches as necessary.
const RECORDS: usize = 5_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut cpu = Vec::new();
    for size in CPU_SIZES {
        cpu.push(cpu_times(size).await?);
    }
    let mut walls = Vec::new();
    for size in WALL_SIZES {
        walls.push(times(size).await?);
    }
    let most_ahead = most_ahead().await?;
    let [latency_ms, slow_ms] = [LATENCY, SLOW].map(|time| time.as_millis() as u64);
    println!("{}", serde_json::to_string(&OneThread { cpu, walls, latency_ms, most_ahead, slow_ms })?);
    Ok(())
}

async fn cpu_times(size: usize) -> Result<Cpu> {
    let client = stub::client(Duration::ZERO);
    let service = library::service(&library::engine(Config::new(TABLE).build(client.clone())?)?);
    let table = Table::new(client, TABLE.to_owned());
    let (mut library, mut by_hand) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        library.push(cpu_time(size, async |event| Ok(library::deliver(&service, event).await?)).await?);
        by_hand.push(cpu_time(size, async |event| Ok(raw::batched(&table, event).await)).await?);
    }
    Ok(Cpu { size, library: median(library), by_hand: median(by_hand) })
}

/// Returns the CPU time for a record, in microseconds.
async fn cpu_time(size: usize, deliver: impl AsyncFn(SqsEvent) -> Result<SqsBatchResponse>) -> Result<f64> {
    let mut spent = Duration::ZERO;
    let batches = RECORDS / size;
    for _ in 0..batches {
        let event = order::event(&ids(size))?;
        let begun = usage::cpu();
        let response = deliver(event).await?;
        spent += usage::cpu() - begun;
        ensure!(response.batch_item_failures.is_empty(), "a record failed");
    }
    Ok(spent.as_secs_f64() * 1e6 / (batches * size) as f64)
}

async fn times(size: usize) -> Result<Wall> {
    let client = stub::client(LATENCY);
    let engine = || library::engine(Config::new(TABLE).build(client.clone())?);
    let service = library::service(&engine()?);
    let told = engine()?.sqs(Key::pointer("/order_id"), handle).expected_duration(Duration::from_millis(1));
    let table = Table::new(client, TABLE.to_owned());
    let (mut library, mut library_told, mut by_hand) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS.min(40_000 / size) {
        library.push(time(size, async |event| Ok(library::deliver(&service, event).await?)).await?);
        library_told.push(time(size, async |event| Ok(library::deliver(&told, event).await?)).await?);
        by_hand.push(time(size, async |event| Ok(raw::batched_at_once(&table, event).await)).await?);
    }
    Ok(Wall { size, library: median(library), library_told: median(library_told), by_hand: median(by_hand) })
}

/// Returns the time for a batch, in milliseconds.
async fn time(size: usize, deliver: impl AsyncFn(SqsEvent) -> Result<SqsBatchResponse>) -> Result<f64> {
    let event = order::event(&ids(size))?;
    let begun = Instant::now();
    let response = deliver(event).await?;
    let spent = begun.elapsed();
    ensure!(response.batch_item_failures.is_empty(), "a record failed");
    Ok(spent.as_secs_f64() * 1e3)
}

/// Returns the maximum number of records that are claimed and not begun when handlers are slow.
async fn most_ahead() -> Result<usize> {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let before = stub::inserts();
    let handle = move |_: Order| async move {
        let claimed = stub::inserts() - before;
        let begun = BEGUN.fetch_add(1, Ordering::Relaxed);
        MOST.fetch_max(claimed - begun, Ordering::Relaxed);
        tokio::time::sleep(SLOW).await;
        Ok::<_, Failure>(())
    };
    let client = stub::client(LATENCY);
    let service = library::engine(Config::new(TABLE).build(client)?)?.sqs(Key::pointer("/order_id"), handle);
    let response = library::deliver(&service, order::event(&ids(500))?).await?;
    ensure!(response.batch_item_failures.is_empty(), "a record failed");
    Ok(MOST.load(Ordering::Relaxed))
}

fn ids(count: usize) -> Vec<String> {
    static DRAWN: AtomicUsize = AtomicUsize::new(0);
    let first = DRAWN.fetch_add(count, Ordering::Relaxed);
    (first..first + count).map(|i| format!("3f1c9a52-00000000-{i:018}")).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
