//! Clocks, timestamps and deadlines. This is the only module that reads the time.
//!
//! ```
//! use std::time::Duration;
//! use lambda_once::clock::{Clock, Deadline, SystemClock};
//!
//! let end = SystemClock.now().after(Duration::from_secs(30));
//! let deadline = Deadline::at(end.before(Duration::from_secs(2))); // two seconds for what comes after
//! ```
//!
//! All times are UTC integers: milliseconds for leases, seconds for the expiration of a record. A clock is read at each
//! use and never kept across an `await`, because the execution environment may be frozen there.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// An instant in UTC, in whole milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch. As a lease it means *already over*.
    pub const EPOCH: Self = Self(0);

    /// Returns the instant `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the instant `seconds` seconds after the Unix epoch, or the latest representable instant if that is too
    /// late to be counted in milliseconds.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// Returns the milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the whole seconds since the Unix epoch, rounded down. The current time is compared with an expiration in
    /// this form.
    pub const fn seconds_rounded_down(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the whole seconds since the Unix epoch, rounded up. An expiration is written in this form.
    pub const fn seconds_rounded_up(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Returns the instant `duration` after this one, or the latest representable instant.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// Returns the instant `duration` before this one, or the epoch if that is later.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// Returns the time from `earlier` until this instant, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<SystemTime> for Timestamp {
    /// Converts a system time. A time before the Unix epoch becomes the epoch.
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, millis))
    }
}

/// A source of the current time.
///
/// Production code uses [`SystemClock`], and tests use a [`ManualClock`] or a custom one.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time in UTC.
    fn now(&self) -> Timestamp;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }
}

/// A clock that does not advance until it is moved. Clones share the same time.
///
/// ```
/// use std::time::Duration;
/// use lambda_once::clock::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::at(Timestamp::from_seconds(1_700_000_000));
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now(), Timestamp::from_seconds(1_700_000_005));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Creates a clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.0)))
    }

    /// Sets the clock to `now`, which may be earlier than its current time.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }

    /// Moves the clock forward by `duration`.
    pub fn advance(&self, duration: Duration) {
        self.0.fetch_add(millis(duration), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// The time at which the current invocation is ended from outside, if known.
///
/// A deadline counts as unknown, so that the configured lease is used, if it
///
/// * has passed when the work begins: `cargo lambda watch` sends a constant in 1970, and a hand-made `Context` contains
///   zero;
/// * is in a Lambda `Context` and more than 15 minutes and 10 seconds ahead, because no invocation lasts so long, and a
///   claim would be held for that time (with microseconds instead of milliseconds, for 50,000 years). A deadline given
///   as a [`Timestamp`] has no such limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadline {
    at: Option<Timestamp>,
    /// Whether it is meant to be the deadline of a Lambda invocation.
    is_lambdas: bool,
}

/// The maximum duration of an invocation, and ten seconds for clock differences.
const MAX_INVOCATION_TIME: Duration = Duration::from_secs(15 * 60 + 10);

impl Deadline {
    /// No deadline is known.
    pub const UNKNOWN: Self = Self { at: None, is_lambdas: false };

    /// Creates the deadline of an invocation that ends at `at`.
    pub const fn at(at: Timestamp) -> Self {
        Self { at: Some(at), is_lambdas: false }
    }

    /// Returns the deadline as seen at `now`, or `None` if it is unknown, has passed, or cannot come from Lambda.
    pub fn ahead_of(self, now: Timestamp) -> Option<Timestamp> {
        let latest = if self.is_lambdas { now.after(MAX_INVOCATION_TIME) } else { Timestamp(u64::MAX) };
        self.at.filter(|deadline| *deadline > now && *deadline <= latest)
    }
}

impl From<Timestamp> for Deadline {
    fn from(at: Timestamp) -> Self {
        Self::at(at)
    }
}

#[cfg(any(feature = "batch", feature = "http-lambda", feature = "invocation"))]
impl From<&lambda_runtime::Context> for Deadline {
    fn from(context: &lambda_runtime::Context) -> Self {
        Self { at: Some(Timestamp::from_millis(context.deadline)), is_lambdas: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Tests L4, L6.
    #[test]
    fn seconds_are_rounded_up_for_writing_and_down_for_comparing() {
        let time = Timestamp::from_millis(1_001);
        assert_eq!(time.seconds_rounded_up(), 2);
        assert_eq!(time.seconds_rounded_down(), 1);
        assert_eq!(Timestamp::from_millis(1_000).seconds_rounded_up(), 1);
    }

    #[test]
    fn arithmetic_stops_at_its_ends() {
        assert_eq!(Timestamp::from_millis(u64::MAX).after(Duration::MAX), Timestamp::from_millis(u64::MAX));
        assert_eq!(Timestamp::EPOCH.before(Duration::from_secs(1)), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::from_millis(9)), Duration::ZERO);
    }

    // Tests L2.
    #[test]
    fn a_deadline_in_the_past_is_unknown() {
        let now = Timestamp::from_seconds(1_700_000_000);
        assert_eq!(Deadline::at(Timestamp::from_millis(600_000)).ahead_of(now), None);
        assert_eq!(Deadline::at(now).ahead_of(now), None);
        assert_eq!(Deadline::UNKNOWN.ahead_of(now), None);
        let later = now.after(Duration::from_millis(1));
        assert_eq!(Deadline::at(later).ahead_of(now), Some(later));
    }

    // Tests L2.
    #[cfg(any(feature = "batch", feature = "http-lambda", feature = "invocation"))]
    #[test]
    fn an_impossible_deadline_is_unknown_in_a_context_and_kept_when_given() {
        let now = Timestamp::from_seconds(1_700_000_000);
        let of = |deadline: Timestamp| {
            let mut context = lambda_runtime::Context::default();
            context.deadline = deadline.as_millis();
            Deadline::from(&context).ahead_of(now)
        };
        let longest = now.after(Duration::from_secs(910));
        let longer = longest.after(Duration::from_millis(1));
        let microseconds = Timestamp::from_millis(longest.as_millis() * 1_000);
        assert_eq!(of(longest), Some(longest));
        for unknown in [Timestamp::EPOCH, now, longer, microseconds, Timestamp::from_millis(u64::MAX)] {
            assert_eq!(of(unknown), None, "{unknown:?}");
        }
        for given in [longer, microseconds] {
            assert_eq!(Deadline::from(given).ahead_of(now), Some(given));
        }
    }
}
