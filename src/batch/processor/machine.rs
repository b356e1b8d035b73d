//! The course of one batch, as a machine without time and calls of its own: it is told what happened, and says what to
//! begin next. The order of what happens is [`Machine::turn`].

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
    time::Duration,
};

use super::{
    actions::{Action, Event, Step},
    lanes::Lanes,
    pace::{Budget, Pace, Standing},
    records::{Follows, Records, Work},
    waits::Waits,
};
use crate::{
    batch::{
        Answer, Options, RecordInfo,
        report::{Decision, outcome_of},
        source::Source,
    },
    clock::Timestamp,
    error::Error,
    idempotency::{
        Idempotency, Outcome,
        claim::Claim,
        engine::{Candidate, ClaimAnswer, End, LeaseWait, Polled, Unsettled, WaitStep},
        guard::Bounds,
        window::Window,
    },
    record::{Fingerprint, KeyHash},
    store::{Refusal, rules::lapses},
};

/// How many records may be decoded and wait for their turn: to be claimed, to run, or to be dead-lettered.
const LOOK_AHEAD: usize = 100;

/// How many records are dead-lettered at once.
const MAX_DEAD_LETTERS_IN_FLIGHT: usize = 10;

/// For how long an outcome may wait to be recorded, and the runtime for its turn, when another handler is about to begin:
/// that one may block its thread.
const MAX_DELAY: Duration = Duration::from_millis(2);

/// A record that runs.
pub(super) struct Run<T> {
    pub(super) index: usize,
    pub(super) payload: T,
    pub(super) claim: Option<Claim>,
    pub(super) info: Arc<RecordInfo>,
}

/// A key's hash is as good as random already: its last bytes will do.
#[derive(Default)]
pub(super) struct TruncatingHasher(u64);

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

/// What the machine needs to know of its service.
pub(super) struct Terms<'a> {
    pub(super) options: &'a Options,
    pub(super) engine: &'a Idempotency,
    /// Whether records whose claim took over are probed, each by itself.
    pub(super) probes: bool,
    /// How many records a handler takes at once.
    pub(super) bulk_size: usize,
}

pub(super) struct Machine<'a, S: Source, T> {
    pub(super) terms: Terms<'a>,
    pub(super) records: Records<S, T>,
    pub(super) lanes: Lanes,
    /// Records that are to be dead-lettered, and what is said of them if that fails.
    pub(super) dead: VecDeque<(usize, Decision)>,
    /// The first record that was reported.
    pub(super) first_reported: Option<usize>,
    /// Whether something may no longer run, or wait in vain.
    pub(super) may_be_futile: bool,
    window: Window,
    pace: Pace,
    leaders: Leaders,
    waits: Waits,
    /// The time of this turn: what is due and what is waited for must be told apart by one reading of the clock.
    now: Timestamp,
    /// Nothing begins any more.
    is_stopped: bool,
    /// Records that want a claim, and those that want another one since their key may be free.
    decoded: Vec<usize>,
    free: Vec<usize>,
    ready: VecDeque<usize>,
    /// While records are decoded for a claim.
    filling: Option<Filling>,
    /// Ends that are to be recorded by the next call, and since when the first of them is.
    due: Vec<(usize, End<()>)>,
    due_since: Timestamp,
    /// Ends that the store had trouble with.
    unsettled: Vec<(usize, Unsettled<()>)>,
    turns: Turns,
    in_flight: InFlight,
}

/// The turns that the runtime had: calls to the store proceed in them only.
struct Turns {
    last: Timestamp,
    /// Whether it gets one before another handler begins.
    is_owed: bool,
    /// Whether it had one since something became due.
    since_due: bool,
}

/// A claim for which records are being decoded.
#[derive(Clone, Copy)]
struct Filling {
    budget: Budget,
    /// How many of them can begin without a claim.
    unprotected: usize,
}

