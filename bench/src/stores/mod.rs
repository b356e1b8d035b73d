//! The stores, compared with the same protection hand-written on their clients.

pub mod by_hand;
pub mod delay;

use serde::{Deserialize, Serialize};

/// The results of the measurements of the stores, which are passed between processes as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stores {
    /// One row per store, scenario and size.
    pub rows: Vec<Row>,
    /// The latency of [`Row::walls_ms`], in milliseconds each way.
    pub latency_ms: u64,
}

/// A store, the state of a batch's records in it, and their number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The store.
    pub store: Backend,
    /// Whether the records are completed.
    pub duplicates: bool,
    /// The number of records in a batch.
    pub size: usize,
    /// CPU time for a record, in microseconds, without latency.
    pub library_us: f64,
    /// The same, hand-written.
    pub by_hand_us: f64,
    /// The times for a batch with latency, in milliseconds: the library's, and the hand-written code's.
    pub walls_ms: Option<[f64; 2]>,
}

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// DynamoDB, by an emulator in another process.
    DynamoDb,
    /// DynamoDB with responses from the process itself, so that only the client and the code are measured.
    DynamoDbStub,
    /// Valkey.
    Redis,
    /// PostgreSQL.
    Postgres,
}

impl Backend {
    /// Returns its name in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DynamoDb => "DynamoDB",
            Self::DynamoDbStub => "DynamoDB, in the process",
            Self::Redis => "Valkey",
            Self::Postgres => "PostgreSQL",
        }
    }
}
