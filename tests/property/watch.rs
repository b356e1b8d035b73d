//! When things happen, in one order for all that watch.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lambda_once::clock::{Clock, Timestamp};

use crate::clock::TokioClock;

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Of two things at the same time one still was first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    pub(crate) tick: u64,
    pub(crate) at: Timestamp,
}

/// Clones share their order and their clock.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) clock: TokioClock,
    ticks: Arc<AtomicU64>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { clock: TokioClock::new(), ticks: Arc::default() }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment { tick: self.ticks.fetch_add(1, Ordering::Relaxed), at: self.clock.now() }
    }
}

tokio::task_local! {
    /// In which invocation this is.
    pub(crate) static INVOCATION: usize;
}

pub(crate) fn invocation() -> usize {
    INVOCATION.get()
}
