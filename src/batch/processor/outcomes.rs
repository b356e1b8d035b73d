//! Outcomes: when each counts, what is said of it, and which records are reported.

use std::sync::Arc;

use super::{
    stages::{Follows, Slot},
    state::Invocation,
    tasks::Task,
};
use crate::{
    Interruption, Outcome, OutcomeKind, Verdict,
    batch::{
        PermanentFailures, RecordInfo,
        report::{Decision, RecordOutcome, RecordReport, Report},
        source::Source,
    },
    clock::Timestamp,
    idempotency::guard::contain,
    store::rules::lapses,
    telemetry::event_at,
};

impl Follows {
    /// What is reported of the record, now that this is reported of the one before it.
    fn report(self, leader: Report, policy: PermanentFailures) -> Report {
        if self.same_payload {
            leader.of_follower()
        } else {
            Report::new(Ok(OutcomeKind::Mismatch), policy).of_misuse(leader)
        }
    }
}

impl<S: Source, T> Invocation<S, T> {
    /// What became of a record is known. In an order it counts when the record's turn has come: behind one that failed it
    /// would not.
    pub(super) fn decide(&mut self, index: usize, outcome: RecordOutcome) {
        let lease_until = self.lease_until(&outcome);
        self.decide_held(index, outcome, lease_until);
    }

    /// The same, where the end of the lease is known that holds the record's key, if one does.
    pub(super) fn decide_held(&mut self, index: usize, outcome: RecordOutcome, lease_until: Option<Timestamp>) {
        let mut decision = Decision::new(&outcome, self.policy);
        let holds = |lease_until| self.keys[index].map(|_| lapses(lease_until, self.skew_margin));
        decision.held_until = lease_until.and_then(holds);
        // An error of the user's may panic when it is dropped.
        let _ = contain(|| drop(outcome));
        if self.is_dead(index, decision.report) {
            self.dead.push((index, decision));
        } else {
            self.decided(index, decision);
        }
    }

    /// What is to be said of a record is known.
    pub(super) fn decided(&mut self, index: usize, decision: Decision) {
        self.decisions[index] = Some(decision);
        self.move_on(index);
    }

    /// Whether the record is to be put aside: no retry can help it, or none will be made and its place in an order would
    /// take the healthy ones behind it along.
    fn is_dead(&self, index: usize, report: Report) -> bool {
        let has_body = self.bodies.get(index).is_some_and(Option::is_some);
        has_body && (report.is_permanent() || report.is_failure() && self.is_last_in_order(index))
    }

    /// Whether the record would be put aside if its handler failed now, although a retry could help.
    pub(super) fn may_be_put_aside(&self, index: usize) -> bool {
        self.bodies.get(index).is_some_and(Option::is_some) && self.is_last_in_order(index)
    }

    /// Puts a record aside that no retry can help.
    pub(super) fn put_aside(&mut self, index: usize, decision: Decision) {
        match self.letter(index) {
            Some((info, body)) => {
                self.being_put_aside += 1;
                self.tasks.push(Task::PutAside(index, decision, info, body, self.keys[index]));
            }
            None => self.decided(index, decision),
        }
    }

    /// What is to be put aside of a record.
    fn letter(&mut self, index: usize) -> Option<(Arc<RecordInfo>, Vec<u8>)> {
        let Slot::Open(info) = &self.records[index] else { return None };
        let body = self.bodies.get_mut(index)?.take()?;
        Some((Arc::clone(info), body.as_ref().to_vec()))
    }

    /// Whether this is the last delivery of a record with a place in an order.
    pub(super) fn is_last_in_order(&self, index: usize) -> bool {
        let info = match &self.records[index] {
            Slot::Open(info) | Slot::Failed(info) => info,
            Slot::Incoming(_) | Slot::Acknowledged => return false,
        };
        self.lanes.is_ordered(index) && self.max_receive_count.is_some_and(|max| info.is_last_of(max))
    }

    /// The end of the lease of whoever holds the record's key and gave no outcome.
    fn lease_until(&self, outcome: &RecordOutcome) -> Option<Timestamp> {
        match outcome {
            Ok(Outcome::InProgress { lease_until, .. }) => *lease_until,
            Ok(Outcome::Interrupted(Interruption::Panicked)) if self.releases_panics => None,
            Ok(Outcome::Interrupted(_)) => Some(self.window.lease_until),
            Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Unknown => Some(self.window.lease_until),
            _ => None,
        }
    }

