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
    /// It is acknowledged, whatever happens to the others. Nothing of it is needed any more.
    Done,
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
    pub(super) due: Vec<(Begun, Due<()>)>,
    /// How many claims are due or being settled.
    pub(super) unsettled: usize,
    /// Whether a first call to settle is under way.
    pub(super) settling: bool,
    pub(super) stopped: bool,
    /// What is reported of each record whose outcome is known.
    reports: Vec<Option<Report>>,
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
            reports: vec![None; count],
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
            if let Slot::Incoming(record) = std::mem::replace(&mut self.records[index], Slot::Done) {
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

    /// What became of a record is known.
    pub(super) fn decide(&mut self, index: usize, outcome: &RecordOutcome) {
        let report = Report::new(outcome, self.policy);
        self.reports[index] = Some(report);
        if let Slot::Open(info) = &self.records[index] {
            self.log(info, index, report, Some(outcome));
        }
        if !report.reported {
            self.records[index] = Slot::Done;
        }
        self.move_on(index);
    }

    /// A record has the key of another one, and takes its outcome.
    pub(super) fn follow(&mut self, index: usize, follows: Follows) {
        self.follows[index] = Some(follows);
        self.lanes.follows(index, follows.leader);
        self.move_on(index);
    }

    fn move_on(&mut self, index: usize) {
        let Self { lanes, reports, follows, policy, .. } = self;
        lanes.advance(index, |index| {
            let report = match follows[index] {
                None => reports[index]?,
                Some(follows) => follows.report(reports[follows.leader]?, *policy),
            };
            Some(report.reported)
        });
    }

    /// The identifiers of the records that failed, in the order of the event. What has no outcome by now was not started.
    pub(super) fn into_failures(mut self) -> Vec<String> {
        let own = |index: usize| {
            let outcome = if self.lanes.is_held_up(index) { Outcome::Skipped } else { Outcome::NotStarted };
            self.reports[index].unwrap_or_else(|| Report::new(&Ok(outcome), self.policy))
        };
        let report = |index: usize| match self.follows[index] {
            Some(follows) => follows.report(own(follows.leader), self.policy),
            None => own(index),
        };
        let reports: Vec<Report> = (0..self.records.len()).map(report).collect();
        let mut failures = Vec::new();
        for (index, (record, report)) in std::mem::take(&mut self.records).into_iter().zip(reports).enumerate() {
            let info = match record {
                Slot::Incoming(record) => Arc::new(S::open(record).0),
                Slot::Open(info) => info,
                Slot::Done => continue,
            };
            if self.reports[index].is_none() {
                self.log(&info, index, report, None);
            }
            if report.reported {
                failures.push(info.message_id.clone());
            }
        }
        failures
    }

    fn log(&self, info: &RecordInfo, index: usize, report: Report, outcome: Option<&RecordOutcome>) {
        let key = self.keys[index].map(tracing::field::display);
        let Report { reported, outcome: name, level, .. } = report;
        let operation = &*self.operation;
        let error = match outcome {
            // The text is the user's, and printing it may panic.
            Some(Ok(Outcome::Failed(failure))) => contain(|| failure.to_string()),
            Some(Err(error)) => Some(error.to_string()),
            _ => None,
        };
        event_at!(
            level,
            message_id = info.message_id,
            receive_count = info.receive_count,
            outcome = name,
            reported,
            operation,
            key,
            error,
            "record"
        );
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
