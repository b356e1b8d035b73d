//! What may be started, and how far claims may run ahead.

use std::time::Duration;

use crate::{AfterUnknown, clock::Timestamp};

/// The most that is claimed ahead of the work.
const LARGEST_CHUNK: usize = 25;

/// Decides, from what is known of the invocation so far, whether another record may be started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    stop: Timestamp,
    expected: Option<Duration>,
    longest: Duration,
    concurrency: usize,
    chunk: usize,
    /// How many claimed records may wait for others before them.
    most_waiting: usize,
    after_unknown: AfterUnknown,
    /// How many records a handler takes at once.
    together: usize,
}

impl Schedule {
    pub(super) fn new(
        stop: Timestamp,
        expected: Option<Duration>,
        concurrency: usize,
        store_batch: usize,
        after_unknown: AfterUnknown,
        is_one_line: bool,
    ) -> Self {
        let chunk = store_batch.clamp(1, LARGEST_CHUNK);
        // There is always room for a claim of what could start: of one line that is one record.
        let most_waiting = if is_one_line { chunk - 1 } else { chunk / 2 };
        Self {
            stop,
            expected,
            longest: Duration::ZERO,
            concurrency: concurrency.max(1),
            chunk,
            most_waiting,
            after_unknown,
            together: 1,
        }
    }

    /// Handlers take up to `most` records at once.
    pub(super) fn hands_over(&mut self, most: usize) {
        self.together = most.max(1);
    }

    /// A handler has run this long.
    pub(super) fn ran(&mut self, duration: Duration) {
        self.longest = self.longest.max(duration);
    }

    /// Whether a record that is started at `now` can be expected to end before the stop point. Once it cannot, no later
    /// one can either.
    pub(super) fn in_time(&self, now: Timestamp) -> bool {
        now < self.stop && now.after(self.expected.unwrap_or(self.longest)) <= self.stop
    }

    pub(super) fn has_free_slot(&self, running: usize) -> bool {
        running < self.concurrency
    }

    /// Whether this many settles are as many as one call takes.
    pub(super) fn fills_a_call(&self, due: usize) -> bool {
        due >= self.chunk
    }

    /// How many records may be claimed while `ready` claimed ones can start, `waiting` claimed ones wait for others before
    /// them in their order, `running` ones run, and `unsettled` ones have run and are not settled yet.
    ///
    /// A crash leaves the claims of work that never began. Where such a claim may be taken over that costs a delay, so
    /// one chunk ahead is fine; where it may not, it would cost the operation, and where it is probed first, a probe. It
    /// also leaves the claims of work that was done and not recorded, so nothing is claimed while more than a chunk of them
    /// waits.
    pub(super) fn room(&self, ready: usize, waiting: usize, running: usize, unsettled: usize) -> Room {
        if ready > 0 || unsettled > self.chunk {
            return Room { total: 0, ahead: 0 };
        }
        match self.after_unknown {
            AfterUnknown::Rerun => {
                // Several together, or an order of many records would claim them one by one.
                let ahead = if waiting > self.most_waiting / 2 { 0 } else { self.most_waiting - waiting };
                Room { total: self.chunk.saturating_sub(waiting), ahead }
            }
            AfterUnknown::Refuse | AfterUnknown::Probe => {
                let slots = self.concurrency.saturating_sub(running);
                Room { total: self.chunk.min(slots.saturating_mul(self.together)), ahead: 0 }
            }
        }
    }
}

/// How many records may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) total: usize,
    /// Of these, how many that cannot start yet, as others are before them in their order.
    pub(super) ahead: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_000);

    fn schedule(expected: Option<Duration>, after_unknown: AfterUnknown) -> Schedule {
        Schedule::new(NOW.after(Duration::from_millis(500)), expected, 10, 40, after_unknown, false)
    }

    #[test]
    fn nothing_is_started_that_cannot_be_expected_to_end_in_time() {
        let mut schedule = schedule(None, AfterUnknown::Rerun);
        let later = |millis| NOW.after(Duration::from_millis(millis));
        assert!(schedule.in_time(NOW) && schedule.in_time(later(499)) && !schedule.in_time(later(500)));
        schedule.ran(Duration::from_millis(300));
        schedule.ran(Duration::from_millis(100));
        assert!(schedule.in_time(later(200)) && !schedule.in_time(later(201)));
    }

    #[test]
    fn an_expected_duration_counts_from_the_first_record_on() {
        assert!(!schedule(Some(Duration::from_secs(1)), AfterUnknown::Rerun).in_time(NOW));
        assert!(schedule(Some(Duration::from_millis(500)), AfterUnknown::Rerun).in_time(NOW));
    }

    #[test]
    fn claims_run_one_chunk_ahead_and_under_refuse_and_probe_not_at_all() {
        let rerun = schedule(None, AfterUnknown::Rerun);
        let total = |ready, running| rerun.room(ready, 0, running, 0).total;
        assert_eq!([total(0, 0), total(0, 10), total(1, 0)], [25, 25, 0]);
        for policy in [AfterUnknown::Refuse, AfterUnknown::Probe] {
            let late = schedule(None, policy);
            let room = |running, unsettled| late.room(0, 0, running, unsettled);
            assert_eq!([room(0, 9), room(7, 0), room(10, 0)], [10, 3, 0].map(|total| Room { total, ahead: 0 }));
        }
    }

    #[test]
    fn what_waits_for_its_turn_is_part_of_the_chunk_and_leaves_room_for_what_can_start() {
        for (is_one_line, largest, most_waiting) in [(true, 40, 24), (false, 40, 12), (true, 1, 0), (false, 1, 0)] {
            let schedule = Schedule::new(NOW, None, 10, largest, AfterUnknown::Rerun, is_one_line);
            for waiting in 0..=most_waiting {
                let Room { total, ahead } = schedule.room(0, waiting, 0, 0);
                assert_eq!(total, largest.min(25) - waiting);
                assert!(total > 0 && waiting + ahead <= most_waiting, "{waiting} wait, {ahead} more");
            }
            assert_eq!(schedule.room(0, 0, 0, 0).ahead, most_waiting);
            assert_eq!(schedule.room(0, most_waiting / 2 + 1, 0, 0).ahead, 0, "not one by one");
        }
    }

    #[test]
    fn claims_wait_for_a_store_that_is_slow_to_settle() {
        let rerun = schedule(None, AfterUnknown::Rerun);
        assert_eq!([25, 26].map(|unsettled| rerun.room(0, 0, 0, unsettled).total), [25, 0]);
    }
}
