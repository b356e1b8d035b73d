//! The time an invocation has: when its lease ends, and when its work must stop.

use std::time::Duration;

use super::settings::Settings;
use crate::clock::{Deadline, Timestamp};

/// How long after its deadline an invocation's lease ends: Lambda ends a sandbox a little late.
const AFTER_DEADLINE: Duration = Duration::from_secs(1);

const RESERVE_AT_LEAST: Duration = Duration::from_millis(500);
const RESERVE_AT_MOST: Duration = Duration::from_secs(2);

/// The time that one invocation has. Computed once when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// When the claims of the invocation end.
    pub(crate) lease_until: Timestamp,
    /// When handlers are cut off, and after which nothing is started.
    pub(crate) stop: Timestamp,
    /// When settling ends. It lies within the reserve: a handler that returns just before the stop point is done, and
    /// to leave that unrecorded for want of time would have it run again.
    pub(crate) settle_by: Timestamp,
}

impl Window {
    pub(crate) fn new(now: Timestamp, deadline: Deadline, settings: &Settings) -> Self {
        let (ends, lease_until) = match deadline.ahead_of(now) {
            Some(deadline) => (deadline, deadline.after(AFTER_DEADLINE)),
            None => (now.after(settings.lease), now.after(settings.lease)),
        };
        let reserve = settings.reserve.unwrap_or_else(|| default_reserve(ends.since(now)));
        Self { lease_until, stop: ends.before(reserve), settle_by: ends.before(reserve / 2) }
    }
}

/// A twentieth of the time left, at least half a second, at most two seconds.
fn default_reserve(left: Duration) -> Duration {
    (left / 20).clamp(RESERVE_AT_LEAST, RESERVE_AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

    fn window(deadline: Deadline) -> Window {
        Window::new(NOW, deadline, &Settings::default())
    }

    #[test]
    fn in_lambda_the_lease_ends_a_second_after_the_deadline() {
        let deadline = NOW.after(Duration::from_secs(20));
        let window = window(Deadline::at(deadline));
        assert_eq!(window.lease_until, deadline.after(Duration::from_secs(1)));
        assert_eq!(window.stop, deadline.before(Duration::from_secs(1)));
        assert!(window.stop < window.settle_by && window.settle_by < deadline);
    }

    #[test]
    fn a_deadline_in_the_past_gives_the_configured_lease() {
        for past in [Deadline::UNKNOWN, Deadline::at(Timestamp::EPOCH), Deadline::at(Timestamp::from_millis(600_000))] {
            let window = window(past);
            assert_eq!(window.lease_until, NOW.after(Duration::from_secs(30)));
            assert_eq!(window.stop, NOW.after(Duration::from_millis(28_500)));
        }
    }

    #[test]
    fn the_reserve_has_a_floor_and_a_ceiling() {
        assert_eq!(default_reserve(Duration::from_secs(1)), Duration::from_millis(500));
        assert_eq!(default_reserve(Duration::from_secs(20)), Duration::from_secs(1));
        assert_eq!(default_reserve(Duration::from_secs(900)), Duration::from_secs(2));
    }
}
