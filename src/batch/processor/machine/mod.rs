//! The course of one batch, as a machine without time or calls. It takes events and returns the next step.
//! [`Machine::turn`] defines their order.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    time::Duration,
};

use super::{
    batch::Batch,
    lanes::Lanes,
    lookups::Lookups,
    pace::{Pace, Standing},
    queues::{Next, Queues},
    records::Records,
    settling::Settling,
    steps::{Action, OfEach, Run, Step, Terms},
    waits::Waits,
};
use crate::{
    batch::{report::RecordReport, source::Source},
    clock::Timestamp,
    idempotency::{
        claim::Claim,
        engine::{Candidate, LeaseWait, Unclaimed, WaitStep, Withdrawal},
        guard::Bounds,
        outcome::Outcome,
        window::Window,
    },
    record::{Fingerprint, KeyHash},
};

mod events;
#[cfg(test)]
mod histories;

/// The maximum time without a turn of the runtime when another handler, which may block its thread, is about to begin.
const MAX_TIME_WITHOUT_TURN: Duration = Duration::from_millis(2);

/// With less time a handler would be cancelled before it begins, because clocks here have a resolution of a
/// millisecond.
const SHORTEST_RUN: Duration = Duration::from_millis(1);

/// A hasher that uses the last bytes of a key's hash, which is already uniformly distributed.
#[derive(Default)]
struct TruncatingHasher(u64);

impl Hasher for TruncatingHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.0 = u64::from_ne_bytes(*last);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The first record with a key, and its payload.
type Leaders = HashMap<KeyHash, (usize, Option<Fingerprint>), BuildHasherDefault<TruncatingHasher>>;

pub(super) struct Machine<'a, S: Source, T> {
    terms: Terms<'a>,
    window: Window,
    batch: Batch<'a, S, T>,
    leaders: Leaders,
    queues: Queues,
    waits: Waits,
    settling: Settling,
    pace: Pace,
    lookups: Lookups,
    /// The time of this turn. Due work and waits must be separated by a single reading of the clock.
    now: Timestamp,
    /// Whether nothing more begins.
    is_stopped: bool,
    /// The time of the runtime's last turn, and whether it gets one before another handler begins. Store calls proceed
    /// only in its turns.
    last_turn: Timestamp,
    owes_turn: bool,
    /// Whether no handler has begun since the last turn.
    is_turn_fresh: bool,
    /// Claims to be sent again.
    unclaimed: OfEach<Unclaimed>,
    /// Granted claims that are not used.
    withdrawals: Vec<Withdrawal>,
    /// The running handlers, and the pending calls of all other kinds.
    handlers: usize,
    calls: usize,
    /// The number of records in pending claim calls.
    claiming: usize,
}

impl<'a, S: Source, T> Machine<'a, S, T> {
    pub(super) fn new(source: S, records: Vec<S::Record>, window: Window, now: Timestamp, terms: Terms<'a>) -> Self {
        let lanes = Lanes::new(records.iter().map(|record| source.lane(record)), terms.options.on_failure);
        let mut pace = Pace::new(
            window.stop,
            terms.options.expected_duration,
            terms.options.concurrency,
            terms.engine.store.limits().batch,
            terms.engine.settings.after_unknown,
            lanes.is_single_lane(),
        );
        pace.set_bulk_size(terms.bulk_size);
        Self {
            terms,
            window,
            leaders: HashMap::with_capacity_and_hasher(records.len(), BuildHasherDefault::default()),
            batch: Batch::new(Records::new(source, records), lanes, terms),
            queues: Queues::default(),
            waits: Waits::new(),
            settling: Settling::new(now),
            pace,
            lookups: Lookups::default(),
            now,
            is_stopped: false,
            last_turn: now,
            owes_turn: false,
            is_turn_fresh: false,
            unclaimed: Vec::new(),
            withdrawals: Vec::new(),
            handlers: 0,
            calls: 0,
            claiming: 0,
        }
    }

