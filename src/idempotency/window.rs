//! The time an invocation has: when its leases end, when its work stops, and how long it may settle.

use std::time::Duration;

use super::{invoked::Enclosing, policy::Heartbeat, settings::EngineSettings};
use crate::{
    clock::{Deadline, Timestamp},
    error::Error,
};

/// How long after its deadline an invocation's lease ends: Lambda ends an execution environment a little late (L1).
const AFTER_DEADLINE: Duration = Duration::from_secs(1);

const MIN_RESERVE: Duration = Duration::from_millis(500);
const MAX_RESERVE: Duration = Duration::from_secs(2);

/// How long before a deadline the last settle ends, so that the answer still arrives.
const RESPONSE: Duration = Duration::from_millis(50);

/// How long a settle may take where the deadline is unknown or has passed: a handler blocked its thread until then. To
/// give up without a call would report an operation as unrecorded although a successor may have decided its outcome.
const LAST_SETTLE: Duration = Duration::from_secs(1);

/// The shortest time in which a call to the store is worth beginning.
pub(crate) const MIN_CALL_TIME: Duration = Duration::from_millis(100);

/// The time that one invocation has. Computed once, when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// When the claims of the invocation end.
    pub(crate) lease_until: Timestamp,
    /// When handlers are cancelled, and after which nothing is started.
    pub(crate) stop: Timestamp,
    /// When settling ends. It lies within the reserve: a handler that returns just before the stop point is done, and
    /// to leave that unrecorded for want of time would have it run again.
    pub(crate) settle_by: Timestamp,
    limit: Limit,
}

/// How long work in a window may go on. Durations are in milliseconds, which takes less room: batches move windows a lot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// Until the invocation ends.
    Deadline(Timestamp),
    /// As above, but a run may last only this long.
    Run(Timestamp, u32),
    /// Until the lease ends: no deadline is known.
    Lease,
    /// For the longest duration of a run that renews its lease.
    Heartbeat(u64),
}

impl Window {
    pub(crate) fn new(now: Timestamp, deadline: Deadline, settings: &EngineSettings) -> Self {
        Self::within(None, now, deadline, settings)
    }

    /// Returns the window of an operation inside a run. It inherits the run's deadline if that is known and no other is
    /// given, and ends in time for the run to see the outcome.
    pub(crate) fn within(
        enclosing: Option<Enclosing>,
        now: Timestamp,
        deadline: Deadline,
        settings: &EngineSettings,
    ) -> Self {
        let enclosing = enclosing.and_then(|run| Some((run.deadline?, run.stop)));
        let deadline = deadline.ahead_of(now).or(enclosing.map(|(deadline, _)| deadline));
        let (ends, lease_until) = match deadline {
            Some(deadline) => {
                (enclosing.map_or(deadline, |(_, stop)| deadline.min(stop)), deadline.after(AFTER_DEADLINE))
            }
            None => (now.after(settings.lease), now.after(settings.lease)),
        };
        let reserve = settings.reserve.unwrap_or_else(|| default_reserve(ends.since(now)));
        let (stop, settle_by) = (ends.before(reserve), ends.before(reserve / 2));
        let limit = deadline.map_or(Limit::Lease, Limit::Deadline);
        Self { lease_until, stop, settle_by, limit }
    }

