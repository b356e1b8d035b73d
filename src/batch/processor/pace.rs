//! Decides whether there is time for another record (B5), and how far claims may run ahead of the work (B12).

use std::time::Duration;

use crate::{clock::Timestamp, idempotency::policy::AfterUnknown};

/// The maximum number of records in one claim call, if the store takes that many in a round trip.
const MAX_CHUNK: usize = 100;

/// The maximum number of chunks, and of records, that are claimed ahead of the work.
const MAX_CHUNKS_AHEAD: usize = 10;
const MAX_AHEAD: usize = 250;

/// The assumed round trip to the store until one has been measured. If handlers are expected to take less, this many
/// chunks and records may be claimed ahead from the beginning.
const ASSUMED_ROUND_TRIP: Duration = Duration::from_millis(5);
const CHUNKS_FOR_FAST_HANDLERS: usize = 4;
const AHEAD_OF_FAST_HANDLERS: usize = 100;

/// A poll that takes longer has blocked its thread.
const LONG_POLL: Duration = Duration::from_millis(10);

/// The measured speed of the handlers and of the store in this invocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    stop: Timestamp,
    expected: Option<Duration>,
    longest: Duration,
    concurrency: usize,
    chunk: usize,
    /// The maximum number of claimed records that may wait for others before them.
    max_waiting: usize,
    after_unknown: AfterUnknown,
    /// The maximum number of records in one call of the handler.
    bulk_size: usize,
    /// The number of records that have run, and the time during which any ran.
    ran: u32,
    busy: Duration,
    busy_since: Option<Timestamp>,
    /// The shortest time of a claim call so far.
    round_trip: Option<Duration>,
    polls: Polls,
}

/// The durations of handler polls so far. After one poll has blocked its thread, any other may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polls {
    None,
    Quick,
    Long,
}

/// The records that are claimed, or have run and are not recorded yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// Claimed records that can begin.
    pub(super) ready: usize,
    /// Records in pending claim calls.
    pub(super) claiming: usize,
    /// Claimed records that wait for others before them in their order.
    pub(super) waiting: usize,
    /// Records whose handlers are running.
    pub(super) running: usize,
    /// Records that have run and are not recorded yet.
    pub(super) unrecorded: usize,
}

/// The number of records that one call may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) total: usize,
    /// The part of `total` that may be records that cannot begin yet, because others come before them in their order.
    pub(super) ahead: usize,
}

impl Budget {
    const NONE: Self = Self { total: 0, ahead: 0 };
}

impl Pace {
    pub(super) fn new(
        stop: Timestamp,
        expected: Option<Duration>,
        concurrency: usize,
        store_batch: usize,
        after_unknown: AfterUnknown,
        is_single_lane: bool,
    ) -> Self {
        let chunk = store_batch.clamp(1, MAX_CHUNK);
        // There is always room to claim a record that can begin. A single lane has one.
        let max_waiting = if is_single_lane { chunk - 1 } else { chunk / 2 };
        Self {
            stop,
            expected,
            longest: Duration::ZERO,
            concurrency: concurrency.max(1),
            chunk,
            max_waiting,
            after_unknown,
            bulk_size: 1,
            ran: 0,
            busy: Duration::ZERO,
            busy_since: None,
            round_trip: None,
            polls: Polls::None,
        }
    }

    /// Sets the maximum number of records in one call of the handler.
    pub(super) fn set_bulk_size(&mut self, records: usize) {
        self.bulk_size = records.max(1);
    }

    /// Notes that a handler begins.
    pub(super) fn began(&mut self, now: Timestamp) {
        self.busy_since.get_or_insert(now);
    }

    /// Notes the duration of a handler. Returns whether it is the longest so far.
    pub(super) fn took(&mut self, time: Duration) -> bool {
        let is_longest = time > self.longest;
        self.longest = self.longest.max(time);
        is_longest
    }

    /// Notes that a handler of `records` has ended. `is_idle` is `true` if no other is running.
    pub(super) fn ended(&mut self, records: usize, now: Timestamp, is_idle: bool) {
        self.ran = self.ran.saturating_add(u32::try_from(records).unwrap_or(u32::MAX));
        if let Some(since) = self.busy_since {
            self.busy += now.since(since);
            self.busy_since = (!is_idle).then_some(now);
        }
    }

    /// Notes the duration of a poll.
    pub(super) fn polled(&mut self, took: Duration, is_first_of_handler: bool) {
        if took > LONG_POLL {
            self.polls = Polls::Long;
        } else if is_first_of_handler && self.polls == Polls::None {
            self.polls = Polls::Quick;
        }
    }

    /// Notes the duration of a claim call.
    pub(super) fn claimed(&mut self, took: Duration) {
        self.round_trip = Some(self.round_trip.map_or(took, |shortest| shortest.min(took)));
    }

