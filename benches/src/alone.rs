//! What the measurements without a store give. They travel between processes as JSON.

use serde::{Deserialize, Serialize};

/// CPU times, in microseconds for each record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// The length of a record's body, in bytes.
    pub body_bytes: usize,
    /// SHA-256 of the body.
    pub sha256_us: f64,
    /// Decoding the body into the handler's type.
    pub decode_us: f64,
    /// Key, fingerprint and claim: what the library does until it knows that a record must not run.
    pub claim_us: f64,
    /// The whole way of new records through the service, for batches of these sizes, with a store in memory.
    pub in_memory_us: Vec<(usize, f64)>,
    /// The same with a store that grants at once and keeps nothing.
    pub granted_us: Vec<(usize, f64)>,
}

/// Memory on the heap.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Heap {
    /// Allocations for each record on its whole way through the service.
    pub allocations: f64,
    /// Of these: by decoding the body and encoding the result.
    pub allocations_of_serde: f64,
    /// Records in the batch whose memory was measured.
    pub size: usize,
    /// The event's JSON, in bytes.
    pub json_bytes: u64,
    /// The decoded event, in bytes.
    pub event_bytes: u64,
    /// The most that was held while the service had the event, the event included, in bytes.
    pub peak_bytes: u64,
}
