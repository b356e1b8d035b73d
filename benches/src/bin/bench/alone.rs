//! Part 2: the library without a store.

use anyhow::{Context, Result};
use benches::alone::{Heap, Times};

use crate::{
    page::Section,
    processes,
    table::{Table, figure, median},
    targets::Target,
};

pub(crate) async fn measure() -> Result<Section> {
    eprintln!("-- without a store");
    let times: Times = processes::run("alone", &[]).await?;
    let heap: Heap = processes::run("heap", &[]).await?;

    let mut costs =
        Table::new(format!("CPU time per record with a body of {} bytes, µs", times.body_bytes), ["what", "µs"]);
    costs.row(["SHA-256 of the body".to_owned(), figure(times.sha256_us)]);
    costs.row(["decoding the body (`serde_json`)".to_owned(), figure(times.decode_us)]);
    costs.row(["key, fingerprint and claim of a record that is refused".to_owned(), figure(times.claim_us)]);
    for (store, times) in [("in memory", &times.in_memory_us), ("that grants at once", &times.granted_us)] {
        for (size, time) in times {
            costs.row([format!("all of a new record, in a batch of {size}, store {store}"), figure(*time)]);
        }
    }

    let mib = |bytes: u64| figure(bytes as f64 / 1_048_576.0);
    let mut memory = Table::new(format!("Memory for a batch of {}", heap.size), ["what", ""]);
    memory.row(["the event's JSON, MiB".to_owned(), mib(heap.json_bytes)]);
    memory.row(["the decoded event, MiB".to_owned(), mib(heap.event_bytes)]);
    memory.row(["most held while it is processed, event included, MiB".to_owned(), mib(heap.peak_bytes)]);
    memory.row(["allocations per record".to_owned(), figure(heap.allocations)]);
    memory.row(["of these, decoding the body and encoding the result".to_owned(), figure(heap.allocations_of_serde)]);

    let middle = median(times.in_memory_us.iter().map(|(_, time)| *time)).context("a size")?;
    let furthest = times.in_memory_us.iter().map(|(_, time)| (time / middle - 1.0).abs()).fold(0.0, f64::max);
    let allowed = heap.event_bytes + heap.json_bytes;
    Ok(Section {
        title: "Without a store",
        text: include_str!("alone.md"),
        tables: vec![costs, memory],
        targets: vec![
            Target::new("key, fingerprint and claim of a record", Some(times.claim_us), 5.0, "µs"),
            Target::new(
                "time per record: furthest of the batch sizes from the middle one",
                Some(furthest * 100.0),
                20.0,
                "%",
            ),
            Target::new(
                format!("most memory for {} ÷ (decoded event + its JSON)", heap.size),
                Some(heap.peak_bytes as f64 / allowed as f64),
                1.0,
                "",
            ),
        ],
        charts: Vec::new(),
    })
}
