//! A clock that follows tokio's, so that paused time applies to everything in a test.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use lambda_once::clock::{Clock, SystemClock, Timestamp};
use tokio::time::Instant;

/// A time far in the future, so that DynamoDB Local's TTL never deletes the records of a test.
pub const FUTURE: Timestamp = Timestamp::from_seconds(4_000_000_000);

/// Advances tokio's paused time within one poll, like a handler that computes or makes a blocking call. Timers that end
/// meanwhile fire afterwards.
pub fn block(time: Duration) {
    // Its first poll advances the clock. The turn that it then gives to other tasks is not taken.
    let _ = pin!(tokio::time::advance(time)).poll(&mut Context::from_waker(Waker::noop()));
}

/// A clock that starts at a time far in the future, and advances with tokio's clock. Clones share the same time.
#[derive(Clone, Debug)]
pub struct TokioClock {
    start: Instant,
    at_start: Timestamp,
    jumped: Arc<AtomicU64>,
}

impl TokioClock {
    pub fn new() -> Self {
        Self::at(FUTURE)
    }

    /// Creates a clock that shows this time now.
    pub fn at(at_start: Timestamp) -> Self {
        Self { start: Instant::now(), at_start, jumped: Arc::default() }
    }

    /// Advances the time without effect on timers, as if the process were frozen or a handler blocked its thread.
    pub fn jump(&self, time: Duration) {
        self.jumped.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let jumped = Duration::from_millis(self.jumped.load(Ordering::SeqCst));
        self.at_start.after(self.start.elapsed() + jumped)
    }
}

/// The system's time, but ahead of it or behind it.
#[derive(Clone, Copy, Debug)]
pub enum WrongClock {
    Ahead(Duration),
    Behind(Duration),
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        let now = SystemClock.now();
        match *self {
            Self::Ahead(by) => now.after(by),
            Self::Behind(by) => now.before(by),
        }
    }
}
