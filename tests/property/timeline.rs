//! One order and one clock for all recorded events.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use lambda_once::clock::{Clock, Timestamp};

use crate::clock::TokioClock;

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A time, and a number that orders events at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) tick: u64,
    pub(crate) at: Timestamp,
}

/// Numbers moments. Clones share the numbers and the clock.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pub(crate) clock: TokioClock,
    ticks: Arc<AtomicU64>,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self { clock: TokioClock::new(), ticks: Arc::default() }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment { tick: self.ticks.fetch_add(1, Ordering::Relaxed), at: self.clock.now() }
    }
}

/// Lets time pass in the middle of a poll, as if the thread were blocked. Every clock advances, and timers that are due
/// fire when the thread is free again.
pub(crate) fn block_thread(time: Duration) {
    // Its first poll advances the paused clock. Further polls would only yield.
    let _ = pin!(tokio::time::advance(time)).poll(&mut Context::from_waker(Waker::noop()));
}

tokio::task_local! {
    /// The number of the current invocation.
    pub(crate) static INVOCATION: usize;
}

pub(crate) fn invocation() -> usize {
    INVOCATION.get()
}
