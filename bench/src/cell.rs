//! One measurement of batches: what is measured, and what it gave. Both travel between processes as JSON.

use serde::{Deserialize, Serialize};

/// The code that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// The library, one call for each claim and each completion.
    Single,
    /// The library, calls of up to 25 statements.
    Batched,
    /// The library, batched, behind its local cache, which has seen the records being done.
    Cached,
    /// By hand: one record after the other.
    RawSequential,
    /// By hand: ten records at once.
    RawConcurrent,
    /// By hand: calls of up to 25 PartiQL statements.
    RawPartiql,
}

impl Column {
    /// All of them, as the tables have them.
    pub const ALL: [Self; 6] =
        [Self::Single, Self::Batched, Self::Cached, Self::RawSequential, Self::RawConcurrent, Self::RawPartiql];

    /// What it is called in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "library, single",
            Self::Batched => "library, batched",
            Self::Cached => "library, cached",
            Self::RawSequential => "SDK, sequential",
            Self::RawConcurrent => "SDK, 10 at once",
            Self::RawPartiql => "SDK, PartiQL",
        }
    }

    /// Whether it is the library, and not written by hand.
    pub const fn is_library(self) -> bool {
        matches!(self, Self::Single | Self::Batched | Self::Cached)
    }
}

/// What the records of a batch are to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// None was seen before.
    New,
    /// All are done: their records are COMPLETED.
    Duplicate,
    /// A third each: new, done, and left by a claim that has lapsed.
    Mixed,
}

impl Scenario {
    /// All of them, as the tables have them.
    pub const ALL: [Self; 3] = [Self::New, Self::Duplicate, Self::Mixed];

    /// What it is called in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Duplicate => "duplicate",
            Self::Mixed => "mixed",
        }
    }
}

/// One measurement of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The code.
    pub column: Column,
    /// The records.
    pub scenario: Scenario,
    /// How many records a batch has.
    pub size: usize,
    /// How long the endpoint waits before it handles a request.
    pub latency_ms: u64,
}

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// What to measure.
    pub cell: Cell,
    /// The endpoint with the cell's latency.
    pub endpoint: String,
    /// The endpoint without latency, for what is not measured.
    pub fast_endpoint: String,
    /// An empty table.
    pub table: String,
}

/// What a worker measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// How many batches were measured.
    pub batches: u32,
    /// CPU time of the process in them, user and system, in microseconds for each record.
    pub cpu_us: f64,
    /// Time that a batch took, in milliseconds.
    pub wall_ms: f64,
    /// Requests to the store, for each record.
    pub requests: f64,
    /// The most memory that the process held while they ran, in MiB; `None` where the system does not tell.
    pub peak_mib: Option<f64>,
}
