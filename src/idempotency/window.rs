//! The time window of an invocation, with the ends of its leases, its work and its settles.

use std::time::Duration;

use super::{invoked::Enclosing, policy::Heartbeat, settings::EngineSettings};
use crate::{
    clock::{Deadline, Timestamp},
    error::Error,
};

/// The time between the deadline and the end of an invocation's lease: Lambda ends an execution environment a little
/// late (L1).
const AFTER_DEADLINE: Duration = Duration::from_secs(1);

const MIN_RESERVE: Duration = Duration::from_millis(500);
const MAX_RESERVE: Duration = Duration::from_secs(2);

/// The time between the end of the last settle and a deadline, so that the response still arrives.
const RESPONSE: Duration = Duration::from_millis(50);

/// The maximum time for a settle if the deadline is unknown or has passed because a handler blocked its thread. Giving
/// up without a call would report an operation as unrecorded although a successor may have decided its outcome.
const LAST_SETTLE: Duration = Duration::from_secs(1);

/// The minimum time for a call to the store.
pub(crate) const MIN_CALL_TIME: Duration = Duration::from_millis(100);

/// The time window of one invocation. Computed once, when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The end of the invocation's claims.
    pub(crate) lease_until: Timestamp,
    /// The time at which handlers are cancelled, and after which nothing is started.
    pub(crate) stop: Timestamp,
    /// The end of settling. It is within the reserve, because a handler that returns just before the handler deadline
    /// is done, and would run again if there were no time to record that.
    pub(crate) settle_by: Timestamp,
    limit: Limit,
}

/// The maximum duration of work in a window. Durations are in milliseconds, which take less space, because batches move
/// windows often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// Until the invocation ends.
    Deadline(Timestamp),
    /// As above, but a run may last only this long.
    Run(Timestamp, u32),
    /// Until the lease ends, because no deadline is known.
    Lease,
    /// For the maximum duration of a run that renews its lease.
    Heartbeat(u64),
}

impl Window {
    pub(crate) fn new(now: Timestamp, deadline: Deadline, settings: &EngineSettings) -> Self {
        Self::within(None, now, deadline, settings)
    }

    /// Returns the window of an operation inside a run. It inherits the run's deadline if that is known and no other is
    /// given, and ends early enough for the run to see the outcome.
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

    /// Returns the end of the invocation, if known.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        if let Limit::Deadline(deadline) | Limit::Run(deadline, _) = self.limit { Some(deadline) } else { None }
    }

    /// Returns the same window for a run with this heartbeat. If the deadline is known, the lease ends after it and
    /// nothing is renewed. A heartbeat that was set for the run then only bounds it.
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

    /// Returns whether a run is cancelled before the handler deadline.
    pub(crate) fn bounds_runs(&self) -> bool {
        matches!(self.limit, Limit::Run(..))
    }

    /// Returns the time at which a run that begins at `now` is cancelled, unless it renews its lease.
    pub(crate) fn stop_of_run(&self, now: Timestamp) -> Timestamp {
        match self.limit {
            Limit::Run(_, millis) => self.stop.min(now.after(Duration::from_millis(millis.into()))),
            _ => self.stop,
        }
    }

    /// Returns the maximum duration of a run that renews its lease, or `None` if it does not.
    pub(crate) fn max_duration(&self) -> Option<Duration> {
        if let Limit::Heartbeat(millis) = self.limit { Some(Duration::from_millis(millis)) } else { None }
    }

    /// Refuses a heartbeat that was set for runs whose deadline is given, in this window. A lease that ends after a
    /// known deadline is never renewed, and a heartbeat does not let the run outlast the invocation.
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

    /// Returns the window of a lease that a run under this one has renewed at `sent`, or that is claimed then.
    pub(crate) fn renewed(&self, sent: Timestamp, settings: &EngineSettings) -> Self {
        Self { limit: self.limit, ..Self::new(sent, Deadline::UNKNOWN, settings) }
    }

    /// Returns the same window, in which settling ends at `until` if that is earlier, and a late settle has no more
    /// time than others.
    pub(crate) fn settling_until(self, until: Timestamp) -> Self {
        let settle_by = self.settle_by.min(until);
        Self { settle_by, limit: Limit::Deadline(settle_by.after(RESPONSE)), ..self }
    }

    /// Returns the same window, in which nothing is started after `stop` if that is earlier.
    #[cfg(feature = "http")]
    pub(crate) fn stopping_by(self, stop: Timestamp) -> Self {
        Self { stop: self.stop.min(stop), ..self }
    }

    /// Returns the end of a settle that begins at `now`, and of its retries. A late settle may use the time until
    /// shortly before the deadline, unless it is optional, because the claim would end with its lease anyway.
    pub(crate) fn settles_until(&self, now: Timestamp, is_needed: bool) -> Timestamp {
        if self.settle_by.since(now) >= MIN_CALL_TIME || !is_needed {
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
    use crate::documented::assert_states;

    const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

    fn window(deadline: Deadline) -> Window {
        Window::new(NOW, deadline, &EngineSettings::default())
    }

    #[test]
    fn the_documented_reserve_is_in_effect() {
        let [shortest, longest] = [MIN_RESERVE.as_millis(), MAX_RESERVE.as_secs().into()];
        let minute = Duration::from_secs(60);
        let percent = default_reserve(minute / 2).as_millis() * 100 / (minute / 2).as_millis();
        let text = format!(
            "| [`reserve`](#reserve) | {percent} % of the time left at the start, {shortest} ms to {longest} s |"
        );
        assert_states("docs/settings.md", [text]);
        let text = format!("{percent} % of the time left at entry, at least {shortest} ms, at most {longest} s |");
        assert_states("src/idempotency/builder.rs", [text]);
    }

    // Tests L1.
    #[test]
    fn in_lambda_the_lease_ends_a_second_after_the_deadline() {
        let deadline = NOW.after(Duration::from_secs(20));
        let window = window(Deadline::at(deadline));
        assert_eq!(window.lease_until, deadline.after(Duration::from_secs(1)));
        assert_eq!(window.stop, deadline.before(Duration::from_secs(1)));
        assert!(window.stop < window.settle_by && window.settle_by < deadline);
    }

    // Tests L2.
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
        let time = |left: u64, is_needed| {
            let now = deadline.before(millis(left));
            known.settles_until(now, is_needed).since(now)
        };
        assert_eq!(time(1_000, true), millis(500), "from the handler deadline to half of the reserve");
        assert_eq!([590, 400, 90].map(|left| time(left, true)), [540, 350, 40].map(millis));
        assert_eq!([50, 1].map(|left| time(left, true)), [0, 0].map(millis));
        assert_eq!(time(0, true), LAST_SETTLE, "the deadline has passed");
        assert_eq!([590, 400, 0].map(|left| time(left, false)), [90, 0, 0].map(millis), "optional releases");
        let unknown = window(Deadline::UNKNOWN);
        let late = NOW.after(Duration::from_secs(40));
        assert_eq!(unknown.settles_until(late, true), late.after(LAST_SETTLE));
        for window in [known, unknown] {
            let until = NOW.after(Duration::from_secs(5));
            let window = window.settling_until(until);
            for left in [200, 90, 1].map(millis) {
                let ends = window.settles_until(until.before(left), true);
                assert_eq!(ends, until, "the end of a withdrawal is not moved");
            }
        }
    }
}
