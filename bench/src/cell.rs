//! One measurement of batches, and its result. Both are passed between processes as JSON.

use serde::{Deserialize, Serialize};

/// The measured code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// The library, one call for each claim and each completion.
    Single,
    /// The library, calls of up to 25 statements.
    Batched,
    /// The library, batched, behind its local cache, which has stored the records' outcomes.
    Cached,
    /// Hand-written: one record after another.
    RawSequential,
    /// Hand-written: ten records at a time.
    RawConcurrent,
    /// Hand-written: calls of up to 25 PartiQL statements.
    RawPartiql,
}

impl Column {
    /// All columns, in the order of the tables.
    pub const ALL: [Self; 6] =
        [Self::Single, Self::Batched, Self::Cached, Self::RawSequential, Self::RawConcurrent, Self::RawPartiql];

    /// Returns its name in the tables.
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

    /// Returns whether it is the library, and not hand-written.
    pub const fn is_library(self) -> bool {
        matches!(self, Self::Single | Self::Batched | Self::Cached)
    }
}

/// The state of a batch's records in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// No record was seen before.
    New,
    /// All records are COMPLETED.
    Duplicate,
    /// A third each: new, completed, and left by a lapsed claim.
    Mixed,
}

impl Scenario {
    /// All scenarios, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::New, Self::Duplicate, Self::Mixed];

    /// Returns its name in the tables.
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
    /// The number of records in a batch.
    pub size: usize,
    /// The time that the endpoint waits before it handles a request.
    pub latency_ms: u64,
}

/// The input of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The cell to measure.
    pub cell: Cell,
    /// The endpoint with the cell's latency.
    pub endpoint: String,
    /// The endpoint without latency, for unmeasured requests.
    pub fast_endpoint: String,
    /// An empty table.
    pub table: String,
}

/// The output of a worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The number of measured batches.
    pub batches: u32,
    /// CPU time of the process in them, user and system, in microseconds for each record.
    pub cpu_us: f64,
    /// Time for a batch, in milliseconds.
    pub wall_ms: f64,
    /// Requests to the store, for each record.
    pub requests: f64,
    /// The peak memory of the process while they ran, in MiB. `None` if the system does not report it.
    pub peak_mib: Option<f64>,
}
