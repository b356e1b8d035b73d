//! Part 2: batches on one thread, with a store that responds in the process.

use anyhow::Result;
use benches::one_thread::OneThread;

use crate::{
    page::Section,
    processes,
    table::{Table, figure, group},
    targets::Target,
};

pub(crate) async fn measure() -> Result<Section> {
    eprintln!("-- on one thread");
    let measured: OneThread = processes::run("one-thread", &[]).await?;
    Ok(Section {
        title: "One thread, without a network",
        text: include_str!("one_thread.md"),
        tables: vec![cpu(&measured), walls(&measured), ahead(&measured)],
        targets: targets(&measured),
        charts: Vec::new(),
    })
}

fn cpu(measured: &OneThread) -> Table {
    let header = ["records", "library, batched", "SDK, PartiQL", "batched ÷ PartiQL"];
    let mut table = Table::new("CPU time per new record, µs", header);
    for cpu in &measured.cpu {
        let figures = [cpu.library, cpu.by_hand, cpu.library / cpu.by_hand].map(figure);
        table.row([group(cpu.size as f64)].into_iter().chain(figures));
    }
    table
}

fn walls(measured: &OneThread) -> Table {
    let title = format!("Time per batch of new records with {} ms latency, ms", measured.latency_ms);
    let header = ["records", "library, batched", "the same, told", "SDK, PartiQL, 4 at once", "÷", "told ÷"];
    let mut table = Table::new(title, header);
    for wall in &measured.walls {
        let ratios = [wall.library / wall.by_hand, wall.library_told / wall.by_hand];
        let figures = [wall.library, wall.library_told, wall.by_hand, ratios[0], ratios[1]].map(figure);
        table.row([group(wall.size as f64)].into_iter().chain(figures));
    }
    table
}

fn ahead(measured: &OneThread) -> Table {
    let title = format!("Claimed ahead of handlers that take {} ms", measured.slow_ms);
    let mut table = Table::new(title, ["what", "records"]);
    table.row(["the most that were claimed and had not begun".to_owned(), figure(measured.most_ahead as f64)]);
    table
}

fn targets(measured: &OneThread) -> Vec<Target> {
    let mut targets = Vec::new();
    for (size, limit) in [(10, 1.4), (100, 1.6)] {
        let cpu = measured.cpu.iter().find(|cpu| cpu.size == size);
        let what = format!("CPU on one thread, {size} new records: library, batched ÷ SDK, PartiQL");
        targets.push(Target::new(what, cpu.map(|cpu| cpu.library / cpu.by_hand), limit, ""));
    }
    let wall = |size| measured.walls.iter().find(|wall| wall.size == size);
    for (size, limit) in [(100, 1.6), (1_000, 1.25), (10_000, 1.25)] {
        let what = format!("time at 5 ms, {size} new: library, batched ÷ SDK, PartiQL, 4 at once");
        targets.push(Target::new(what, wall(size).map(|wall| wall.library / wall.by_hand), limit, ""));
    }
    let told = wall(100).map(|wall| wall.library_told / wall.by_hand);
    targets.push(Target::new("the same, 100 new, told that handlers are fast", told, 1.25, ""));
    let ahead = Some(measured.most_ahead as f64);
    targets.push(Target::new("claimed ahead of handlers that take 50 ms", ahead, 25.0, "records"));
    targets
}
