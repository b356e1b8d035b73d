//! The state of one invocation: its records, from event to outcome.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use lambda_runtime::Context;

use super::{
    Options, PermanentFailures,
    context::RecordInfo,
    lanes::Lanes,
    report::{RecordOutcome, Report},
    schedule::Schedule,
    source::Source,
};
use crate::{
    Claim, Outcome,
    clock::Timestamp,
    idempotency::{
        engine::{Candidate, Due},
        guard::contain,
        window::Window,
    },
    key::hash::KeyHasher,
    record::{Fingerprint, KeyHash},
    telemetry::event_at,
};

/// A record that can run.
pub(super) struct Ready<T> {
    pub(super) index: usize,
    pub(super) payload: T,
    pub(super) info: Arc<RecordInfo>,
    pub(super) claim: Option<Claim>,
    /// What to claim once more when the lease in its way has ended; `None` if that was done, or needs no claim.
    pub(super) again: Option<Candidate>,
}

impl<T> Ready<T> {
    /// The claim that is to be released. Dropping the payload runs code of the user's.
    pub(super) fn give_up(self) -> Option<Claim> {
        let Self { payload, claim, .. } = self;
        let _ = contain(|| drop(payload));
        claim
    }
}

/// A record whose handler has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) index: usize,
    pub(super) at: Timestamp,
}

/// A record's place behind an earlier one with the same key.
#[derive(Clone, Copy)]
pub(super) struct Follows {
    pub(super) leader: usize,
    /// Whether its payload is the leader's too.
    pub(super) same_payload: bool,
}

/// A record of the event.
enum Slot<R> {
    Incoming(R),
    /// Its body has been decoded.
    Open(Arc<RecordInfo>),
    /// Its outcome counts, and nothing more of it is needed.
    Acknowledged,
    /// Its outcome counts, and it is reported.
    Failed(Arc<RecordInfo>),
}

/// What is known of a record's outcome.
struct Decision {
    report: Report,
    error: Option<String>,
}

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

impl Follows {
    /// What is reported of the record, now that this is reported of the one before it.
    fn report(self, leader: Report, policy: PermanentFailures) -> Report {
        if self.same_payload {
            leader.of_follower()
        } else {
            Report::new(&Ok(Outcome::Mismatch), policy).of_misuse(leader)
        }
    }
}

/// The state of one invocation.
pub(super) struct Invocation<S: Source, T> {
    pub(super) lambda: Arc<Context>,
    /// Whose keys these are.
    pub(super) scope: KeyHasher,
    pub(super) window: Window,
    pub(super) schedule: Schedule,
    operation: String,
    records: Vec<Slot<S::Record>>,
    /// The order in which records are looked at, if it is not that of the event.
    order: Option<Vec<usize>>,
    /// How many records have been looked at.
    next: usize,
    pub(super) lanes: Lanes,
    policy: PermanentFailures,
    pub(super) ready: VecDeque<Ready<T>>,
    pub(super) running: usize,
    pub(super) claiming: bool,
    /// Claims whose handlers have ended, to be settled by the next call.
    pub(super) due: Vec<(usize, Due<()>)>,
    /// How many claims are due or being settled.
    pub(super) unsettled: usize,
    /// Whether a first call to settle is under way.
    pub(super) settling: bool,
    pub(super) stopped: bool,
    /// What became of each record, once that is known.
    decisions: Vec<Option<Decision>>,
    pub(super) keys: Vec<Option<KeyHash>>,
    /// For a key: the earliest record with it.
    pub(super) leaders: HashMap<KeyHash, (usize, Option<Fingerprint>), BuildHasherDefault<HashOfHash>>,
    /// For a record: the earlier one with its key.
    follows: Vec<Option<Follows>>,
}

impl<S: Source, T> Invocation<S, T> {
    pub(super) fn new(
        records: Vec<S::Record>,
        lambda: Context,
        operation: &str,
        scope: KeyHasher,
        window: Window,
        schedule: Schedule,
        options: &Options,
    ) -> Self {
        let count = records.len();
        let lanes = Lanes::new(records.iter().map(S::lane), options.on_failure);
        Self {
            lambda: Arc::new(lambda),
            scope,
            window,
            schedule,
            operation: operation.to_owned(),
            records: records.into_iter().map(Slot::Incoming).collect(),
            order: lanes.order(),
            next: 0,
            lanes,
            policy: options.permanent_failures,
            ready: VecDeque::new(),
            running: 0,
            claiming: false,
            due: Vec::new(),
            unsettled: 0,
            settling: false,
            stopped: false,
            decisions: (0..count).map(|_| None).collect(),
            keys: vec![None; count],
            leaders: HashMap::with_capacity_and_hasher(count, BuildHasherDefault::default()),
            follows: vec![None; count],
        }
    }

    /// The next record to be looked at. What a failure holds up is passed over.
    pub(super) fn next_incoming(&mut self) -> Option<(usize, Arc<RecordInfo>, String)> {
        while self.next < self.records.len() {
            let index = self.order.as_ref().map_or(Some(self.next), |order| order.get(self.next).copied())?;
            if self.schedule.claims_late() && !self.lanes.is_held_up(index) && !self.lanes.may_start(index) {
                return None;
            }
            self.next += 1;
            if self.lanes.is_held_up(index) {
                continue;
            }
            if let Slot::Incoming(record) = std::mem::replace(&mut self.records[index], Slot::Acknowledged) {
                let (info, body) = S::open(record);
                let info = Arc::new(info);
                self.records[index] = Slot::Open(Arc::clone(&info));
                return Some((index, info, body));
            }
        }
        None
    }