    /// When the invocation ends, if that is known.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        if let Limit::Deadline(deadline) | Limit::Run(deadline, _) = self.limit { Some(deadline) } else { None }
    }

    /// The same window for a run with this heartbeat. If the deadline is known the lease ends after it, and nothing is renewed: a
    /// heartbeat that was chosen for the run only bounds it then.
    pub(crate) fn with_heartbeat(self, heartbeat: Heartbeat, settings: &EngineSettings) -> Self {
        let max_duration = match heartbeat {
            Heartbeat::AsEngine => settings.heartbeat,
            Heartbeat::Never => None,
            Heartbeat::UpTo(max_duration) => Some(max_duration),
        };
        match (self.limit, max_duration) {
            (Limit::Lease, Some(max_duration)) => Self { limit: Limit::Heartbeat(millis(max_duration)), ..self },
            (Limit::Deadline(deadline), Some(max_duration)) if heartbeat != Heartbeat::AsEngine => {
                let millis = millis(max_duration).try_into().unwrap_or(u32::MAX);
                Self { limit: Limit::Run(deadline, millis), ..self }
            }
            _ => self,
        }
    }

    /// Whether a run is cancelled before the stop point.
    pub(crate) fn bounds_runs(&self) -> bool {
        matches!(self.limit, Limit::Run(..))
    }

    /// When a run that begins at `now` is cancelled, unless it renews its lease.
    pub(crate) fn stop_of_run(&self, now: Timestamp) -> Timestamp {
        match self.limit {
            Limit::Run(_, millis) => self.stop.min(now.after(Duration::from_millis(millis.into()))),
            _ => self.stop,
        }
    }

    /// How long a run that renews its lease may last; `None` if it does not.
    pub(crate) fn max_duration(&self) -> Option<Duration> {
        if let Limit::Heartbeat(millis) = self.limit { Some(Duration::from_millis(millis)) } else { None }
    }

    /// Refuses a heartbeat that was chosen for runs whose deadline is given, in this window. A lease that ends after a known deadline
    /// is never renewed, and a heartbeat does not let the run outlast the invocation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the deadline is known.
    pub(crate) fn check_heartbeat(&self, heartbeat: Heartbeat) -> Result<(), Error> {
        match (heartbeat, self.limit) {
            (Heartbeat::UpTo(_), Limit::Deadline(_) | Limit::Run(..)) => Err(Error::config(
                "a heartbeat is set for a run whose deadline is known: its lease lasts until then, and is not renewed",
            )),
            _ => Ok(()),
        }
    }

    /// The window of a lease that a run under this one has renewed at `sent`.
    pub(crate) fn renewed(&self, sent: Timestamp, settings: &EngineSettings) -> Self {
        Self { limit: self.limit, ..Self::new(sent, Deadline::UNKNOWN, settings) }
    }

    /// Returns the same window, in which settling ends at `until` if that is earlier.
    pub(crate) fn settling_until(self, until: Timestamp) -> Self {
        Self { settle_by: self.settle_by.min(until), ..self }
    }

    /// Returns the same window, in which nothing is started after `stop` if that is earlier.
    #[cfg(feature = "http")]
    pub(crate) fn stopping_by(self, stop: Timestamp) -> Self {
        Self { stop: self.stop.min(stop), ..self }
    }

    /// When a settle that begins at `now` ends, and those that repeat it. One that records an outcome and comes late has
    /// what is left until shortly before the deadline; a release ends with its lease anyway.
    pub(crate) fn settles_until(&self, now: Timestamp, records_outcome: bool) -> Timestamp {
        if self.settle_by.since(now) >= MIN_CALL_TIME || !records_outcome {
            return self.settle_by;
        }
        self.settle_by.max(match self.limit {
            Limit::Deadline(deadline) | Limit::Run(deadline, _) if now < deadline => deadline.before(RESPONSE),
            _ => now.after(LAST_SETTLE),
        })
    }
}

/// Rounded up, so that it is not zero.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A twentieth of the time left, at least half a second, at most two seconds.
fn default_reserve(left: Duration) -> Duration {
    (left / 20).clamp(MIN_RESERVE, MAX_RESERVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

    fn window(deadline: Deadline) -> Window {
        Window::new(NOW, deadline, &EngineSettings::default())
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

    #[test]
    fn a_late_settle_ends_before_a_future_deadline_or_within_a_second() {
        let millis = Duration::from_millis;
        let deadline = NOW.after(Duration::from_secs(20));
        let known = window(Deadline::at(deadline));
        let time = |left: u64, records_outcome| {
            let now = deadline.before(millis(left));
            known.settles_until(now, records_outcome).since(now)
        };
        assert_eq!(time(1_000, true), millis(500), "from the stop point to half of the reserve");
        assert_eq!([590, 400, 90].map(|left| time(left, true)), [540, 350, 40].map(millis));
        assert_eq!([50, 1].map(|left| time(left, true)), [0, 0].map(millis));
        assert_eq!(time(0, true), LAST_SETTLE, "the deadline has passed");
        assert_eq!([590, 400, 0].map(|left| time(left, false)), [90, 0, 0].map(millis), "releases");
        let unknown = window(Deadline::UNKNOWN);
        let late = NOW.after(Duration::from_secs(40));
        assert_eq!(unknown.settles_until(late, true), late.after(LAST_SETTLE));
    }
}