    /// Returns the next step at `now`, in this order:
    ///
    /// 1. Ends waits that are over. If no further record could end before the handler deadline, nothing more begins
    ///    (B5).
    /// 2. Gives up records that can no longer run, and releases their claims.
    /// 3. Dead-letters records that no retry can help.
    /// 4. Records outcomes that fill a call.
    /// 5. Polls the keys of waiting records (B6).
    /// 6. Sends claims again that the store has not decided, or gives them up.
    /// 7. Decodes and claims records, as far ahead as allowed (B12).
    /// 8. While many turn out to be done, looks up the records behind them (B12).
    /// 9. Takes the results of pending calls, unless they are known to have none (`is_quiet`).
    /// 10. Begins a handler, after waiting outcomes and the runtime had their turn, because it may block its thread.
    /// 11. With nothing left to begin, records the due outcomes in one call.
    /// 12. Waits.
    pub(super) fn turn(&mut self, now: Timestamp, is_quiet: bool) -> Step<S, T> {
        self.now = now;
        self.is_stopped |= !self.pace.in_time(now);
        self.end_waits_that_are_over();
        let call = self
            .give_up()
            .or_else(|| self.batch.next_dead_letter())
            .or_else(|| self.settling.next_call(&self.pace))
            .or_else(|| self.poll())
            .or_else(|| self.claim_again());
        let step = call
            .map(Step::Call)
            .or_else(|| self.claim())
            .or_else(|| if self.lookups.are_on() { self.look_up() } else { None })
            .or_else(|| (!is_quiet).then_some(Step::Poll))
            .or_else(|| self.begin())
            .or_else(|| self.settle())
            .unwrap_or_else(|| self.wait());
        self.calls += usize::from(matches!(step, Step::Call(_)));
        step
    }

    /// Step 2 of [`turn`](Self::turn): gives up all records once nothing more begins. Before that, gives up records
    /// that a failure blocks and waits that have become pointless.
    fn give_up(&mut self) -> Option<Action> {
        let mut claims = Vec::new();
        if self.is_stopped {
            self.end_waits(|_, _, _| true);
            claims.extend(self.queues.take_unbegun().filter_map(|index| self.batch.records.give_up(index)));
        }
        // Deciding one may block more, so the search is repeated.
        while self.batch.take_recheck() {
            self.end_waits(Self::waits_in_vain);
            self.batch.skip_blocked_dead_letters();
            for index in self.queues.take_blocked(&self.batch.lanes) {
                claims.extend(self.batch.decide(index, Ok(Outcome::Skipped), None));
            }
        }
        if claims.is_empty() {
            return self.withdrawals.pop().map(Action::Withdraw);
        }
        Some(Action::Release(claims))
    }

    /// Ends the waits for which `is_over` returns `true`.
    fn end_waits(&mut self, is_over: impl Fn(&Self, usize, &LeaseWait) -> bool) {
        for index in self.waits.indices().chain(self.queues.waiting_for_claims()).collect::<Vec<_>>() {
            let wait = self.batch.records.wait_of(index).filter(|wait| is_over(self, index, wait));
            let Some(refusal) = wait.map(|wait| wait.refusal().clone()) else { continue };
            self.stop_waiting(index);
            if self.batch.lanes.is_blocked(index) {
                self.batch.decide(index, Ok(Outcome::Skipped), None);
            } else {
                self.refuse(index, refusal);
            }
        }
    }

    /// Returns whether the record can no longer run when its key becomes free, or its outcome no longer changes the
    /// response (B6).
    fn waits_in_vain(&self, index: usize, wait: &LeaseWait) -> bool {
        self.batch.lanes.is_blocked(index)
            || self.batch.is_response_fixed(index)
            || wait.free_at().is_some_and(|free_at| !self.pace.in_time(free_at))
    }

    fn stop_waiting(&mut self, index: usize) {
        if let Some(wait) = self.batch.records.wait_of(index)
            && !self.waits.remove(index, wait)
        {
            self.queues.remove_free(index);
        }
    }

    /// Step 1 of [`turn`](Self::turn): ends waits that are over, with another claim if the key is free.
    fn end_waits_that_are_over(&mut self) {
        while let Some(index) = self.waits.next_end(self.now) {
            let Some(wait) = self.batch.records.wait_of(index) else { break };
            self.waits.remove(index, wait);
            if wait.step(self.now) == WaitStep::Claim {
                self.queues.free(index);
            } else {
                let refusal = wait.refusal().clone();
                self.refuse(index, refusal);
            }
        }
    }

    /// Step 5 of [`turn`](Self::turn): polls the keys of waiting records.
    fn poll(&mut self) -> Option<Action> {
        let polled = self.waits.start_poll(self.now);
        let candidates = self.candidates(polled);
        (!candidates.is_empty()).then_some(Action::Poll(candidates))
    }

