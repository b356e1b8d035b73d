//! The cells to measure, and their number of rounds.

use benches::cell::{Cell, Column, Scenario};

/// The numbers of records in a batch. SQS delivers up to 10,000.
pub(crate) const SIZES: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// The times that the endpoint waits before it handles a request.
pub(crate) const LATENCIES_MS: [u64; 2] = [0, 5];

/// Returns the number of rounds in which a cell is measured, or 0 for never.
///
/// A full run takes a few minutes: slow cells are measured less often, and very slow ones not at all.
const fn rounds(cell: Cell) -> usize {
    let Cell { column, scenario, size, latency_ms } = cell;
    match column {
        // New records are in no cache.
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

/// Returns the cells of a round, with those to compare next to each other. A quick run has one round, without the
/// largest size.
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
