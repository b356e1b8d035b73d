//! The stores beside the same protection written by hand on their clients.

pub mod by_hand;
pub mod delay;

use serde::{Deserialize, Serialize};

/// What the measurements of the stores give. They travel between processes as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stores {
    /// One row for each store, scenario and size.
    pub rows: Vec<Row>,
    /// The latency of [`Row::walls_ms`], in milliseconds each way.
    pub latency_ms: u64,
}

/// A store, what the records of a batch are to it, and how many there are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The store.
    pub store: Backend,
    /// Whether the records are done.
    pub duplicates: bool,
    /// How many records a batch has.
    pub size: usize,
    /// CPU time for a record, in microseconds, without latency.
    pub library_us: f64,
    /// The same, by hand.
    pub by_hand_us: f64,
    /// The times for a batch with latency, in milliseconds: the library's, and by hand.
    pub walls_ms: Option<[f64; 2]>,
}

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// DynamoDB, an emulator in another process.
    DynamoDb,
    /// DynamoDB whose requests are answered in the process, so that nothing but the client and the code is measured.
    DynamoDbStub,
    /// Valkey.
    Redis,
    /// PostgreSQL.
    Postgres,
}

impl Backend {
    /// What it is called in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DynamoDb => "DynamoDB",
            Self::DynamoDbStub => "DynamoDB, in the process",
            Self::Redis => "Valkey",
            Self::Postgres => "PostgreSQL",
        }
    }
}
