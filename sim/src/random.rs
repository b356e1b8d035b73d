//! The pseudo-random numbers that decide everything in a history.

use std::time::Duration;

use crate::history::Ms;

/// A generator with the draws that the simulation needs.
#[derive(Clone, Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Returns true this often, in thousandths.
    pub(crate) fn chance(&mut self, thousandths: u32) -> bool {
        thousandths > 0 && self.0.u32(0..1_000) < thousandths
    }

    /// Returns a number from `least` to `most`, or `least` if that is greater.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0.u64(least..=most.max(least))
    }

    /// Returns an index below `count`.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        self.0.usize(0..count.max(1))
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    pub(crate) fn pause(&mut self, least: Ms, most: Ms) -> Duration {
        Duration::from_millis(self.between(least, most))
    }
}
