//! The records of a batch, their order, and their outcomes as they become final.

use std::collections::{BTreeMap, VecDeque};

use super::{entities::Entities, lanes::Lanes, records::Records, steps::Terms};
use crate::{
    batch::{
        report::{Decision, RecordOutcome},
        source::{FailureReporting, Source},
    },
    clock::Timestamp,
    idempotency::{claim::Claim, engine::Candidate, guard::drop_contained},
    store::rules::lapses,
};

/// The records of a batch, their order and their states.
pub(super) struct Batch<'a, S: Source, T> {
    pub(super) records: Records<S, T>,
    pub(super) entities: Entities,
    pub(super) lanes: Lanes,
    pub(super) terms: Terms<'a>,
    /// Records to dead-letter, with the decision to report if that fails.
    pub(super) dead: VecDeque<(usize, Decision)>,
    pub(super) dead_letters_in_flight: usize,
    /// Duplicates of undecided records.
    duplicates: BTreeMap<usize, Vec<usize>>,
    /// The first record by index that was reported.
    pub(super) first_reported: Option<usize>,
    /// Whether an event may have blocked records or made waits pointless.
    pub(super) needs_recheck: bool,
}

impl<'a, S: Source, T> Batch<'a, S, T> {
    pub(super) fn new(records: Records<S, T>, lanes: Lanes, terms: Terms<'a>) -> Self {
        Self {
            records,
            lanes,
            terms,
            entities: Entities::default(),
            dead: VecDeque::new(),
            dead_letters_in_flight: 0,
            duplicates: BTreeMap::new(),
            first_reported: None,
            needs_recheck: false,
        }
    }

    /// Takes the outcome of a record. In an order it becomes final at the record's turn, because behind a failed record
    /// it does not count. `lease_until` is the end of the lease that still holds the key. Returns the claim of a record
    /// that has not begun.
    pub(super) fn decide(
        &mut self,
        index: usize,
        outcome: RecordOutcome,
        lease_until: Option<Timestamp>,
    ) -> Option<Claim> {
        let claim = self.records.give_up(index);
        let mut decision = Decision::new(&outcome, self.policy());
        let margin = self.terms.engine.settings.skew_margin;
        decision.report.is_held = lease_until.is_some();
        decision.held_until = lease_until.and_then(|until| self.records.key(index).map(|_| lapses(until, margin)));
        // Dropping a user's error may panic.
        drop_contained(outcome);
        if self.entities.has(index) {
            self.entities.end_turn(index);
            // Older records wait until this outcome is recorded, so this record is delivered again meanwhile.
            decision.report.reported |= lease_until.is_some();
            if lease_until.is_some() && decision.report.is_permanent {
                self.count(index, decision);
                return claim;
            }
        }
        if self.is_dead_lettered(index, decision.report) {
            self.dead.push_back((index, decision));
            self.needs_recheck |= self.lanes.has_failed(index);
        } else {
            self.count(index, decision);
        }
        claim
    }

    /// Makes the outcome of a record final, and concludes the records whose turn comes with it.
    pub(super) fn count(&mut self, index: usize, decision: Decision) {
        self.records.decide(index, decision);
        let duplicates = self.duplicates.remove(&index).unwrap_or_default();
        if !self.lanes.is_ordered(index) {
            self.conclude(index);
        }
        for duplicate in duplicates {
            self.leader_decided(duplicate);
        }
        self.conclude_in_turn(index);
    }

    /// Dead-letters a duplicate that misuses the key of its leader, or concludes it if it has no order.
    fn leader_decided(&mut self, index: usize) {
        let Some(duplicate) = self.records.as_duplicate(index) else { return };
        let Some(leader) = self.records.report(duplicate.leader) else {
            return self.duplicates.entry(duplicate.leader).or_default().push(index);
        };
        let report = duplicate.report(leader, self.policy(), &self.terms);
        // There may be no other delivery without the leader.
        let is_last =
            self.terms.options.reporting::<S>() == FailureReporting::AllOrNothing || self.is_last_in_order(index);
        if !duplicate.same_payload && is_last && self.is_dead_lettered(index, report) {
            self.records.undecided(index);
            let held_until = self.records.decision(duplicate.leader).and_then(|leader| leader.held_until);
            self.dead.push_back((index, Decision { report, error: None, dead_lettered: false, held_until }));
            self.needs_recheck |= self.lanes.has_failed(index);
        } else if !self.lanes.is_ordered(index) {
            self.conclude(index);
        }
    }

    /// Returns the candidate for the next claim of a decoded or waiting record.
    pub(super) fn next_candidate(&self, index: usize) -> Option<Candidate> {
        self.records.claims_next(index).map(|operation| self.entities.candidate(index, operation))
    }

    /// Returns whether records may have been blocked, or waits become pointless, since the last call.
    pub(super) fn take_recheck(&mut self) -> bool {
        self.lanes.take_change() | std::mem::take(&mut self.needs_recheck)
    }

    /// Requests that waits are checked again, because a record may no longer run in time.
    pub(super) fn recheck_waits(&mut self) {
        self.needs_recheck = true;
    }

    /// Requests another check of a record that may have come into a place that a failure blocks.
    pub(super) fn recheck_if_blocked(&mut self, index: usize) {
        self.needs_recheck |= self.lanes.is_blocked(index);
    }

    /// Returns whether the response is the same whatever the outcome of the record (B6).
    pub(super) fn is_response_fixed(&self, index: usize) -> bool {
        self.first_reported.is_some_and(|reported| match self.terms.options.reporting::<S>() {
            FailureReporting::EachRecord => false,
            FailureReporting::FirstFailure => reported < index,
            FailureReporting::AllOrNothing => true,
        })
    }

    /// Makes a record wait for an earlier one with the same key, whose outcome it shares (B3).
    pub(super) fn wait_for_leader(&mut self, index: usize, leader: usize) {
        self.lanes.wait_for(index, leader);
        self.leader_decided(index);
        if self.lanes.is_ordered(index) {
            self.conclude_in_turn(index);
        }
    }

    /// Concludes the record and those whose turn comes with it.
    fn conclude_in_turn(&mut self, index: usize) {
        let (policy, terms) = (self.policy(), self.terms);
        let over = {
            let Self { lanes, records, .. } = self;
            lanes.advance(index, |index| match records.as_duplicate(index) {
                None => records.report(index).map(|report| report.reported),
                Some(duplicate) => {
                    records.report(duplicate.leader).map(|leader| duplicate.report(leader, policy, &terms).reported)
                }
            })
        };
        for index in over {
            self.conclude(index);
        }
        if !self.lanes.is_waiting(index) {
            self.conclude(index);
        }
    }
}
