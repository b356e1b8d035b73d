//! The results of the measurements without a store, which are passed between processes as JSON.

use serde::{Deserialize, Serialize};

/// CPU times, in microseconds for each record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// The length of a record's body, in bytes.
    pub body_bytes: usize,
    /// Scheduling alone, for batches of these sizes.
    pub scheduling_us: Vec<(usize, f64)>,
    /// Decoding the body into the handler's type.
    pub decode_us: f64,
    /// Its canonical form.
    pub canonical_us: f64,
    /// SHA-256 of the canonical body, and of a key.
    pub hashes_us: f64,
    /// Key, fingerprint and claim: the library's work until a record turns out to be a duplicate.
    pub claim_us: f64,
    /// New records through the whole service, for batches of these sizes, with a store in memory.
    pub in_memory_us: Vec<(usize, f64)>,
    /// The same with a store that grants immediately and keeps nothing.
    pub granted_us: Vec<(usize, f64)>,
}

/// Memory on the heap.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Heap {
    /// Allocations for each record that is only scheduled.
    pub allocations_of_scheduling: f64,
    /// Allocations for each record through the whole service.
    pub allocations: f64,
    /// The part of them that decoding the body and encoding the result takes.
    pub allocations_of_serde: f64,
    /// Records in that batch.
    pub size: usize,
    /// The memory of that batch.
    pub memory: Memory,
    /// The same for Lambda's 6 MB in bodies of 1 MB.
    pub memory_of_large: Memory,
}

/// The memory of a batch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// The event's JSON, in bytes.
    pub json_bytes: u64,
    /// The decoded event, in bytes.
    pub event_bytes: u64,
    /// The maximum that was held while the service had the event, including the event, in bytes.
    pub peak_bytes: u64,
}

impl Memory {
    /// Returns the maximum that was held as a multiple of the allowed memory: the decoded event and one copy of its
    /// JSON.
    pub fn share(&self) -> f64 {
        self.peak_bytes as f64 / (self.event_bytes + self.json_bytes) as f64
    }
}