/// What is under way.
#[derive(Default)]
struct InFlight {
    /// Calls of all kinds, other than handlers.
    calls: usize,
    /// First calls that settle.
    settles: usize,
    dead_letters: usize,
    handlers: usize,
    /// Records whose claims are being made.
    claiming: usize,
    /// Records that have run and are not recorded.
    unrecorded: usize,
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
        let count = records.len();
        Self {
            terms,
            records: Records::new(source, records),
            lanes,
            dead: VecDeque::new(),
            first_reported: None,
            may_be_futile: false,
            window,
            pace,
            leaders: HashMap::with_capacity_and_hasher(count, BuildHasherDefault::default()),
            waits: Waits::new(),
            now,
            is_stopped: false,
            decoded: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            filling: None,
            due: Vec::new(),
            due_since: now,
            unsettled: Vec::new(),
            turns: Turns { last: now, is_owed: false, since_due: false },
            in_flight: InFlight::default(),
        }
    }

    /// What to do next, at `now`. In this order:
    ///
    /// 1. when no further record could end before the stop point, nothing begins any more (B5);
    /// 2. what can no longer run is given up, and its claims are released;
    /// 3. what no retry can help is dead-lettered;
    /// 4. outcomes that fill a call are recorded, and all of them when nothing begins any more;
    /// 5. records that wait for their keys are polled (B6);
    /// 6. records are decoded and claimed, as far ahead as they may be (B12);
    /// 7. whatever has ended is heard of, unless what is under way `is_quiet`;
    /// 8. a handler begins, after outcomes that wait and the runtime had their turn: it may block its thread;
    /// 9. with nothing left to begin, the outcomes that are due are recorded by one call;
    /// 10. and then there is only to wait.
    pub(super) fn turn(&mut self, now: Timestamp, is_quiet: bool) -> Step<S, T> {
        self.now = now;
        self.is_stopped |= !self.pace.in_time(now);
        let step = self
            .give_up()
            .or_else(|| self.dead_letter())
            .or_else(|| self.settle_a_full_call())
            .or_else(|| self.poll())
            .or_else(|| self.claim())
            .or_else(|| (!is_quiet).then_some(Step::Poll))
            .or_else(|| self.begin())
            .or_else(|| self.settle_the_rest())
            .unwrap_or_else(|| self.wait());
        self.in_flight.calls += usize::from(matches!(step, Step::Call(_)));
        step
    }

    /// 2. What can no longer run: everything when nothing begins any more; before that what a failure blocks, and what
    /// waits in vain.
    fn give_up(&mut self) -> Option<Step<S, T>> {
        let mut claims = Vec::new();
        if self.is_stopped {
            self.end_waits(|_, _, _| true);
            for index in self.decoded.drain(..).chain(self.ready.drain(..)) {
                claims.extend(self.records.give_up(index));
            }
        }
        // To decide one may block more, so they are looked for anew each time.
        while self.lanes.take_change() | std::mem::take(&mut self.may_be_futile) {
            self.end_waits(Self::waits_in_vain);
            for index in self.take_blocked() {
                claims.extend(self.decide(index, Ok(Outcome::Skipped), None));
            }
        }
        (!claims.is_empty()).then_some(Step::Call(Action::Release(claims)))
    }

    /// Takes out what a failure blocks.
    fn take_blocked(&mut self) -> Vec<usize> {
        let Self { lanes, decoded, free, ready, dead, .. } = self;
        let mut blocked = Vec::new();
        if lanes.any_failed() {
            blocked.extend(decoded.extract_if(.., |index| lanes.is_blocked(*index)));
            blocked.extend(free.extract_if(.., |index| lanes.is_blocked(*index)));
            ready.retain(|index| !(lanes.is_blocked(*index) && push(&mut blocked, *index)));
            // What was decided before the batch was stopped stands, unless its own lane has failed.
            dead.retain(|(index, _)| !(lanes.has_failed(*index) && push(&mut blocked, *index)));
        }
        blocked
    }

    /// Ends the waits of which `is_over` holds.
    fn end_waits(&mut self, is_over: impl Fn(&Self, usize, &LeaseWait) -> bool) {
        for index in self.waits.indices().chain(self.free.iter().copied()).collect::<Vec<_>>() {
            let Some(wait) = self.records.wait_of(index).filter(|wait| is_over(self, index, wait)) else { continue };
            let refusal = wait.refusal().clone();
            self.stop_waiting(index);
            if self.lanes.is_blocked(index) {
                self.decide(index, Ok(Outcome::Skipped), None);
            } else {
                self.refuse(index, refusal);
            }
        }
    }

    /// Whether the record cannot run any more when its key is free, or its outcome no longer changes the answer (B6).
    fn waits_in_vain(&self, index: usize, wait: &LeaseWait) -> bool {
        self.lanes.is_blocked(index)
            || self.is_answer_fixed(index)
            || wait.free_at().is_some_and(|free_at| !self.pace.in_time(free_at))
    }

    /// Whether the answer is the same whatever becomes of the record.
    fn is_answer_fixed(&self, index: usize) -> bool {
        self.first_reported.is_some_and(|reported| match S::ANSWER {
            Answer::EachRecord => false,
            Answer::FirstFailure => reported < index,
            Answer::AllOrNothing => true,
        })
    }

    fn stop_waiting(&mut self, index: usize) {
        if let Some(wait) = self.records.wait_of(index)
            && !self.waits.remove(index, wait)
        {
            self.free.retain(|free| *free != index);
        }
    }

    /// 3. In an order the record's turn must have come: behind one that fails it is delivered again.
    fn dead_letter(&mut self) -> Option<Step<S, T>> {
        if self.in_flight.dead_letters >= MAX_DEAD_LETTERS_IN_FLIGHT {
            return None;
        }
        let at = self.dead.iter().position(|(index, _)| self.lanes.has_its_turn(*index))?;
        let (index, decision) = self.dead.remove(at)?;
        let body = self.records.take_body(index)?.as_ref().to_vec();
        self.in_flight.dead_letters += 1;
        let (info, key) = (self.records.info(index), self.records.key(index));
        Some(Step::Call(Action::DeadLetter { index, decision, info, body, key }))
    }

    /// 4. As many outcomes as one call takes are recorded at once; what the store had trouble with, apart from the others.
    fn settle_a_full_call(&mut self) -> Option<Step<S, T>> {
        if !self.unsettled.is_empty() {
            return Some(Step::Call(Action::SettleAgain(std::mem::take(&mut self.unsettled))));
        }
        let is_due = !self.due.is_empty() && (self.is_stopped || self.pace.fills_a_call(self.due.len()));
        is_due.then(|| self.settle())
    }

    fn settle(&mut self) -> Step<S, T> {
        self.in_flight.settles += 1;
        self.turns.since_due = false;
        let next = Vec::with_capacity(self.due.len());
        Step::Call(Action::Settle(std::mem::replace(&mut self.due, next)))
    }

    /// 5. Waits that are over end: with another claim, if the key is free. Of the others the records are polled.
    fn poll(&mut self) -> Option<Step<S, T>> {
        while let Some(index) = self.waits.next_end(self.now) {
            let Some(wait) = self.records.wait_of(index) else { break };
            self.waits.remove(index, wait);
            if wait.step(self.now) == WaitStep::Claim {
                self.free.push(index);
            } else {
                let refusal = wait.refusal().clone();
                self.refuse(index, refusal);
            }
        }
        let polled = self.waits.start_poll(self.now).into_iter();
        let candidates: Vec<(usize, Candidate)> =
            polled.filter_map(|index| Some((index, self.records.waits_for(index)?))).collect();
        (!candidates.is_empty()).then_some(Step::Call(Action::Poll(candidates)))
    }

    /// 6. Decodes a record, or claims those that are decoded.
    fn claim(&mut self) -> Option<Step<S, T>> {
        if self.is_stopped {
            return None;
        }
        let filling = self.filling.take();
        let filling = filling.unwrap_or_else(|| Filling { budget: self.pace.budget(self.standing()), unprotected: 0 });
        let budget = filling.budget;
        let mut taken = take_for_claims(&mut self.free, &self.lanes, budget);
        if taken.is_empty() {
            if self.wants_more(filling)
                && let Some((index, info, body)) = self.records.open_next()
            {
                self.filling = Some(filling);
                return Some(Step::Decode(index, info, body));
            }
            taken = take_for_claims(&mut self.decoded, &self.lanes, budget);
        }
        let mut candidates = Vec::with_capacity(taken.len());
        for index in taken {
            candidates.extend(self.records.claim(index).map(|candidate| (index, candidate)));
        }
        self.in_flight.claiming += candidates.len();
        (!candidates.is_empty()).then_some(Step::Call(Action::Claim(candidates, self.now)))
    }

    /// Whether to decode another record before claiming. They are decoded in the order of the event, since of several with
    /// one key the first one counts; but the turn of a later one may come first, in another lane. What a failure blocks is
    /// decoded too, since others may have its key, unless that is all that is left.
    fn wants_more(&self, Filling { budget, unprotected }: Filling) -> bool {
        let held = self.decoded.len() + self.ready.len() + self.dead.len();
        if self.records.are_all_open() || self.lanes.are_halted() || held >= LOOK_AHEAD.max(self.pace.most_ahead()) {
            return false;
        }
        if !self.lanes.are_several() {
            return self.decoded.len() + unprotected < budget.total;
        }
        let can_begin = self.decoded.iter().filter(|index| self.lanes.may_start(**index)).count();
        can_begin + unprotected < budget.total
    }

    fn standing(&self) -> Standing {
        let (mut ready, mut waiting) = (self.ready.len(), 0);
        if self.lanes.any_order() {
            let (can_begin, cannot): (Vec<usize>, Vec<usize>) =
                self.ready.iter().partition(|index| self.lanes.may_start(**index));
            ready = can_begin.len();
            waiting = cannot.iter().filter(|index| self.records.claim_of(**index).is_some()).count();
        }
        let InFlight { claiming, handlers, unrecorded, .. } = self.in_flight;
        Standing { ready, claiming, waiting, running: handlers, unrecorded }
    }

    /// 8. A handler begins, after what must not wait for it.
    fn begin(&mut self) -> Option<Step<S, T>> {
        if self.is_stopped || !self.pace.has_free_slot(self.in_flight.handlers) {
            return None;
        }
        let first = self.next_ready()?;
        if !self.due.is_empty() && self.now.since(self.due_since) > MAX_DELAY {
            self.turns.is_owed = true;
            return Some(self.settle());
        }
        if self.in_flight.calls > 0 && (self.turns.is_owed || self.now.since(self.turns.last) > MAX_DELAY) {
            return Some(Step::Yield);
        }
        let index = self.ready.remove(first)?;
        let bounds = Bounds { begin_by: self.pace.begin_by(), stop: self.stop_of(index) };
        let run = self.records.begin(index)?;
        self.in_flight.handlers += 1;
        self.pace.began(self.now);
        if self.terms.bulk_size == 1 || self.is_probed(run.claim.as_ref()) {
            return Some(Step::Begin(run, bounds));
        }
        Some(self.begin_together(run, bounds))
    }

    /// Hands over together with this record what may begin too.
    fn begin_together(&mut self, first: Run<T>, mut bounds: Bounds) -> Step<S, T> {
        let mut together = vec![first];
        while together.len() < self.terms.bulk_size
            && let Some(at) = self.ready.iter().position(|index| self.lanes.may_start(*index) && !self.is_alone(*index))
            && let Some(index) = self.ready.remove(at)
        {
            bounds.stop = bounds.stop.min(self.stop_of(index));
            together.extend(self.records.begin(index));
        }
        Step::BeginTogether(together, bounds)
    }

    /// The next record whose turn it is, by its place among those that are ready. Those that go together go first: a crash
    /// would leave the claims of many that never began. What took over has lost an outcome before.
    fn next_ready(&self) -> Option<usize> {
        let can_begin = |index: &usize| self.lanes.may_start(*index);
        let first = self.ready.iter().position(|index| can_begin(index) && !self.is_alone(*index));
        first.or_else(|| self.ready.iter().position(can_begin))
    }

    /// Whether the record is handed over by itself, although the handler takes several.
    fn is_alone(&self, index: usize) -> bool {
        self.terms.bulk_size > 1 && self.is_probed(self.records.claim_of(index))
    }

    fn is_probed(&self, claim: Option<&Claim>) -> bool {
        self.terms.probes && claim.is_some_and(Claim::took_over)
    }

    /// When the record's handler is cut off: at the stop point. On its last delivery one that hangs would take those behind
    /// it along to the dead-letter queue, so it is cut off earlier (B11).
    fn stop_of(&self, index: usize) -> Timestamp {
        if !(self.records.has_body(index) && self.is_last_in_order(index) && self.lanes.has_followers(index)) {
            return self.window.stop;
        }
        let half = self.window.stop.since(self.now) / 2;
        self.now.after(self.terms.options.longest_run.unwrap_or(half)).min(self.window.stop)
    }

    /// 9. Whatever ends at the same time shares one call: nothing is waited for but a turn of the runtime.
    fn settle_the_rest(&mut self) -> Option<Step<S, T>> {
        if self.due.is_empty() || self.in_flight.settles > 0 {
            return None;
        }
        Some(if std::mem::replace(&mut self.turns.since_due, true) { self.settle() } else { Step::Yield })
    }

    /// 10. With nothing under way and nothing to wait for, nothing more can begin.
    fn wait(&mut self) -> Step<S, T> {
        let is_under_way = self.in_flight.calls > 0 || self.in_flight.handlers > 0;
        // At the stop point what is at hand must not wait for what is under way.
        let is_at_hand = !self.due.is_empty() || !self.ready.is_empty();
        let stop = (is_under_way && is_at_hand && !self.is_stopped).then_some(self.window.stop);
        match self.waits.wakes_at().into_iter().chain(stop).min() {
            None if !is_under_way && self.is_stopped => Step::Done,
            None if !is_under_way => {
                self.is_stopped = true;
                Step::Poll
            }
            until => Step::Wait(until),
        }
    }

    /// The runtime had its turn.
    pub(super) fn had_turn(&mut self, now: Timestamp) {
        self.turns.last = now;
        self.turns.is_owed = false;
    }

    /// What is under way has been polled for this long.
    pub(super) fn polled(&mut self, took: Duration, is_first_of_handler: bool) {
        self.pace.polled(took, is_first_of_handler);
    }

    /// A record has been decoded, and its key found; or not.
    pub(super) fn decoded(&mut self, index: usize, body: S::Body, work: Result<Work<T>, Error>) {
        if self.terms.options.dead_letters.is_some() {
            self.records.keep_body(index, body);
        }
        let work = match work {
            Ok(work) => work,
            Err(error) => {
                self.decide(index, Err(error), None);
                return;
            }
        };
        let Some(candidate) = work.candidate else {
            self.records.unprotected(index, work);
            self.ready.push_back(index);
            self.may_be_futile |= self.lanes.is_blocked(index);
            if let Some(filling) = &mut self.filling {
                filling.unprotected += usize::from(self.lanes.may_start(index));
            }
            return;
        };
        match self.leaders.get(&candidate.key) {
            Some(&(leader, theirs)) => {
                let follows = Follows { leader, same_payload: theirs == candidate.fingerprint };
                self.records.follow(index, work, follows);
                self.lanes.wait_for(index, leader);
                if self.lanes.is_ordered(index) {
                    self.move_on(index);
                }
            }
            None => {
                self.leaders.insert(candidate.key, (index, candidate.fingerprint));
                self.records.decoded(index, work);
                self.decoded.push(index);
                self.may_be_futile |= self.lanes.is_blocked(index);
            }
        }
    }

    /// Something that was under way has ended, at `now`.
    pub(super) fn ended(&mut self, event: Event, now: Timestamp) {
        self.now = now;
        self.in_flight.calls -= usize::from(!matches!(event, Event::Ran(..) | Event::RanTogether(..)));
        match event {
            Event::Ran(index, end, begun) => {
                self.handler_ended(1, begun);
                self.ran(index, end);
            }
            Event::RanTogether(ran, begun) => {
                self.handler_ended(ran.len(), begun);
                ran.into_iter().for_each(|(index, end)| self.ran(index, end));
            }
            Event::Released => {}
            Event::Claimed(answers, begun) => {
                self.in_flight.claiming -= answers.len();
                self.pace.claimed(now.since(begun));
                answers.into_iter().for_each(|(index, answer)| self.claimed(index, answer));
            }
            Event::Settled(settled) => {
                self.in_flight.settles -= 1;
                for (index, settled) in settled {
                    match settled {
                        Ok(end) => self.recorded(index, end),
                        Err(unsettled) => self.unsettled.push((index, unsettled)),
                    }
                }
            }
            Event::SettledAgain(ends) => ends.into_iter().for_each(|(index, end)| self.recorded(index, end)),
            Event::Polled(polled) => {
                self.waits.end_poll();
                polled.into_iter().for_each(|(index, polled)| self.polled_record(index, polled));
            }
            Event::DeadLettered(index, decision, sent) => {
                self.in_flight.dead_letters -= 1;
                self.dead_lettered(index, decision, sent);
            }
        }
    }

    fn handler_ended(&mut self, records: usize, begun: Timestamp) {
        self.in_flight.handlers -= 1;
        let is_longest = self.pace.ended(records, begun, self.now, self.in_flight.handlers == 0);
        self.may_be_futile |= is_longest;
    }

    /// The handler of a record has ended, and that may have to be recorded.
    fn ran(&mut self, index: usize, end: End<()>) {
        if !end.is_due() {
            let held_until = end.held_until();
            self.decide(index, Ok(ended(end)), held_until);
            return;
        }
        if end.is_release() && !self.may_be_dead_lettered(index) {
            self.lanes.fail(index);
        }
        if self.due.is_empty() {
            self.due_since = self.now;
        }
        self.in_flight.unrecorded += 1;
        self.records.settle(index);
        self.due.push((index, end));
    }

    fn recorded(&mut self, index: usize, end: End<()>) {
        self.in_flight.unrecorded -= 1;
        let held_until = end.held_until();
        self.decide(index, Ok(ended(end)), held_until);
    }

    fn claimed(&mut self, index: usize, answer: Result<ClaimAnswer, Error>) {
        let refusal = match answer {
            Ok(ClaimAnswer::Granted(claim)) => {
                self.records.granted(index, claim);
                self.may_be_futile |= self.lanes.is_blocked(index);
                return self.ready.push_back(index);
            }
            Ok(ClaimAnswer::Refused(refusal)) => refusal,
            Ok(ClaimAnswer::OutOfTime) => {
                self.decide(index, Ok(Outcome::NotStarted), None);
                return;
            }
            Err(error) => {
                self.decide(index, Err(error), None);
                return;
            }
        };
        if !self.may_wait(index, &refusal) {
            return self.refuse(index, refusal);
        }
        let ends = self.now.after(self.terms.options.wait_up_to);
        let wait = LeaseWait::new(refusal, self.now, ends, self.terms.engine.settings.skew_margin);
        self.waits.insert(index, &wait);
        self.records.wait(index, wait);
    }

    /// Whether the record waits for its key (B6): where to fail at once would block those behind it or spend one of few
    /// tries, if the lease in the way ends while there is time to run, and once.
    fn may_wait(&self, index: usize, refusal: &Refusal) -> bool {
        let Some(lease_until) = lease_of(refusal) else { return false };
        (S::WAITS_FOR_LEASE || self.lanes.is_ordered(index))
            && !self.records.has_waited(index)
            && !self.is_stopped
            && !self.lanes.is_blocked(index)
            && !self.is_answer_fixed(index)
            && self.pace.in_time(lapses(lease_until, self.terms.engine.settings.skew_margin))
    }

    fn polled_record(&mut self, index: usize, polled: Result<Polled, Error>) {
        let Some(wait) = self.records.wait_mut(index) else { return };
        let is_waiting = self.waits.remove(index, wait);
        let outcome = match polled {
            Ok(polled) => match wait.polled(polled, self.now) {
                // It waits on, or is about to be claimed.
                None => {
                    if is_waiting {
                        self.waits.insert(index, wait);
                    }
                    // Its lease may have been renewed for too long.
                    self.may_be_futile = true;
                    return;
                }
                Some(refusal) => Ok(outcome_of(refusal)),
            },
            Err(error) => Err(error),
        };
        self.stop_waiting(index);
        self.decide(index, outcome, None);
    }

    /// The claim was refused for good.
    fn refuse(&mut self, index: usize, refusal: Refusal) {
        let held_until = lease_of(&refusal);
        self.decide(index, Ok(outcome_of(refusal)), held_until);
    }
}

/// Adds to a list, in a condition.
fn push(list: &mut Vec<usize>, index: usize) -> bool {
    list.push(index);
    true
}

/// The lease of whoever holds the key.
fn lease_of(refusal: &Refusal) -> Option<Timestamp> {
    match refusal {
        Refusal::InProgress { lease_until, .. } => *lease_until,
        _ => None,
    }
}

fn ended(end: End<()>) -> Outcome<()> {
    let Ok(outcome) = end.into_outcome(|refusal| Ok::<_, Infallible>(outcome_of(refusal)));
    outcome
}

/// Takes records out that may be claimed: first what can begin at once, then what comes next in its order.
fn take_for_claims(records: &mut Vec<usize>, lanes: &Lanes, budget: Budget) -> Vec<usize> {
    let mut taken = Vec::with_capacity(budget.total.min(records.len()));
    taken.extend(records.extract_if(.., |index| lanes.may_start(*index)).take(budget.total));
    let ahead = budget.ahead.min(budget.total - taken.len());
    taken.extend(records.extract_if(.., |index| !lanes.is_blocked(*index)).take(ahead));
    taken
}