    /// Returns whether a record that begins at `now` is expected to end before the handler deadline (B5). If not, no
    /// later one is either.
    pub(super) fn in_time(&self, now: Timestamp) -> bool {
        now < self.stop && now.after(self.expected()) <= self.stop
    }

    /// Returns the latest time at which a record may begin, by the measurements so far.
    pub(super) fn begin_by(&self) -> Timestamp {
        self.stop.before(self.expected())
    }

    fn expected(&self) -> Duration {
        self.expected.unwrap_or(self.longest)
    }

    pub(super) fn has_free_slot(&self, running: usize) -> bool {
        running < self.concurrency
    }

    /// Returns whether this many settles fill a call.
    pub(super) fn fills_a_call(&self, due: usize) -> bool {
        due >= self.chunk
    }

    /// Returns the number of records that may be claimed now (B12).
    ///
    /// A crash leaves claims on work that never began. If such claims may be taken over, they cost a delay. Therefore
    /// claims run ahead by the number of records that the handlers can begin within one round trip to the store, and by
    /// at least one chunk. If they may not be taken over, they cost the operation, and if they are probed first, a
    /// probe. In these cases a record is claimed only when its handler is about to begin, and one at a time while a
    /// handler may block its thread. A crash also leaves claims on work that was done and not recorded, so no claim is
    /// made while more than that waits to be recorded.
    pub(super) fn budget(&self, standing: Standing) -> Budget {
        let Standing { ready, claiming, waiting, running, unrecorded } = standing;
        match self.after_unknown {
            AfterUnknown::Rerun => {
                let chunks = self.chunks_ahead();
                if unrecorded > chunks * self.chunk || ready + claiming > (chunks - 1) * self.chunk {
                    return Budget::NONE;
                }
                // Waiting records are claimed several at a time, so that a long order is not claimed one by one. None
                // is claimed while a claim is in flight, because its records may have to wait too and would leave no
                // room for those that can begin.
                let is_full = claiming > 0 || waiting > self.max_waiting / 2;
                let ahead = if is_full { 0 } else { self.max_waiting - waiting };
                Budget { total: self.chunk.saturating_sub(waiting), ahead }
            }
            AfterUnknown::Refuse | AfterUnknown::Probe => {
                let slots = self.concurrency.saturating_sub(running);
                let slots = if self.polls == Polls::Quick { slots } else { slots.min(1) };
                let unbegun = ready + claiming;
                if unrecorded > self.chunk || unbegun > 0 && self.polls != Polls::Quick {
                    return Budget::NONE;
                }
                let total = slots.saturating_mul(self.bulk_size).saturating_sub(unbegun).min(self.chunk);
                Budget { total, ahead: 0 }
            }
        }
    }

    /// Returns whether claims wait for handlers because at most one chunk may be claimed without having begun.
    pub(super) fn limits_claims(&self) -> bool {
        self.after_unknown != AfterUnknown::Rerun || self.chunks_ahead() == 1
    }

    /// Returns the maximum number of records in one store call.
    pub(super) fn chunk(&self) -> usize {
        self.chunk
    }

    /// Returns the maximum number of records that may be claimed without having begun.
    pub(super) fn most_ahead(&self) -> usize {
        self.chunks_ahead() * self.chunk
    }

    /// Returns the number of chunks that the handlers can begin within one round trip to the store, by their measured
    /// speed.
    fn chunks_ahead(&self) -> usize {
        if self.ran == 0 {
            let is_fast = self.expected.is_some_and(|expected| expected < ASSUMED_ROUND_TRIP);
            return if is_fast { self.chunks_of(AHEAD_OF_FAST_HANDLERS, CHUNKS_FOR_FAST_HANDLERS) } else { 1 };
        }
        let Some(round_trip) = self.round_trip.filter(|round_trip| !round_trip.is_zero()) else { return 1 };
        let most = self.chunks_of(MAX_AHEAD, MAX_CHUNKS_AHEAD);
        if self.busy.is_zero() {
            return most;
        }
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let in_a_round_trip = u64::from(self.ran).saturating_mul(millis(round_trip)) / millis(self.busy).max(1);
        let chunks = usize::try_from(in_a_round_trip).unwrap_or(usize::MAX).div_ceil(self.chunk);
        chunks.clamp(1, most)
    }

