//! A clock that follows tokio's, so that paused time is deterministic.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lambda_once::clock::{Clock, Timestamp};
use tokio::time::Instant;

/// Shows a time far from now that goes on with tokio's, in tests with paused time only when all tasks wait.
///
/// Clones show the same time.
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
        super::FUTURE.after(self.start.elapsed() + jumped)
    }
}
