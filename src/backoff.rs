//! Pauses between attempts.

use std::time::Duration;

/// Pauses that double up to a maximum. Each is reduced to a random part of itself, so that many callers do not return
/// at the same moment.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    ceiling: Duration,
    max: Duration,
}

impl Default for Backoff {
    /// The pauses between calls to a store, of at most 50 ms at first and at most 2 s later.
    fn default() -> Self {
        Self::new(Duration::from_millis(50), Duration::from_secs(2))
    }
}

impl Backoff {
    /// Creates a backoff that starts with a pause of at most `first`. No pause is longer than `max`.
    pub(crate) const fn new(first: Duration, max: Duration) -> Self {
        Self { ceiling: first, max }
    }

    /// Skips this many pauses.
    #[cfg(feature = "sqs-client")]
    pub(crate) fn after(self, retries: u32) -> Self {
        Self { ceiling: self.ceiling.saturating_mul(2_u32.saturating_pow(retries)), ..self }
    }

    /// Returns the next pause.
    pub(crate) fn next(&mut self) -> Duration {
        self.next_ceiling().mul_f64(fastrand::f64())
    }

    /// Returns the next pause before polling a state that others may change. It is at least half of its maximum,
    /// because an early poll is a wasted call.
    pub(crate) fn next_poll(&mut self) -> Duration {
        self.next_ceiling().mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    fn next_ceiling(&mut self) -> Duration {
        let ceiling = self.ceiling.min(self.max);
        self.ceiling = ceiling.saturating_mul(2);
        ceiling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_ceiling() {
        let mut backoff = Backoff::default();
        assert!(backoff.next() <= Duration::from_millis(50));
        for _ in 0..100 {
            assert!(backoff.next() <= Duration::from_secs(2));
        }
        for _ in 0..100 {
            assert!((Duration::from_secs(1)..=Duration::from_secs(2)).contains(&backoff.next_poll()));
        }
    }

    #[test]
    fn a_maximum_below_the_first_pause_bounds_that_too() {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(1));
        assert!((0..100).all(|_| backoff.next_poll() <= Duration::from_secs(1)));
    }

    #[cfg(feature = "sqs-client")]
    #[test]
    fn pauses_that_are_skipped_count() {
        for (retries, most) in [(0, 1), (1, 2), (3, 8), (4, 10), (u32::MAX, 10)] {
            let pause = Backoff::new(Duration::from_secs(1), Duration::from_secs(10)).after(retries).next_poll();
            let most = Duration::from_secs(most);
            assert!((most / 2..=most).contains(&pause), "{retries}: {pause:?}");
        }
    }
}
