//! The state of one invocation: its records, from event to outcome.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
    time::Duration,
};

use super::{
    lanes::Lanes,
    schedule::{Room, Schedule},
    stages::{Begun, Follows, Patient, Ready, Slot},
    tasks::Task,
};
use crate::{
    Claim, Idempotency, OnPanic, Outcome,
    batch::{
        Options, PermanentFailures, RecordInfo,
        observer::Observer,
        report::{Decision, replayed},
        source::Source,
    },
    clock::Timestamp,
    idempotency::{engine::Due, window::Window},
    key::hash::KeyHasher,
    record::{Fingerprint, KeyHash},
};

/// How many records may have been decoded and wait for their turn: to be claimed, to run, or to be put aside.
const LOOK_AHEAD: usize = 100;

/// A key's hash is as good as random already: its last bytes will do.
#[derive(Default)]
pub(super) struct HashOfHash(u64);

impl Hasher for HashOfHash {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.0 = u64::from_ne_bytes(*last);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The state of one invocation.
pub(super) struct Invocation<S: Source, T> {
    pub(super) source: S,
    /// Whose keys these are.
    pub(super) scope: KeyHasher,
    pub(super) window: Window,
    pub(super) schedule: Schedule,
    pub(super) operation: String,
    pub(super) records: Vec<Slot<S::Record>>,
    /// The first record that has not been looked at.
    pub(super) next: usize,
    /// The time that the present turn goes by: what is due and what is waited for must be told apart by one reading.
    pub(super) now: Timestamp,
    pub(super) lanes: Lanes,
    pub(super) policy: PermanentFailures,
    pub(super) observer: Option<Observer>,
    pub(super) skew_margin: Duration,
    /// Whether the claim of a handler that panicked is released.
    pub(super) releases_panics: bool,
    pub(super) max_receive_count: Option<u32>,
    /// The bodies of records that may have to be put aside; empty if there is no place for that.
    pub(super) bodies: Vec<Option<S::Body>>,
    /// Records that are to be put aside, and what is to be said of them if that fails.
    pub(super) dead: Vec<(usize, Decision)>,
    /// How many are being put aside.
    pub(super) being_put_aside: usize,
    /// What is to be begun.
    pub(super) tasks: Vec<Task<T>>,
    /// Records that have been looked at and want a claim.
    pub(super) prepared: Vec<Ready<T>>,
    pub(super) ready: VecDeque<Ready<T>>,
    pub(super) patient: Vec<Patient<T>>,
    /// Whether a look at what is waited for is under way.
    pub(super) looking: bool,
    pub(super) running: usize,
    pub(super) claiming: bool,
    /// Claims whose handlers have ended, to be settled by the next call.
    pub(super) due: Vec<(usize, Claim, Due<()>)>,
    /// How many claims are due or being settled.
    pub(super) unsettled: usize,
    /// How many first calls to settle are under way.
    pub(super) settling: usize,
    /// Whether the runtime had its turn since something was due.
    pub(super) yielded: bool,
    pub(super) stopped: bool,
    /// What became of each record, once that is known.
    pub(super) decisions: Vec<Option<Decision>>,
    pub(super) keys: Vec<Option<KeyHash>>,
    /// For a key: the earliest record with it.
    pub(super) leaders: HashMap<KeyHash, (usize, Option<Fingerprint>), BuildHasherDefault<HashOfHash>>,
    /// For a record: the earlier one with its key.
    pub(super) follows: Vec<Option<Follows>>,
}

impl<S: Source, T> Invocation<S, T> {
    pub(super) fn new(
        source: S,
        records: Vec<S::Record>,
        tenant: Option<&str>,
        window: Window,
        engine: &Idempotency,
        options: &Options,
    ) -> Self {
        let settings = &engine.settings;
        let lanes = Lanes::new(records.iter().map(|record| source.lane(record)), options.on_failure);
        let schedule = Schedule::new(
            window.stop,
            options.expected_duration,
            options.concurrency,
            engine.store.limits().batch,
            settings.after_unknown,
            lanes.are_one_line(),
        );
        let scope = engine.scope(S::OPERATION, tenant.map(str::as_bytes)).hasher();
        let count = records.len();
        let bodies = if options.dead_letters.is_some() { count } else { 0 };
        Self {
            source,
            scope,
            window,
            schedule,
            operation: engine.log_name(S::OPERATION).into_owned(),
            records: records.into_iter().map(Slot::Incoming).collect(),
            next: 0,
            now: Timestamp::EPOCH,
            lanes,
            policy: if bodies > 0 { PermanentFailures::Report } else { options.permanent_failures },
            observer: options.observer.clone(),
            skew_margin: settings.skew_margin,
            releases_panics: settings.on_panic == OnPanic::Transient,
            max_receive_count: options.max_receive_count,
            bodies: (0..bodies).map(|_| None).collect(),
            dead: Vec::new(),
            being_put_aside: 0,
            tasks: Vec::new(),
            prepared: Vec::new(),
            ready: VecDeque::new(),
            patient: Vec::new(),
            looking: false,
            running: 0,
            claiming: false,
            due: Vec::new(),
            unsettled: 0,
            settling: 0,
            yielded: false,
            stopped: false,
            decisions: (0..count).map(|_| None).collect(),
            keys: vec![None; count],
            leaders: HashMap::with_capacity_and_hasher(count, BuildHasherDefault::default()),
            follows: vec![None; count],
        }
    }

