//! Measures one cell in a separate process: `worker TASK`, with a [`Task`] as JSON, prints a [`Sample`] as JSON.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aws_sdk_dynamodb::Client;
use benches::{
    cell::{Column, Sample, Task},
    endpoint::counts,
    order,
    seed::{Batch, Seeder},
    usage,
};
use lambda_once::store::dynamodb::Config;

/// Batches are repeated until they have taken this much CPU time …
const CPU_AT_LEAST: Duration = Duration::from_millis(100);
/// … or this much time.
const WALL_AT_MOST: Duration = Duration::from_millis(500);

/// The records of the first batch, which is not measured: enough to open all connections.
const WARM_UP: usize = 25;

// The runtime that Lambda functions use.
#[tokio::main]
async fn main() -> Result<()> {
    let task: Task = serde_json::from_str(&std::env::args().nth(1).context("usage: worker TASK")?)?;
    let sample = measure(&task).await.with_context(|| format!("{:?}", task.cell))?;
    println!("{}", serde_json::to_string(&sample)?);
    Ok(())
}

async fn measure(task: &Task) -> Result<Sample> {
    // The same client for all columns, with timeouts as the library sets them.
    let config = Config::sdk_config().await;
    let client = |endpoint: &str| {
        let config = aws_sdk_dynamodb::config::Builder::from(&config).endpoint_url(endpoint);
        Client::from_conf(config.build())
    };
    let deliver = task.cell.column.open(client(&task.endpoint), &task.table)?;
    let mut seeder = Seeder::new(task.cell, client(&task.fast_endpoint), task.table.clone());
    let run = async |Batch { event, to_handle }: Batch| -> Result<(Duration, Duration)> {
        let handled = order::handled();
        let (cpu, begun) = (usage::cpu(), Instant::now());
        let response = deliver(event).await?;
        let (cpu, wall) = (usage::cpu() - cpu, begun.elapsed());
        ensure!(response.batch_item_failures.is_empty(), "{} failures", response.batch_item_failures.len());
        let handled = order::handled() - handled;
        ensure!(handled == to_handle, "{handled} records were handled, not {to_handle}");
        Ok((cpu, wall))
    };
    run(seeder.warm_up(WARM_UP)?).await?;
    if task.cell.column == Column::Cached {
        let Batch { event, .. } = seeder.next().await?;
        run(Batch { event, to_handle: task.cell.size }).await?;
        // The cache is filled by the first repetition.
        run(seeder.next().await?).await?;
    }

    let (mut cpu, mut wall, mut batches, mut requests, mut peak) = (Duration::ZERO, Duration::ZERO, 0, 0, None);
    while batches == 0 || (cpu < CPU_AT_LEAST && wall < WALL_AT_MOST) {
        let batch = seeder.next().await?;
        let before = counts(&task.endpoint).await?;
        usage::reset_peak();
        let (batch_cpu, batch_wall) = run(batch).await?;
        peak = usage::peak_mib().into_iter().chain(peak).reduce(f64::max);
        requests += counts(&task.endpoint).await?.since(before).requests;
        cpu += batch_cpu;
        wall += batch_wall;
        batches += 1;
    }
    let records = f64::from(batches) * task.cell.size as f64;
    Ok(Sample {
        batches,
        cpu_us: cpu.as_secs_f64() * 1e6 / records,
        wall_ms: wall.as_secs_f64() * 1e3 / f64::from(batches),
        requests: requests as f64 / records,
        peak_mib: peak,
    })
}