    /// A record has the key of another one, and takes its outcome.
    pub(super) fn follow(&mut self, index: usize, follows: Follows) {
        self.follows[index] = Some(follows);
        self.lanes.wait_for(index, follows.leader);
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
        for index in over {
            self.conclude(index);
        }
        if !self.lanes.is_waiting(index) {
            self.conclude(index);
        }
    }

    /// What a record's outcome is, if nothing more becomes known.
    fn report(&self, index: usize) -> Report {
        let decided = |index: usize| self.decisions[index].as_ref().map(|decision| decision.report);
        let not_run = |index: usize| {
            let outcome = if self.lanes.is_held_up(index) { OutcomeKind::Skipped } else { OutcomeKind::NotStarted };
            Report::new(Ok(outcome), self.policy)
        };
        if self.is_skipped(index) {
            return not_run(index);
        }
        match self.follows[index] {
            // The key's outcome, even if the other record is held up itself and does not get to say it.
            Some(follows) => {
                let leader = decided(follows.leader).unwrap_or_else(|| not_run(follows.leader));
                follows.report(leader, self.policy)
            }
            None => decided(index).unwrap_or_else(|| not_run(index)),
        }
    }

    /// Whether a failure before the record overrules whatever is known of it.
    fn is_skipped(&self, index: usize) -> bool {
        self.lanes.is_held_up(index) && self.lanes.is_waiting(index)
    }

    /// Logs what became of a record, and lets it go if it is acknowledged.
    fn conclude(&mut self, index: usize) {
        let info = match std::mem::replace(&mut self.records[index], Slot::Acknowledged) {
            Slot::Incoming(record) => Arc::new(self.source.open(record).0),
            Slot::Open(info) => info,
            concluded => {
                self.records[index] = concluded;
                return;
            }
        };
        let report = self.report(index);
        let reported = report.reported;
        let is_skipped = self.is_skipped(index);
        let error = self.decisions[index].as_mut().and_then(|decision| decision.error.take()).filter(|_| !is_skipped);
        let follows = self.follows[index];
        let decided_by = self.decisions[follows.map_or(index, |follows| follows.leader)].as_ref();
        let decided_by = decided_by.filter(|_| !is_skipped);
        // A letter says all there is to say of a record with the same payload.
        let has_letter = follows.is_none_or(|follows| follows.same_payload);
        let dead_lettered = has_letter && decided_by.is_some_and(|decision| decision.dead_lettered);
        // The claim in the way of one that has another's key is the other's.
        let held_until = decided_by.and_then(|decision| decision.held_until);
        event_at!(
            report.level(),
            message_id = info.id(),
            receive_count = info.receive_count(),
            outcome = report.name(),
            reported,
            dead_lettered = dead_lettered.then_some(true),
            operation = &*self.operation,
            key = self.keys[index].map(tracing::field::display),
            error,
            "record"
        );
        if let Some(observer) = &self.observer {
            observer.observe(&RecordReport {
                index,
                record: Arc::clone(&info),
                key: self.keys[index],
                outcome: report.outcome,
                reported,
                dead_lettered,
                error,
                held_until,
            });
        }
        if let Some(body) = self.bodies.get_mut(index) {
            *body = None;
        }
        if reported {
            self.records[index] = Slot::Failed(Arc::clone(&info));
            if self.is_last_in_order(index) {
                tracing::warn!(target: "lambda_once", message_id = info.id(), outcome = report.name(), "the last delivery of a message in an order has failed: the queue moves it to its dead-letter queue next, and with it those behind it that were delivered as often");
            }
        }
    }

    /// The records that failed, in the order of the event.
    pub(super) fn into_failures(mut self) -> Vec<Arc<RecordInfo>> {
        // What no failure holds up was not started, and holds up what is behind it as a failure does.
        let is_open = |index: &usize| self.decisions[*index].is_none() && self.follows[*index].is_none();
        let all = 0..self.records.len();
        let not_started: Vec<usize> =
            all.clone().filter(|index| self.lanes.may_start(*index) && is_open(index)).collect();
        for index in not_started {
            self.decide(index, Ok(Outcome::NotStarted));
        }
        // What now stands first in a lane has the key of one that is held up in another.
        let fronts: Vec<usize> = self.lanes.fronts().collect();
        for index in fronts {
            self.conclude(index);
            self.lanes.fail(index);
        }
        all.for_each(|index| self.conclude(index));
        let failures = self.records.into_iter().filter_map(|record| match record {
            Slot::Failed(info) => Some(info),
            _ => None,
        });
        failures.collect()
    }
}
