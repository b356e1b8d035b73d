//! The cells to measure, and how often.

use benches::cell::{Cell, Column, Scenario};

/// Records in a batch. SQS delivers up to 10,000.
pub(crate) const SIZES: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// What the endpoint waits before it handles a request.
pub(crate) const LATENCIES_MS: [u64; 2] = [0, 5];

/// How often a cell is measured; 0 for never.
///
/// The whole takes a few minutes: what takes long is measured less often, and what takes very long not at all.
const fn rounds(cell: Cell) -> usize {
    let Cell { column, scenario, size, latency_ms } = cell;
    match column {
        // What is new is in no cache.
        Column::Cached if !matches!(scenario, Scenario::Duplicate) => return 0,
        Column::RawSequential if size * latency_ms as usize > 500 => return 0,
        Column::RawSequential if size > 1_000 && !matches!(scenario, Scenario::New) => return 0,
        Column::RawSequential if size > 1_000 => return 1,
        _ => {}
    }
    match (scenario, latency_ms, size) {
        (Scenario::New, 0, ..=1_000) => 5,
        (Scenario::New, 0, _) => 2,
        (Scenario::New, _, ..=100) => 3,
        (Scenario::New, _, 1_000) => 2,
        (Scenario::New, ..) => 1,
        (_, 0, ..=100) => 3,
        (_, 0, _) | (_, _, ..=1_000) => 1,
        _ => 0,
    }
}

/// The cells of a round, those that are compared next to each other. A quick run has one round, without the largest size.
pub(crate) fn round(number: usize, quick: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    if quick && number > 0 {
        return cells;
    }
    for scenario in Scenario::ALL {
        for latency_ms in LATENCIES_MS {
            for size in SIZES.into_iter().filter(|size| !quick || *size <= 1_000) {
                let row = Column::ALL.map(|column| Cell { column, scenario, size, latency_ms });
                let mut row: Vec<Cell> = row.into_iter().filter(|cell| number < rounds(*cell)).collect();
                // No column always comes first.
                let first = number % row.len().max(1);
                row.rotate_left(first);
                cells.extend(row);
            }
        }
    }
    cells
}
