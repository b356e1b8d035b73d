//! Part 4: the HTTP layer beside the bare route.

use anyhow::Result;
use benches::layer::Layer;

use crate::{
    page::Section,
    processes,
    table::{Table, figure},
};

pub(crate) async fn measure() -> Result<Section> {
    eprintln!("-- the HTTP layer");
    let measured: Layer = processes::run("layer", &[]).await?;
    Ok(Section {
        title: "HTTP",
        text: include_str!("layer.md"),
        tables: vec![times(&measured)],
        targets: Vec::new(),
        charts: Vec::new(),
    })
}

fn times(measured: &Layer) -> Table {
    let title = format!("CPU time per request with a body of {} bytes, µs", measured.body_bytes);
    let mut table = Table::new(title, ["what", "µs", "more than the bare route"]);
    for (what, time) in [
        ("the bare route", measured.bare),
        ("new key, in place", measured.new_in_place),
        ("new key, in a task", measured.new_in_task),
        ("replay", measured.replay),
    ] {
        table.row([what.to_owned(), figure(time), figure(time - measured.bare)]);
    }
    table
}