    /// The next record to be looked at. What a failure holds up in its lane is looked at too: others may have its key.
    pub(super) fn next_incoming(&mut self) -> Option<(usize, Arc<RecordInfo>, S::Body)> {
        while self.next < self.records.len() {
            let index = self.next;
            self.next += 1;
            if !self.lanes.are_halted()
                && let Slot::Incoming(record) = std::mem::replace(&mut self.records[index], Slot::Acknowledged)
            {
                let (info, body) = self.source.open(record);
                let info = Arc::new(info);
                self.records[index] = Slot::Open(Arc::clone(&info));
                return Some((index, info, body));
            }
        }
        None
    }

    /// Whether to look at another record before claiming. They are looked at in the order of the event, as of several with
    /// one key the first one counts; but the turn of a record behind others may come first, in another lane.
    pub(super) fn wants_more(&self, room: Room) -> bool {
        if self.prepared.len() + self.ready.len() + self.dead.len() >= LOOK_AHEAD {
            return false;
        }
        let may_start = |ready: &&Ready<T>| self.lanes.may_start(ready.index);
        // What runs unprotected is ready already.
        let startable = self.ready.iter().filter(may_start).count();
        if !self.lanes.are_several() {
            return startable + self.prepared.len() < room.total;
        }
        startable + self.prepared.iter().filter(may_start).count() < room.total
    }

    /// Takes out what may be claimed: first what can start at once, then what comes next.
    pub(super) fn take_prepared(&mut self, room: Room) -> Vec<Ready<T>> {
        take_for_claims(&mut self.prepared, &self.lanes, room, |_| true, |ready| ready.index)
    }

    /// The next record whose turn it is, other than those that are to come later if they can.
    pub(super) fn next_ready(&mut self, comes_later: impl Fn(&Ready<T>) -> bool) -> Option<Ready<T>> {
        let can_start = |ready: &Ready<T>| self.lanes.may_start(ready.index);
        let first = self.ready.iter().position(|ready| can_start(ready) && !comes_later(ready));
        let at = first.or_else(|| self.ready.iter().position(can_start))?;
        self.ready.remove(at)
    }

    /// Takes out what may be handed over together with `first`, and is not to be handed over alone.
    pub(super) fn take_together(
        &mut self,
        first: Ready<T>,
        most: usize,
        is_alone: impl Fn(&Ready<T>) -> bool,
    ) -> Vec<Ready<T>> {
        let mut together = vec![first];
        while together.len() < most
            && let Some(at) = self.ready.iter().position(|ready| self.lanes.may_start(ready.index) && !is_alone(ready))
            && let Some(ready) = self.ready.remove(at)
        {
            together.push(ready);
        }
        together
    }

