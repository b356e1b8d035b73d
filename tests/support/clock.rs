//! A clock that follows tokio's, so that a test whose time is paused has one time for everything.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a module of its own")]

use lambda_once::clock::{Clock, Timestamp};
use tokio::time::Instant;

/// Shows `base` when it is made, and moves with tokio's clock.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    base: Timestamp,
    start: Instant,
}

impl TokioClock {
    pub fn at(base: Timestamp) -> Self {
        Self { base, start: Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.base.after(self.start.elapsed())
    }
}
