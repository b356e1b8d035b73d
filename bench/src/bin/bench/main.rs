//! `make bench`: measures, prints tables, and writes `docs/internals/benchmark.md` and `docs/internals/benchmark.svg`.
//!
//! `bench [--quick] [--write] [batches|one-thread|alone|layer|stores|starts]…` runs one round of each, or only the
//! named parts. With named parts nothing is written, except their sections with `--write`.

mod alone;
mod batches;
mod chart;
mod layer;
mod one_thread;
mod page;
mod plan;
mod processes;
mod runtime_api;
mod starts;
mod stores;
mod table;
mod targets;
mod update;

use std::{env, time::Instant};

use anyhow::{Result, bail};

use page::Page;
use processes::Endpoint;

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Batches,
    OneThread,
    Alone,
    Layer,
    Starts,
    Stores,
}

#[tokio::main]
async fn main() -> Result<()> {
    let (mut quick, mut write) = (false, false);
    let mut parts = Vec::new();
    for argument in env::args().skip(1) {
        match argument.as_str() {
            "--quick" => quick = true,
            "--write" => write = true,
            "batches" => parts.push(Part::Batches),
            "one-thread" => parts.push(Part::OneThread),
            "alone" => parts.push(Part::Alone),
            "layer" => parts.push(Part::Layer),
            "starts" => parts.push(Part::Starts),
            "stores" => parts.push(Part::Stores),
            _ => bail!("usage: bench [--quick] [--write] [batches|one-thread|alone|layer|stores|starts]..."),
        }
    }
    let complete = parts.is_empty();
    let wanted = |part| complete || parts.contains(&part);
    let begun = Instant::now();
    let mut page = Page::default();
    let needs_endpoint = [Part::Batches, Part::Stores, Part::Starts].into_iter().any(wanted);
    let latencies = [&plan::LATENCIES_MS[..], &[2 * stores::LATENCY_MS]].concat();
    let endpoint = if needs_endpoint { Some(Endpoint::start(&latencies).await?) } else { None };
    if wanted(Part::Batches)
        && let Some(endpoint) = &endpoint
    {
        page.add(batches::measure(endpoint, quick).await?);
    }
    if wanted(Part::OneThread) {
        page.add(one_thread::measure().await?);
    }
    if wanted(Part::Alone) {
        page.add(alone::measure().await?);
    }
    if wanted(Part::Layer) {
        page.add(layer::measure().await?);
    }
    if wanted(Part::Stores)
        && let Some(endpoint) = &endpoint
    {
        page.add(stores::measure(endpoint).await?);
    }
    if wanted(Part::Starts)
        && let Some(endpoint) = &endpoint
    {
        page.add(starts::measure(endpoint, quick).await?);
    }
    page.print();
    eprintln!("-- measured in {:.0} s", begun.elapsed().as_secs_f64());
    if !quick && (complete || write) {
        page.write(complete)?;
    }
    Ok(())
}