    /// Step 6 of [`turn`](Self::turn): sends claims again that the store has not decided, unless nothing more begins.
    /// Gives those up that a failure blocks.
    fn claim_again(&mut self) -> Option<Action> {
        if self.unclaimed.is_empty() {
            return None;
        }
        let lanes = &self.batch.lanes;
        let (in_vain, open): (OfEach<_>, OfEach<_>) =
            std::mem::take(&mut self.unclaimed).into_iter().partition(|(index, _)| lanes.is_blocked(*index));
        if in_vain.is_empty() {
            return Some(Action::ClaimAgain(open, self.pace.begin_by()));
        }
        self.unclaimed = open;
        Some(Action::ClaimAgain(in_vain, self.now))
    }

    fn candidates(&self, records: Vec<usize>) -> OfEach<Candidate> {
        records.into_iter().filter_map(|index| Some((index, self.batch.next_candidate(index)?))).collect()
    }

    /// Returns whether records are looked up before they are claimed: if claims wait for handlers, and many records are
    /// done.
    fn looks_up(&self) -> bool {
        let Batch { lanes, entities, .. } = &self.batch;
        self.lookups.are_on() && self.pace.limits_claims() && !entities.are_any() && !lanes.are_halted()
    }

    /// Step 8 of [`turn`](Self::turn): decodes a record, or looks up decoded records.
    #[cold]
    fn look_up(&mut self) -> Option<Step<S, T>> {
        let chunk = self.pace.chunk();
        if self.is_stopped || !self.looks_up() || !self.lookups.have_room(chunk) {
            return None;
        }
        let held = self.batch.waiting_dead_letters() + self.lookups.under_way();
        let Batch { records, lanes, .. } = &mut self.batch;
        let taken = match self.queues.next_lookup(lanes, records, chunk, held) {
            Next::Decode(index, info, body) => return Some(Step::Decode(index, info, body)),
            Next::Call(taken) => taken,
        };
        let candidates = self.candidates(taken);
        self.lookups.begin(candidates.len());
        (!candidates.is_empty()).then_some(Step::Call(Action::LookUp(candidates)))
    }

    /// Step 7 of [`turn`](Self::turn): decodes a record, or claims decoded records.
    fn claim(&mut self) -> Option<Step<S, T>> {
        if self.is_stopped {
            return None;
        }
        let (handlers, claiming, unrecorded) = (self.handlers, self.claiming, self.settling.unrecorded());
        let held = self.batch.waiting_dead_letters() + self.lookups.under_way();
        let looks_up = self.looks_up();
        let Batch { records, lanes, entities, .. } = &mut self.batch;
        let budget = |queues: &Queues, records: &Records<S, T>| {
            let (ready, waiting) = queues.claimed(lanes, records);
            self.pace.budget(Standing { ready, claiming, waiting, running: handlers, unrecorded })
        };
        let next = if looks_up {
            Next::Call(self.queues.next_looked_up(lanes, entities, records, budget))
        } else {
            self.queues.next_claim(lanes, entities, records, &self.pace, held, budget)
        };
        let taken = match next {
            Next::Decode(index, info, body) => return Some(Step::Decode(index, info, body)),
            Next::Call(taken) => taken,
        };
        let mut candidates = Vec::with_capacity(taken.len());
        for index in taken {
            candidates.extend(records.claim(index).map(|operation| (index, entities.candidate(index, operation))));
        }
        self.claiming += candidates.len();
        (!candidates.is_empty()).then_some(Step::Call(Action::Claim(candidates, self.now)))
    }

    /// Step 10 of [`turn`](Self::turn): begins a handler, after calls that must not wait for it.
    fn begin(&mut self) -> Option<Step<S, T>> {
        if self.is_stopped || !self.pace.has_free_slot(self.handlers) || !self.queues.can_begin(&self.batch.lanes) {
            return None;
        }
        if let Some(call) = self.settling.call_before_a_handler(self.now) {
            self.owes_turn = true;
            return Some(Step::Call(call));
        }
        // Work polled in the turn itself may also take long.
        let is_stale = !self.is_turn_fresh && self.now.since(self.last_turn) > MAX_TIME_WITHOUT_TURN;
        if self.calls > 0 && (self.owes_turn || is_stale) {
            return Some(Step::Yield);
        }
        let index = self.next_ready()?;
        let is_alone = self.terms.bulk_size == 1 || self.is_alone(index);
        let (begin_by, stop) = (self.pace.begin_by(), self.stop_of(index));
        let bounds = Bounds { begin_by, stop, deadline: self.window.deadline() };
        self.queues.take_ready(index);
        let run = self.batch.records.begin(index)?;
        self.is_turn_fresh = false;
        self.handlers += 1;
        self.pace.began(self.now);
        Some(if is_alone { Step::Begin(run, bounds) } else { self.begin_together(run, bounds) })
    }

