//! Measures the library's memory on the heap, with a store that keeps nothing, and prints [`Heap`] as JSON.
//!
//! A separate program, because counting takes time.

use allocation_counter::{AllocationInfo, measure};
use anyhow::{Context, Result};
use aws_lambda_events::sqs::SqsEvent;
use benches::{
    alone::{Heap, Memory},
    instant::InstantStore,
    library,
    order::{self, Order},
    plain,
};
use tokio::runtime::{Builder, Runtime};

const SIZE: usize = 10_000;

/// The number of bodies of 1 MB in a large event: Lambda accepts events of 6 MB, and SQS messages of 1 MiB.
const LARGE_BODIES: usize = 6;
const LARGE_BODY: usize = 990_000;

fn main() -> Result<()> {
    // Only the allocations of this thread are counted.
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let ids: Vec<String> = (0..SIZE).map(|i| format!("3f1c9a52-00000000-{i:018}")).collect();
    deliver(&runtime, order::event(&ids[..100])?)?;

    let bodies: Vec<String> = ids.iter().map(|id| order::body(id)).collect();
    let mut outcome = Ok(());
    let serde = measure(|| outcome = decode_and_encode(&runtime, &bodies));
    outcome?;
    drop(bodies);

    let (delivered, memory) = event(&runtime, order::event_json(&ids))?;
    let large = ids[..LARGE_BODIES].iter().map(|id| order::large_body(id, LARGE_BODY));
    let (_, memory_of_large) = event(&runtime, order::event_of_bodies(large))?;

    let engine = library::engine(InstantStore::Grants)?;
    let mut outcome = Ok(());
    let scheduled = measure(|| outcome = runtime.block_on(plain::deliver(&engine, ids)));
    outcome?;
    let heap = Heap {
        allocations_of_scheduling: scheduled.count_total as f64 / SIZE as f64,
        allocations: delivered.count_total as f64 / SIZE as f64,
        allocations_of_serde: serde.count_total as f64 / SIZE as f64,
        size: SIZE,
        memory,
        memory_of_large,
    };
    println!("{}", serde_json::to_string(&heap)?);
    Ok(())
}

/// Delivers the event decoded from this JSON.
fn event(runtime: &Runtime, json: String) -> Result<(AllocationInfo, Memory)> {
    let mut event = None;
    let decoded = measure(|| event = serde_json::from_str(&json).ok());
    let event: SqsEvent = event.context("an event")?;
    let event_bytes = u64::try_from(decoded.bytes_current)?;
    let json_bytes = json.len() as u64;
    drop(json);
    let delivered = deliver(runtime, event)?;
    Ok((delivered, Memory { json_bytes, event_bytes, peak_bytes: event_bytes + delivered.bytes_max }))
}

fn deliver(runtime: &Runtime, event: SqsEvent) -> Result<AllocationInfo> {
    let service = library::service(&library::engine(InstantStore::Grants)?);
    let mut response = None;
    let info = measure(|| response = Some(runtime.block_on(library::deliver(&service, event))));
    let response = response.context("a response")??;
    anyhow::ensure!(response.batch_item_failures.is_empty(), "a record failed");
    Ok(info)
}

/// Does the minimum work of any way of handling the records.
fn decode_and_encode(runtime: &Runtime, bodies: &[String]) -> Result<()> {
    for body in bodies {
        let order: Order = serde_json::from_str(body)?;
        let receipt = runtime.block_on(order::handle(order))?;
        std::hint::black_box(serde_json::to_string(&receipt)?);
    }
    Ok(())
}
