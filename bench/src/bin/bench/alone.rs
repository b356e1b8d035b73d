//! Part 3: the library without a store.

use anyhow::{Context, Result};
use benches::alone::{Heap, Memory, Times};

use crate::{
    page::Section,
    processes,
    table::{Table, figure, group, median},
    targets::Target,
};

pub(crate) async fn measure() -> Result<Section> {
    eprintln!("-- without a store");
    let times: Times = processes::run("alone", &[]).await?;
    let heap: Heap = processes::run("heap", &[]).await?;
    Ok(Section {
        title: "Scheduling, decoding, hashing and memory",
        text: include_str!("alone.md"),
        tables: vec![costs(&times), allocations(&heap), memory(&heap)],
        targets: targets(&times, &heap)?,
        charts: Vec::new(),
    })
}

fn costs(times: &Times) -> Table {
    let title = format!("CPU time per record with a body of {} bytes, µs", times.body_bytes);
    let mut table = Table::new(title, ["what", "µs", "÷ decoding"]);
    let mut row = |what: String, time: f64| table.row([what, figure(time), figure(time / times.decode_us)]);
    for (size, time) in &times.scheduling_us {
        row(format!("scheduling alone, in a batch of {}", group(*size as f64)), *time);
    }
    row("decoding the body (`serde_json`)".to_owned(), times.decode_us);
    row("its canonical form".to_owned(), times.canonical_us);
    row("SHA-256 of the body and of the key".to_owned(), times.hashes_us);
    row("key, fingerprint and claim of a record that is refused".to_owned(), times.claim_us);
    for (store, times) in [("in memory", &times.in_memory_us), ("that grants at once", &times.granted_us)] {
        for (size, time) in times {
            row(format!("all of a new record, in a batch of {}, store {store}", group(*size as f64)), *time);
        }
    }
    table
}

fn allocations(heap: &Heap) -> Table {
    let title = format!("Allocations per record in a batch of {}", group(heap.size as f64));
    let mut table = Table::new(title, ["what", "allocations"]);
    table.row(["scheduling alone".to_owned(), figure(heap.allocations_of_scheduling)]);
    table.row(["all of a new record, store that grants at once".to_owned(), figure(heap.allocations)]);
    table.row(["of these, decoding the body and encoding the result".to_owned(), figure(heap.allocations_of_serde)]);
    table
}

fn memory(heap: &Heap) -> Table {
    let small = format!("{} small bodies", group(heap.size as f64));
    let mut table = Table::new("Memory for a batch, MiB", ["what", &small, "bodies of 1 MB"]);
    let mib = |bytes: u64| figure(bytes as f64 / 1_048_576.0);
    let mut row = |what: &str, value: fn(&Memory) -> u64| {
        table.row([what.to_owned(), mib(value(&heap.memory)), mib(value(&heap.memory_of_large))]);
    };
    row("the event's JSON", |memory| memory.json_bytes);
    row("the decoded event", |memory| memory.event_bytes);
    row("most held while it is processed, event included", |memory| memory.peak_bytes);
    table.row([
        "most held ÷ (decoded event + its JSON)".to_owned(),
        figure(heap.memory.share()),
        figure(heap.memory_of_large.share()),
    ]);
    table
}

fn targets(times: &Times, heap: &Heap) -> Result<Vec<Target>> {
    let middle = median(times.in_memory_us.iter().map(|(_, time)| *time)).context("a size")?;
    let furthest = times.in_memory_us.iter().map(|(_, time)| (time / middle - 1.0).abs()).fold(0.0, f64::max);
    let scheduling = times.scheduling_us.iter().find(|(size, _)| *size == heap.size).map(|(_, time)| *time);
    Ok(vec![
        Target::new(format!("scheduling alone, {} records: each", heap.size), scheduling, 2.0, "µs"),
        Target::new(
            format!("scheduling alone, {} records: allocations for each", heap.size),
            Some(heap.allocations_of_scheduling),
            4.0,
            "",
        ),
        Target::new("key, fingerprint and claim of a record", Some(times.claim_us), 5.0, "µs"),
        Target::new(
            "time per record: furthest of the batch sizes from the middle one",
            Some(furthest * 100.0),
            20.0,
            "%",
        ),
        Target::new(
            format!("most memory for {} ÷ (decoded event + its JSON)", heap.size),
            Some(heap.memory.share()),
            1.0,
            "",
        ),
        Target::new(
            "most memory for bodies of 1 MB ÷ (decoded event + its JSON)",
            Some(heap.memory_of_large.share()),
            1.0,
            "",
        ),
    ])
}