    /// Returns the next record to begin. Records that share a call go first, because a crash would leave many claims
    /// that never began. A record that took over has already lost an outcome.
    fn next_ready(&self) -> Option<usize> {
        let lanes = &self.batch.lanes;
        let together = || self.queues.find_ready(lanes, |index| !self.is_alone(index));
        let first = if self.terms.bulk_size > 1 { together() } else { None };
        first.or_else(|| self.queues.find_ready(lanes, |_| true))
    }

    /// Returns whether the record runs alone although the handler takes several, because it is probed first, is
    /// cancelled earlier than others, or would use up its last delivery behind a failure in the same call (B11).
    fn is_alone(&self, index: usize) -> bool {
        let is_probed = self.terms.probes && self.batch.records.claim_of(index).is_some_and(Claim::took_over);
        let may_not_be_reached = self.terms.takes_consecutive && self.batch.is_last_in_order(index);
        is_probed || may_not_be_reached || self.stop_of(index) < self.window.stop
    }

    /// Begins this record together with others that may begin.
    #[inline(never)]
    fn begin_together(&mut self, first: Run<T>, bounds: Bounds) -> Step<S, T> {
        let mut together = vec![first];
        while together.len() < self.terms.bulk_size
            && let Some(index) = self.next_together(&together)
        {
            self.queues.take_ready(index);
            together.extend(self.batch.records.begin(index));
        }
        Step::BeginTogether(together, bounds)
    }

    /// Returns the next record that begins together with these: one whose turn it is or, if the handler takes
    /// consecutive ones, one behind them in a lane.
    fn next_together(&self, together: &[Run<T>]) -> Option<usize> {
        let lanes = &self.batch.lanes;
        let is_among = |index: usize| together.iter().any(|run| run.index == index);
        let follows = |index: usize| self.terms.takes_consecutive && lanes.may_start_with(index, is_among);
        self.queues.find(|index| (lanes.may_start(index) || follows(index)) && !self.is_alone(index))
    }

    /// Returns the time at which the record's handler is cancelled, usually the handler deadline. On its last delivery
    /// it is cancelled earlier, because a handler that hangs would take the records behind it to the dead-letter queue
    /// (B11).
    fn stop_of(&self, index: usize) -> Timestamp {
        if !self.batch.may_be_dead_lettered(index) || !self.batch.lanes.has_followers(index) {
            return self.window.stop;
        }
        let half = self.window.stop.since(self.now) / 2;
        let time = self.terms.options.last_attempt_timeout.unwrap_or(half.max(SHORTEST_RUN));
        self.now.after(time).min(self.window.stop)
    }

    /// Step 11 of [`turn`](Self::turn): records the due outcomes in one call. Outcomes wait for each other only during
    /// one turn of the runtime.
    fn settle(&mut self) -> Option<Step<S, T>> {
        // Once nothing more begins, there is no time to wait for a pending call.
        if !self.settling.is_due() || self.settling.waits_for_a_call() && !self.is_stopped {
            return None;
        }
        Some(self.settling.call_after_a_turn().map_or(Step::Yield, Step::Call))
    }

    /// Step 12 of [`turn`](Self::turn): waits. If nothing is pending or waiting, nothing more can begin.
    fn wait(&mut self) -> Step<S, T> {
        let is_under_way = self.calls > 0 || self.handlers > 0;
        // At the handler deadline, available work must not wait for pending calls.
        let is_at_hand = self.settling.is_due() || self.queues.any_ready();
        let wakes_at = self.waits.wakes_at();
        let may_be_late = is_under_way && is_at_hand || wakes_at.is_some();
        let stop = (may_be_late && !self.is_stopped).then_some(self.window.stop);
        match wakes_at.into_iter().chain(stop).min() {
            None if !is_under_way && self.is_stopped => Step::Done,
            None if !is_under_way => {
                self.is_stopped = true;
                Step::Poll
            }
            until => Step::Wait(until),
        }
    }

    /// Notes a turn of the runtime.
    pub(super) fn had_turn(&mut self, now: Timestamp) {
        self.last_turn = now;
        self.owes_turn = false;
        self.is_turn_fresh = true;
    }

    /// Notes that the pending calls have been polled for this long.
    pub(super) fn polled(&mut self, took: Duration, is_first_of_handler: bool) {
        self.pace.polled(took, is_first_of_handler);
    }

    /// Returns one report for each record, in the order of the event.
    pub(super) fn into_reports(self) -> Vec<RecordReport> {
        self.batch.into_reports()
    }
}