    /// Returns the number of chunks that these records fill, up to a limit.
    fn chunks_of(&self, records: usize, max_chunks: usize) -> usize {
        (records / self.chunk).clamp(1, max_chunks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_000);
    const MILLI: Duration = Duration::from_millis(1);

    fn pace(expected: Option<Duration>, after_unknown: AfterUnknown) -> Pace {
        Pace::new(NOW.after(500 * MILLI), expected, 10, 25, after_unknown, false)
    }

    /// Returns the pace after `records` have run one after the other for `each`, with a store that takes 5 ms.
    fn after(records: usize, each: Duration) -> Pace {
        let mut pace = pace(None, AfterUnknown::Rerun);
        pace.claimed(5 * MILLI);
        let mut now = NOW;
        for _ in 0..records {
            pace.began(now);
            let ends = now.after(each);
            pace.ended(1, ends, true);
            now = ends;
        }
        pace
    }

    // Tests B5.
    #[test]
    fn nothing_begins_that_cannot_be_expected_to_end_in_time() {
        let mut pace = pace(None, AfterUnknown::Rerun);
        let later = |millis| NOW.after(Duration::from_millis(millis));
        assert!(pace.in_time(NOW) && pace.in_time(later(499)) && !pace.in_time(later(500)));
        assert!(pace.took(300 * MILLI) && !pace.took(100 * MILLI));
        assert!(pace.in_time(later(200)) && !pace.in_time(later(201)));
    }

    #[test]
    fn an_expected_duration_counts_from_the_first_record_on() {
        assert!(!pace(Some(1_000 * MILLI), AfterUnknown::Rerun).in_time(NOW));
        assert!(pace(Some(500 * MILLI), AfterUnknown::Rerun).in_time(NOW));
    }

    // Tests B12, P17.
    #[test]
    fn claims_run_one_chunk_ahead_until_handlers_prove_fast() {
        let total =
            |pace: Pace, ready, claiming| pace.budget(Standing { ready, claiming, ..Standing::default() }).total;
        let new = pace(None, AfterUnknown::Rerun);
        assert_eq!([total(new, 0, 0), total(new, 1, 0), total(new, 0, 1)], [25, 0, 0]);
        let slow = after(25, 5 * MILLI);
        assert_eq!([total(slow, 0, 0), total(slow, 1, 0)], [25, 0], "one record within a round trip");
        // At 25 records per millisecond, five chunks fit within a round trip.
        let mut fast = after(24, Duration::ZERO);
        fast.began(NOW);
        fast.ended(1, NOW.after(MILLI), true);
        assert_eq!([total(fast, 50, 50), total(fast, 51, 50)], [25, 0]);
        let instant = after(25, Duration::ZERO);
        assert_eq!([total(instant, 0, 225), total(instant, 1, 225)], [25, 0], "never more than 250 records");
    }

    // Tests B12.
    #[test]
    fn fast_handlers_have_several_chunks_from_the_beginning() {
        let total = |expected| {
            let pace = pace(Some(expected), AfterUnknown::Rerun);
            pace.budget(Standing { claiming: 75, ..Standing::default() }).total
        };
        assert_eq!([total(MILLI), total(5 * MILLI)], [25, 0]);
    }

    // Tests B12.
    #[test]
    fn under_refuse_and_probe_a_handler_that_may_block_claims_one_at_a_time() {
        for policy in [AfterUnknown::Refuse, AfterUnknown::Probe] {
            let mut pace = pace(None, policy);
            let total =
                |pace: Pace, ready, running| pace.budget(Standing { ready, running, ..Standing::default() }).total;
            assert_eq!([total(pace, 0, 0), total(pace, 0, 1), total(pace, 1, 0)], [1, 1, 0], "no poll has returned");
            pace.polled(Duration::ZERO, false);
            assert_eq!(total(pace, 0, 1), 1, "only calls were polled");
            pace.polled(10 * MILLI, true);
            assert_eq!([total(pace, 0, 1), total(pace, 2, 1), total(pace, 0, 10)], [9, 7, 0]);
            pace.polled(11 * MILLI, false);
            pace.polled(Duration::ZERO, true);
            assert_eq!([total(pace, 0, 1), total(pace, 1, 1), total(pace, 0, 10)], [1, 0, 0], "a poll was long");
            pace.set_bulk_size(4);
            assert_eq!(total(pace, 0, 1), 4);
        }
    }

    // Tests B12.
    #[test]
    fn records_that_wait_for_their_turn_count_as_part_of_the_chunk() {
        let cases = [(true, 25, 24), (false, 25, 12), (true, 1, 0), (false, 1, 0), (true, 900, 99), (false, 900, 50)];
        for (is_single_lane, largest, max_waiting) in cases {
            let pace = Pace::new(NOW, None, 10, largest, AfterUnknown::Rerun, is_single_lane);
            let budget = |waiting| pace.budget(Standing { waiting, ..Standing::default() });
            for waiting in 0..=max_waiting {
                let Budget { total, ahead } = budget(waiting);
                assert_eq!(total, largest.min(100) - waiting);
                assert!(total > 0 && waiting + ahead <= max_waiting, "{waiting} wait, {ahead} more");
            }
            assert_eq!(budget(0).ahead, max_waiting);
            assert_eq!(budget(max_waiting / 2 + 1).ahead, 0, "not one by one");
        }
    }

    // Tests B12.
    #[test]
    fn claims_wait_for_a_store_that_is_slow_to_settle() {
        let pace = pace(None, AfterUnknown::Rerun);
        let total = |unrecorded| pace.budget(Standing { unrecorded, ..Standing::default() }).total;
        assert_eq!([25, 26].map(total), [25, 0]);
    }
}
