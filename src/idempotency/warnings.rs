//! Warnings that an engine logs only once.

use std::sync::atomic::{AtomicBool, Ordering};

/// The warnings that were given. All clones of an engine share it.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    pub(crate) clocks: Once,
    pub(crate) deadline: Once,
}

#[derive(Debug, Default)]
pub(crate) struct Once(AtomicBool);

impl Once {
    /// Returns whether this is the first time.
    pub(crate) fn is_first(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }
}
