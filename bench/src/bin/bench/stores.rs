//! Part 5: the stores, compared with hand-written code.

use anyhow::Result;
use benches::stores::{Backend, Row, Stores};

use crate::{
    page::Section,
    processes::{self, Endpoint},
    table::{Table, figure, group},
    targets::Target,
};

/// The latency each way.
pub(crate) const LATENCY_MS: u64 = 1;

/// The maximum cost of the library above the hand-written code, as a multiple of its cost on DynamoDB.
const LIMIT: f64 = 1.25;

pub(crate) async fn measure(endpoint: &Endpoint) -> Result<Section> {
    eprintln!("-- the stores");
    for table in ["library", "by_hand"] {
        endpoint.create_table(table, "id").await?;
    }
    // The endpoint delays only requests, so by both ways.
    let slow = endpoint.url(2 * LATENCY_MS)?;
    let arguments = [endpoint.url(0)?.to_owned(), slow.to_owned(), LATENCY_MS.to_string()];
    let measured: Stores = processes::run_with("stores", &arguments, &["REDIS_URL", "POSTGRES_URL"]).await?;
    for table in ["library", "by_hand"] {
        endpoint.delete_table(table).await?;
    }
    Ok(Section {
        title: "Stores",
        text: include_str!("stores.md"),
        tables: vec![cpu(&measured), walls(&measured)],
        targets: targets(&measured),
        charts: Vec::new(),
    })
}

fn row_name(row: &Row) -> [String; 3] {
    let scenario = if row.duplicates { "duplicate" } else { "new" };
    [row.store.name().to_owned(), scenario.to_owned(), group(row.size as f64)]
}

fn cpu(measured: &Stores) -> Table {
    let mut table =
        Table::new("CPU time per record, µs", ["store", "records", "a batch", "library", "by hand", "more"]);
    for row in &measured.rows {
        let figures = [row.library_us, row.by_hand_us, row.library_us - row.by_hand_us].map(figure);
        table.row(row_name(row).into_iter().chain(figures));
    }
    table
}

fn walls(measured: &Stores) -> Table {
    let title = format!("Time per batch with {} ms latency each way, ms", measured.latency_ms);
    let mut table = Table::new(title, ["store", "records", "a batch", "library", "by hand", "÷"]);
    for row in &measured.rows {
        if let Some([library, by_hand]) = row.walls_ms {
            table.row(row_name(row).into_iter().chain([library, by_hand, library / by_hand].map(figure)));
        }
    }
    table
}

fn targets(measured: &Stores) -> Vec<Target> {
    let added = |store, size, duplicates| {
        let is_it = |row: &&Row| (row.store, row.size, row.duplicates) == (store, size, duplicates);
        measured.rows.iter().find(is_it).map(|row| row.library_us - row.by_hand_us)
    };
    let mut targets = Vec::new();
    for store in [Backend::Redis, Backend::Postgres] {
        for size in [1, 10, 100] {
            let ratio = added(store, size, false).zip(added(Backend::DynamoDbStub, size, false)).map(|(a, b)| a / b);
            let what = format!("CPU added above the code by hand, {size} new: {} ÷ DynamoDB", store.name());
            targets.push(Target::new(what, ratio, LIMIT, ""));
        }
    }
    targets
}