    /// How many records have been looked at.
    pub(super) fn seen(&self) -> usize {
        self.next
    }

    /// Whether every record has been looked at. If nothing is under way then, nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.next == self.records.len()
    }

    /// The next record whose turn it is.
    pub(super) fn next_ready(&mut self) -> Option<Ready<T>> {
        let at = self.ready.iter().position(|ready| self.lanes.may_start(ready.index))?;
        self.ready.remove(at)
    }

    /// Takes out the records that a failure holds up.
    pub(super) fn take_held_up(&mut self) -> Vec<Ready<T>> {
        if !self.lanes.any_failed() {
            return Vec::new();
        }
        let (held_up, ready) = self.ready.drain(..).partition::<Vec<_>, _>(|ready| self.lanes.is_held_up(ready.index));
        self.ready = ready.into();
        held_up
    }

    /// What became of a record is known. In an order it counts when the record's turn has come: behind one that failed it
    /// would not.
    pub(super) fn decide(&mut self, index: usize, outcome: &RecordOutcome) {
        let error = match outcome {
            // The text is the user's, and printing it may panic.
            Ok(Outcome::Failed(failure)) => contain(|| failure.to_string()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        self.decisions[index] = Some(Decision { report: Report::new(outcome, self.policy), error });
        self.move_on(index);
    }

    /// A record has the key of another one, and takes its outcome.
    pub(super) fn follow(&mut self, index: usize, follows: Follows) {
        self.follows[index] = Some(follows);
        self.lanes.follows(index, follows.leader);
        if self.lanes.is_ordered(index) {
            self.move_on(index);
        }
    }

    fn move_on(&mut self, index: usize) {
        let over = {
            let Self { lanes, decisions, follows, policy, .. } = self;
            let report = |index: usize| decisions[index].as_ref().map(|decision| decision.report);
            lanes.advance(index, |index| match follows[index] {
                None => report(index).map(|report| report.reported),
                Some(follows) => report(follows.leader).map(|leader| follows.report(leader, *policy).reported),
            })
        };
        if over.is_empty() && !self.lanes.is_waiting(index) {
            self.conclude(index);
        }
        for index in over {
            self.conclude(index);
        }
    }

    /// What a record's outcome is, if nothing more becomes known.
    fn report(&self, index: usize) -> Report {
        let own = |index: usize| {
            let decided = self.decisions[index].as_ref().map(|decision| decision.report);
            match decided {
                Some(report) if !self.lanes.is_waiting(index) => report,
                _ if self.lanes.is_held_up(index) => Report::new(&Ok(Outcome::Skipped), self.policy),
                Some(report) => report,
                None => Report::new(&Ok(Outcome::NotStarted), self.policy),
            }
        };
        match self.follows[index] {
            Some(follows) if !(self.lanes.is_held_up(index) && self.lanes.is_waiting(index)) => {
                follows.report(own(follows.leader), self.policy)
            }
            _ => own(index),
        }
    }

    /// Logs what became of a record, and lets it go if it is acknowledged.
    fn conclude(&mut self, index: usize) {
        let info = match std::mem::replace(&mut self.records[index], Slot::Acknowledged) {
            Slot::Incoming(record) => Arc::new(S::open(record).0),
            Slot::Open(info) => info,
            concluded => {
                self.records[index] = concluded;
                return;
            }
        };
        let Report { reported, outcome, level, .. } = self.report(index);
        let key = self.keys[index].map(tracing::field::display);
        let operation = &*self.operation;
        let error = self.decisions[index].as_mut().and_then(|decision| decision.error.take());
        event_at!(
            level,
            message_id = info.message_id,
            receive_count = info.receive_count,
            outcome,
            reported,
            operation,
            key,
            error,
            "record"
        );
        if reported {
            self.records[index] = Slot::Failed(info);
        }
    }

    /// The identifiers of the records that failed, in the order of the event.
    pub(super) fn into_failures(mut self) -> Vec<String> {
        // What has no outcome by now was not started, and holds up what is behind it as a failure does.
        for index in self.lanes.first() {
            self.conclude(index);
            self.lanes.fail(index);
        }
        for index in 0..self.records.len() {
            self.conclude(index);
        }
        let failures = self.records.into_iter().filter_map(|record| match record {
            Slot::Failed(info) => Some(info.message_id.clone()),
            _ => None,
        });
        failures.collect()
    }

    /// A handler has ended.
    pub(super) fn ended(&mut self, begun: Begun, now: Timestamp) {
        self.running -= 1;
        self.schedule.ran(now.since(begun.at));
    }

    /// How many records may be claimed now. Claimed records that wait for their turn do not count, as they wait for
    /// others of their lane and not for a handler; but there must not be too many of them.
    pub(super) fn claimable(&self) -> usize {
        let waiting = self.ready.iter().filter(|ready| !self.lanes.may_start(ready.index)).count();
        self.schedule.claimable(self.ready.len() - waiting, waiting, self.running, self.unsettled)
    }

    /// Whether there is something to settle, and no call under way that it has to wait for. After the stop point there
    /// is no time to wait.
    pub(super) fn may_settle(&self) -> bool {
        !self.due.is_empty() && (!self.settling || self.stopped)
    }
}
