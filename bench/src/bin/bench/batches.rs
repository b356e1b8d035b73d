//! Part 1: batches through the library and through hand-written code, with a store.

use anyhow::Result;
use benches::cell::{Cell, Column, Sample, Scenario, Task};

use crate::{
    chart::{Chart, Line},
    page::Section,
    plan::{self, SIZES},
    processes::{self, Endpoint},
    table::{Table, figure_or_nothing, group, median},
    targets::Target,
};

/// All samples.
struct Samples(Vec<(Cell, Sample)>);

impl Samples {
    fn median(&self, cell: Cell, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        median(self.0.iter().filter(|(of, _)| *of == cell).filter_map(|(_, sample)| value(sample)))
    }

    fn cpu(&self, cell: Cell) -> Option<f64> {
        self.median(cell, |sample| Some(sample.cpu_us))
    }

    fn wall(&self, cell: Cell) -> Option<f64> {
        self.median(cell, |sample| Some(sample.wall_ms))
    }

    fn requests(&self, cell: Cell) -> Option<f64> {
        self.median(cell, |sample| Some(sample.requests))
    }

    fn peak(&self, cell: Cell) -> Option<f64> {
        self.median(cell, |sample| sample.peak_mib)
    }
}

pub(crate) async fn measure(endpoint: &Endpoint, quick: bool) -> Result<Section> {
    let mut samples = Vec::new();
    for number in 0.. {
        let cells = plan::round(number, quick);
        if cells.is_empty() {
            break;
        }
        eprintln!("-- batches, round {}: {} cells", number + 1, cells.len());
        for cell in cells {
            samples.push((cell, sample(endpoint, cell).await?));
        }
    }
    let samples = Samples(samples);
    Ok(Section {
        title: "Batches",
        text: include_str!("batches.md"),
        tables: tables(&samples),
        targets: targets(&samples),
        charts: vec![cpu_chart(&samples), requests_chart(&samples)],
    })
}

async fn sample(endpoint: &Endpoint, cell: Cell) -> Result<Sample> {
    const TABLE: &str = "records";
    endpoint.create_table(TABLE, "id").await?;
    let task = Task {
        cell,
        endpoint: endpoint.url(cell.latency_ms)?.to_owned(),
        fast_endpoint: endpoint.url(0)?.to_owned(),
        table: TABLE.to_owned(),
    };
    let sample = processes::run("worker", &[serde_json::to_string(&task)?]).await?;
    endpoint.delete_table(TABLE).await?;
    Ok(sample)
}

fn ratio(numerator: Option<f64>, denominator: Option<f64>) -> Option<f64> {
    Some(numerator? / denominator?)
}

fn tables(samples: &Samples) -> Vec<Table> {
    let skipped = "–: takes too long, or is no use of the column.";
    let cpu = |latency_ms| move |column, scenario, size| samples.cpu(Cell { column, scenario, size, latency_ms });
    let wall = |latency_ms| move |column, scenario, size| samples.wall(Cell { column, scenario, size, latency_ms });
    vec![
        table("Client CPU time per record, µs", true, cpu(0)),
        table("Client CPU time per record with 5 ms latency, µs", true, cpu(5)).note(skipped),
        table("Time per batch with 5 ms latency, ms", true, wall(5)).note(skipped),
        table("Time per batch without latency, ms", true, wall(0)),
        table("Requests per record", false, |column, scenario, size| {
            samples.requests(Cell { column, scenario, size, latency_ms: 0 })
        }),
        table("Peak memory of the process (resident), MiB", false, |column, scenario, size| {
            samples.peak(Cell { column, scenario, size, latency_ms: 0 })
        }),
    ]
}

fn table(title: &str, ratios: bool, value: impl Fn(Column, Scenario, usize) -> Option<f64>) -> Table {
    let mut header = vec!["records"];
    header.extend(Column::ALL.map(Column::name));
    if ratios {
        header.extend(["batched ÷ PartiQL", "batched ÷ 10 at once"]);
    }
    let mut table = Table::new(title, header);
    for scenario in Scenario::ALL {
        for size in SIZES {
            let value = |column| value(column, scenario, size);
            let mut figures = Column::ALL.map(value).to_vec();
            if ratios {
                let batched = value(Column::Batched);
                figures.push(ratio(batched, value(Column::RawPartiql)));
                figures.push(ratio(batched, value(Column::RawConcurrent)));
            }
            if figures.iter().all(Option::is_none) {
                continue;
            }
            let head = format!("{} {}", group(size as f64), scenario.name());
            table.row([head].into_iter().chain(figures.into_iter().map(figure_or_nothing)));
        }
    }
    table
}

fn targets(samples: &Samples) -> Vec<Target> {
    let cell = |column, size, latency_ms| Cell { column, scenario: Scenario::New, size, latency_ms };
    let cpu = |column, size| samples.cpu(cell(column, size, 0));
    let wall = |column, size| samples.wall(cell(column, size, 5));
    let mut targets = vec![Target::new(
        "CPU, 1 new record: library, single ÷ SDK, sequential",
        ratio(cpu(Column::Single, 1), cpu(Column::RawSequential, 1)),
        1.15,
        "",
    )];
    for size in [10, 100, 1_000] {
        let batched = cpu(Column::Batched, size);
        targets.push(Target::new(
            format!("CPU, {size} new records: library, batched ÷ SDK, PartiQL"),
            ratio(batched, cpu(Column::RawPartiql, size)),
            1.25,
            "",
        ));
        targets.push(Target::new(
            format!("CPU, {size} new records: library, batched ÷ SDK, 10 at once"),
            ratio(batched, cpu(Column::RawConcurrent, size)),
            0.25,
            "",
        ));
    }
    for size in SIZES {
        targets.push(Target::new(
            format!("time at 5 ms, {size} new: library, batched ÷ SDK, PartiQL"),
            ratio(wall(Column::Batched, size), wall(Column::RawPartiql, size)),
            1.15,
            "",
        ));
    }
    targets
}

fn cpu_chart(samples: &Samples) -> Chart {
    chart("Client CPU time per new record, µs", |cell| samples.cpu(cell))
}

fn requests_chart(samples: &Samples) -> Chart {
    chart("Requests to DynamoDB per new record", |cell| samples.requests(cell))
}

fn chart(title: &str, value: impl Fn(Cell) -> Option<f64>) -> Chart {
    let line = |column: Column| {
        let point = |size: usize| {
            let value = value(Cell { column, scenario: Scenario::New, size, latency_ms: 0 })?;
            Some((size as f64, value))
        };
        Line { name: column.name(), ours: column.is_library(), points: SIZES.into_iter().filter_map(point).collect() }
    };
    let lines = Column::ALL.map(line).into_iter().filter(|line| !line.points.is_empty()).collect();
    Chart { title: title.to_owned(), x_label: "records in a batch".to_owned(), lines }
}
