//! The rate of changes, and the interrupt (Ctrl-C) that ends them between two batches.

use std::{pin::Pin, time::Duration};

use tokio::{
    signal::ctrl_c,
    time::{Instant, sleep_until},
};

/// Paces batches of changes.
pub(crate) struct Pace {
    rate: u32,
    next: Instant,
    interrupt: Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>,
    is_interrupted: bool,
}

impl Pace {
    /// Allows so many changes a second.
    pub(crate) fn new(rate: u32) -> Self {
        Self { rate, next: Instant::now(), interrupt: Box::pin(ctrl_c()), is_interrupted: false }
    }

    /// Returns the size of a batch, of at most `limit`, that keeps the rate.
    pub(crate) fn batch(&self, limit: usize) -> usize {
        limit.clamp(1, usize::try_from(self.rate).unwrap_or(usize::MAX))
    }

    /// Waits until the next batch may begin. Returns `false` after an interrupt.
    pub(crate) async fn wait(&mut self) -> bool {
        if self.is_interrupted {
            return false;
        }
        tokio::select! {
            biased;
            _ = &mut self.interrupt => self.is_interrupted = true,
            () = sleep_until(self.next) => {}
        }
        !self.is_interrupted
    }

    /// Counts the changes of a batch that begins now.
    pub(crate) fn spend(&mut self, changes: usize) {
        self.next = Instant::now() + Duration::from_secs_f64(changes as f64 / f64::from(self.rate));
    }
}
