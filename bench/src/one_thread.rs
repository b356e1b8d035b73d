//! The results of the measurements on one thread, with a store that responds in the process. They are passed between
//! processes as JSON.

use serde::{Deserialize, Serialize};

/// CPU and wall times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OneThread {
    /// CPU times if each request gets an immediate response.
    pub cpu: Vec<Cpu>,
    /// Wall times if each request takes [`latency_ms`](Self::latency_ms).
    pub walls: Vec<Wall>,
    /// The latency for the wall times.
    pub latency_ms: u64,
    /// The maximum number of records that were claimed and not begun while handlers took [`slow_ms`](Self::slow_ms).
    pub most_ahead: usize,
    /// The run time of those handlers.
    pub slow_ms: u64,
}

/// CPU times of a batch of one size, in microseconds for each record.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Cpu {
    /// The number of records in a batch.
    pub size: usize,
    /// The library, calls of up to 25 statements.
    pub library: f64,
    /// Hand-written: one chunk of 25 after another.
    pub by_hand: f64,
}

/// Wall times of a batch of one size, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Wall {
    /// The number of records in the batch.
    pub size: usize,
    /// The library.
    pub library: f64,
    /// The library, with an expected duration of one millisecond per handler.
    pub library_told: f64,
    /// Hand-written: four chunks of 25 at a time.
    pub by_hand: f64,
}
