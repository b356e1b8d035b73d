//! Outcomes: when each counts, what is said of it, and which records are reported.

use std::sync::Arc;

use super::{
    PermanentFailures, RecordInfo,
    invocation::{Follows, Invocation, Slot},
    report::{Decision, RecordOutcome, RecordReport, Report},
    source::Source,
};
use crate::{OutcomeKind, idempotency::guard::contain, telemetry::event_at};

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
        self.decisions[index] = Some(Decision::new(&outcome, self.policy));
        // An error of the user's may panic when it is dropped.
        let _ = contain(|| drop(outcome));
        self.move_on(index);
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
            let outcome = if self.is_skipped(index) { OutcomeKind::Skipped } else { OutcomeKind::NotStarted };
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
        event_at!(
            report.level(),
            message_id = info.id(),
            receive_count = info.receive_count(),
            outcome = report.name(),
            reported,
            operation = &*self.operation,
            key = self.keys[index].map(tracing::field::display),
            error,
            "record"
        );
        if let Some(observer) = &self.observer {
            let (record, key, outcome) = (Arc::clone(&info), self.keys[index], report.outcome);
            observer.observe(&RecordReport { index, record, key, outcome, reported, error });
        }
        if reported {
            self.records[index] = Slot::Failed(info);
        }
    }

    /// The records that failed, in the order of the event.
    pub(super) fn into_failures(mut self) -> Vec<Arc<RecordInfo>> {
        // What has no outcome by now was not started, and holds up what is behind it as a failure does.
        let mut fronts: Vec<usize> = self.lanes.fronts().collect();
        fronts.sort_unstable();
        if !self.lanes.are_halted() {
            fronts.iter().for_each(|index| self.conclude(*index));
        }
        fronts.into_iter().for_each(|index| self.lanes.fail(index));
        for index in 0..self.records.len() {
            self.conclude(index);
        }
        let failures = self.records.into_iter().filter_map(|record| match record {
            Slot::Failed(info) => Some(info),
            _ => None,
        });
        failures.collect()
    }
}
