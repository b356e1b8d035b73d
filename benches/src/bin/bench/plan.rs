//! Which cells are measured, and how often.

use benches::cell::{Cell, Column, Scenario};

/// Records in a batch. SQS delivers up to 10,000.
pub(crate) const SIZES: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// What the endpoint waits before it handles a request.
pub(crate) const LATENCIES_MS: [u64; 2] = [0, 5];

/// How often a cell is measured; 0 for never.
///
/// The whole takes a few minutes: what takes long is measured less often, and what takes very long not at all.
pub(crate) const fn rounds(cell: Cell, quick: bool) -> usize {
    if !matches!(
        (cell.column, cell.scenario),
        (Column::Cached, Scenario::Duplicate)
            | (
                Column::Single | Column::Batched | Column::RawSequential | Column::RawConcurrent | Column::RawPartiql,
                _
            )
    ) {
        return 0;
    }
    let one_by_one = matches!(cell.column, Column::RawSequential);
    let rounds = match (cell.latency_ms, cell.scenario, cell.size) {
        (0, Scenario::New, ..=1_000) => 5,
        (0, Scenario::New, _) => 3,
        (0, _, ..=1_000) => 3,
        (0, ..) => 1,
        (_, _, 10_000..) if one_by_one => 0,
        (_, Scenario::New, ..=100) => 3,
        (_, Scenario::New, 1_000) if one_by_one => 1,
        (_, Scenario::New, 1_000) => 3,
        (_, Scenario::New, _) => 1,
        (_, _, 1_000) if one_by_one => 0,
        (_, _, ..=1_000) => 1,
        _ => 0,
    };
    if quick && rounds > 0 { if cell.size > 1_000 { 0 } else { 1 } } else { rounds }
}

/// The cells of a round, those that are compared next to each other.
pub(crate) fn round(number: usize, quick: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for scenario in Scenario::ALL {
        for latency_ms in LATENCIES_MS {
            for size in SIZES {
                let row = Column::ALL.map(|column| Cell { column, scenario, size, latency_ms });
                let mut row: Vec<Cell> = row.into_iter().filter(|cell| number < rounds(*cell, quick)).collect();
                // No column always comes first.
                let first = number % row.len().max(1);
                row.rotate_left(first);
                cells.extend(row);
            }
        }
    }
    cells
}
