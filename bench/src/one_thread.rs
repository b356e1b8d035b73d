//! What the measurements on one thread give, with a store that is answered in the process. They travel between processes
//! as JSON.

use serde::{Deserialize, Serialize};

/// CPU times and walls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OneThread {
    /// CPU times where each request is answered at once.
    pub cpu: Vec<Cpu>,
    /// Times where each request takes [`latency_ms`](Self::latency_ms).
    pub walls: Vec<Wall>,
    /// The latency of the walls.
    pub latency_ms: u64,
    /// How many records were claimed and not begun, at most, while handlers took [`slow_ms`](Self::slow_ms).
    pub most_ahead: usize,
    /// How long those handlers took.
    pub slow_ms: u64,
}

/// CPU times of a batch of one size, in microseconds for each record.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Cpu {
    /// How many records a batch has.
    pub size: usize,
    /// The library, calls of up to 25 statements.
    pub library: f64,
    /// By hand: one chunk of 25 after the other.
    pub by_hand: f64,
}

/// How long a batch of one size takes, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Wall {
    /// How many records the batch has.
    pub size: usize,
    /// The library.
    pub library: f64,
    /// The library, which was told that handlers take a millisecond.
    pub library_told: f64,
    /// By hand: four chunks of 25 at once.
    pub by_hand: f64,
}
