//! The state of one invocation: its records, from event to outcome.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use lambda_runtime::Context;

use super::{
    Options, PermanentFailures,
    context::RecordInfo,
    lanes::Lanes,
    report::{RecordOutcome, Report},
    schedule::Schedule,
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
};

/// A record as its source delivers it.
pub(super) struct Incoming {
    pub(super) info: Arc<RecordInfo>,
    pub(super) body: String,
    /// What the record's order is kept within; `None` if the source has no order.
    pub(super) lane: Option<String>,
}

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
pub(super) enum Slot {
    Incoming(Incoming),
    /// Its body has been decoded.
    Seen(Arc<RecordInfo>),
}

/// What is known of a record besides its outcome.
pub(super) struct Seen {
    pub(super) info: Arc<RecordInfo>,
    pub(super) key: Option<KeyHash>,
    pub(super) follows: Option<Follows>,
}

/// The state of one invocation.
pub(super) struct Invocation<T> {
    pub(super) lambda: Arc<Context>,
    /// Whose keys these are.
    pub(super) scope: KeyHasher,
    pub(super) window: Window,
    pub(super) schedule: Schedule,
    pub(super) records: Vec<Slot>,
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
    outcomes: Vec<Option<RecordOutcome>>,
    pub(super) keys: Vec<Option<KeyHash>>,
    /// For a key: the earliest record with it.
    pub(super) leaders: HashMap<KeyHash, (usize, Option<Fingerprint>)>,
    /// For a record: the earlier one with its key.
    pub(super) follows: Vec<Option<Follows>>,
}

impl<T> Invocation<T> {
    pub(super) fn new(
        incoming: Vec<Incoming>,
        lambda: Context,
        scope: KeyHasher,
        window: Window,
        schedule: Schedule,
        options: &Options,
    ) -> Self {
        let count = incoming.len();
        let lanes = Lanes::new(incoming.iter().map(|record| record.lane.as_deref()), options.on_failure);
        Self {
            lambda: Arc::new(lambda),
            scope,
            window,
            schedule,
            records: incoming.into_iter().map(Slot::Incoming).collect(),
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
            outcomes: (0..count).map(|_| None).collect(),
            keys: vec![None; count],
            leaders: HashMap::new(),
            follows: vec![None; count],
        }
    }

    /// The next record to be looked at. What a failure holds up is passed over.
    pub(super) fn next_incoming(&mut self) -> Option<(usize, Incoming)> {
        while self.next < self.records.len() {
            let index = self.order.as_ref().map_or(Some(self.next), |order| order.get(self.next).copied())?;
            if self.schedule.claims_late() && !self.lanes.is_held_up(index) && !self.lanes.may_start(index) {
                return None;
            }
            self.next += 1;
            if self.lanes.is_held_up(index) {
                continue;
            }
            if let Slot::Incoming(incoming) = &self.records[index] {
                let seen = Slot::Seen(Arc::clone(&incoming.info));
                if let Slot::Incoming(incoming) = std::mem::replace(&mut self.records[index], seen) {
                    return Some((index, incoming));
                }
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
    pub(super) fn decide(&mut self, index: usize, outcome: RecordOutcome) {
        self.outcomes[index] = Some(outcome);
        self.move_on(index);
    }

    /// A record has the key of another one, and takes its outcome.
    pub(super) fn follow(&mut self, index: usize, follows: Follows) {
        self.follows[index] = Some(follows);
        self.lanes.follows(index, follows.leader);
        if follows.same_payload {
            self.move_on(index);
        } else {
            self.decide(index, Ok(Outcome::Mismatch));
        }
    }

    fn move_on(&mut self, index: usize) {
        let Self { lanes, outcomes, follows, policy, .. } = self;
        let report = |index: usize| outcomes[index].as_ref().map(|outcome| Report::new(outcome, *policy));
        lanes.advance(index, |index| match follows[index] {
            None => report(index).map(|report| report.reported),
            Some(Follows { leader, same_payload: true }) => report(leader).map(|report| report.reported),
            Some(Follows { leader, .. }) => {
                let (own, leader) = (report(index)?, report(leader)?);
                Some(own.of_misuse(leader).reported)
            }
        });
    }

    /// What became of every record. What has no outcome was not started.
    pub(super) fn into_outcomes(self) -> (Vec<RecordOutcome>, Vec<Seen>) {
        let Self { outcomes, records, keys, follows, lanes, .. } = self;
        let outcome = |(index, outcome): (usize, Option<RecordOutcome>)| {
            outcome.unwrap_or_else(|| Ok(if lanes.is_held_up(index) { Outcome::Skipped } else { Outcome::NotStarted }))
        };
        let outcomes = outcomes.into_iter().enumerate().map(outcome).collect();
        let seen = records.into_iter().zip(keys).zip(follows).map(|((slot, key), follows)| Seen {
            info: match slot {
                Slot::Incoming(Incoming { info, .. }) | Slot::Seen(info) => info,
            },
            key,
            follows,
        });
        (outcomes, seen.collect())
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
