//! A clock that follows tokio's, so that a test whose time is paused has one time for everything.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a module of its own")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lambda_once::clock::{Clock, Timestamp};
use tokio::time::Instant;

/// A time far from now, so that DynamoDB Local's own TTL never meets the records of a test.
pub const FUTURE: Timestamp = Timestamp::from_seconds(4_000_000_000);

/// Shows a time far from now when it is made, and moves with tokio's clock. Clones show the same time.
#[derive(Clone, Debug)]
pub struct TokioClock {
    start: Instant,
    jumped: Arc<AtomicU64>,
}

impl TokioClock {
    pub fn new() -> Self {
        Self { start: Instant::now(), jumped: Arc::default() }
    }

    /// Lets time pass that no timer notices: the process was frozen, or a handler blocked its thread.
    pub fn jump(&self, time: Duration) {
        self.jumped.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let jumped = Duration::from_millis(self.jumped.load(Ordering::SeqCst));
        FUTURE.after(self.start.elapsed() + jumped)
    }
}