    /// Takes out what will not run: all that is left after the stop point; before it what a failure holds up, and what
    /// waits for a lease that ends too late by now. Returns the claims among it.
    pub(super) fn give_up(&mut self) -> Vec<Claim> {
        if self.stopped {
            for Patient { ready, refusal, .. } in std::mem::take(&mut self.patient) {
                self.decide(ready.index, Ok(replayed(refusal)));
                ready.give_up();
            }
            for ready in self.prepared.drain(..) {
                ready.give_up();
            }
            return self.ready.drain(..).filter_map(Ready::give_up).collect();
        }
        let mut claims = Vec::new();
        while let Some(at) = self.dead.iter().position(|(index, _)| self.lanes.has_failed(*index)) {
            let (index, _) = self.dead.swap_remove(at);
            self.decide(index, Ok(Outcome::Skipped));
        }
        // To decide one may hold up more, so they are looked for anew each time.
        while let Some((ready, outcome)) = self.take_lost() {
            self.decide(ready.index, Ok(outcome));
            claims.extend(ready.give_up());
        }
        claims
    }

    /// Takes out one record that will not run, and what became of it.
    fn take_lost(&mut self) -> Option<(Ready<T>, Outcome<()>)> {
        if self.lanes.any_failed()
            && let Some(ready) = self.take_held_up()
        {
            return Some((ready, Outcome::Skipped));
        }
        let at = self.patient.iter().position(|patient| !self.schedule.in_time(patient.until))?;
        let Patient { ready, refusal, .. } = self.patient.swap_remove(at);
        Some((ready, replayed(refusal)))
    }

    fn take_held_up(&mut self) -> Option<Ready<T>> {
        if let Some(at) = self.patient.iter().position(|patient| self.lanes.is_held_up(patient.ready.index)) {
            return Some(self.patient.swap_remove(at).ready);
        }
        if let Some(at) = self.prepared.iter().position(|ready| self.lanes.is_held_up(ready.index)) {
            return Some(self.prepared.remove(at));
        }
        let at = self.ready.iter().position(|ready| self.lanes.is_held_up(ready.index))?;
        self.ready.remove(at)
    }

    /// The next record to be put aside. In an order its turn must have come: behind one that fails it comes again.
    pub(super) fn take_dead(&mut self) -> Option<(usize, Decision)> {
        let at = self.dead.iter().position(|(index, _)| self.lanes.has_its_turn(*index))?;
        Some(self.dead.swap_remove(at))
    }

    /// These were to be handed over, and were not.
    pub(super) fn not_begun(&mut self, records: Vec<Ready<T>>) {
        self.running -= 1;
        self.ready.extend(records);
    }

    /// A handler has ended.
    pub(super) fn ended(&mut self, begun: Begun, now: Timestamp) {
        self.running -= 1;
        self.schedule.ran(now.since(begun.at));
    }

    /// How many records may be claimed now.
    pub(super) fn room(&self) -> Room {
        let (mut startable, mut waiting) = (0, 0);
        for ready in &self.ready {
            if self.lanes.may_start(ready.index) {
                startable += 1;
            } else if ready.claim.is_some() {
                waiting += 1;
            }
        }
        self.schedule.room(startable, waiting, self.running, self.unsettled)
    }

    /// Settles all that is due with one call.
    pub(super) fn settle(&mut self) {
        self.settling += 1;
        self.yielded = false;
        let next = Vec::with_capacity(self.due.len());
        self.tasks.push(Task::Settle(std::mem::replace(&mut self.due, next)));
    }

    /// Whether there is something to settle, and no call under way that it has to wait for. After the stop point there
    /// is no time to wait.
    pub(super) fn may_settle(&self) -> bool {
        !self.due.is_empty() && (self.settling == 0 || self.stopped)
    }
}

/// Takes records out that may be claimed: first what can start at once, then what comes next in its order.
pub(super) fn take_for_claims<R>(
    records: &mut Vec<R>,
    lanes: &Lanes,
    room: Room,
    may_be_taken: impl Fn(&R) -> bool,
    index: impl Fn(&R) -> usize,
) -> Vec<R> {
    let mut taken = Vec::with_capacity(room.total.min(records.len()));
    let can_start = |record: &mut R| may_be_taken(record) && lanes.may_start(index(record));
    taken.extend(records.extract_if(.., can_start).take(room.total));
    let ahead = room.ahead.min(room.total - taken.len());
    let comes_next = |record: &mut R| may_be_taken(record) && !lanes.is_held_up(index(record));
    taken.extend(records.extract_if(.., comes_next).take(ahead));
    taken
}
