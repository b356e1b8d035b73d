//! Outcomes: when each counts, what its source is told, and what is dead-lettered.

use std::collections::VecDeque;

use super::{
    entities::Entities,
    lanes::Lanes,
    records::{Follows, Records},
    steps::{Action, Terms},
};
use crate::{
    batch::{
        PermanentFailures,
        report::{self, Decision, RecordOutcome, RecordReport, Report},
        source::{Answer, Source},
    },
    clock::Timestamp,
    idempotency::{
        claim::Claim,
        engine::Candidate,
        guard::drop_contained,
        outcome::{Outcome, OutcomeKind},
    },
    store::rules::lapses,
    telemetry::event_at,
};

/// How many records are dead-lettered at once.
const MAX_DEAD_LETTERS_IN_FLIGHT: usize = 10;

/// The records of a batch, their order, and what is known of each.
pub(super) struct Outcomes<'a, S: Source, T> {
    pub(super) records: Records<S, T>,
    pub(super) entities: Entities,
    pub(super) lanes: Lanes,
    terms: Terms<'a>,
    /// Records that are to be dead-lettered, and what is said of them if that fails.
    dead: VecDeque<(usize, Decision)>,
    dead_letters_in_flight: usize,
    /// The first record that was reported.
    first_reported: Option<usize>,
    /// Whether a record has been reported since this was asked, or one came to be blocked.
    is_changed: bool,
}

impl Follows {
    /// What is reported of the record, now that this is reported of the one before it (B3).
    fn report(self, leader: Report, policy: PermanentFailures) -> Report {
        if self.same_payload {
            leader.of_follower()
        } else {
            Report::new(Ok(OutcomeKind::Mismatch), policy).of_misuse(leader)
        }
    }
}

impl<'a, S: Source, T> Outcomes<'a, S, T> {
    pub(super) fn new(records: Records<S, T>, lanes: Lanes, terms: Terms<'a>) -> Self {
        Self {
            records,
            lanes,
            terms,
            entities: Entities::default(),
            dead: VecDeque::new(),
            dead_letters_in_flight: 0,
            first_reported: None,
            is_changed: false,
        }
    }

    /// A record's outcome is known. In an order it counts when the record's turn has come: behind one that failed it would
    /// not. `lease_until` is the end of the lease that holds the key nevertheless. Returns the claim of a record that was
    /// not begun.
    pub(super) fn decide(
        &mut self,
        index: usize,
        outcome: RecordOutcome,
        lease_until: Option<Timestamp>,
    ) -> Option<Claim> {
        let claim = self.records.give_up(index);
        let mut decision = Decision::new(&outcome, self.policy());
        let margin = self.terms.engine.settings.skew_margin;
        decision.held_until = lease_until.and_then(|until| self.records.key(index).map(|_| lapses(until, margin)));
        // A user's error may panic when it is dropped.
        drop_contained(outcome);
        if self.entities.has(index) {
            self.entities.end_turn(index);
            // What is older waits until its outcome is recorded, so it is delivered again until then.
            decision.report.reported |= lease_until.is_some();
            if lease_until.is_some() && decision.report.is_permanent {
                self.decided(index, decision);
                return claim;
            }
        }
        if self.is_dead(index, decision.report) {
            self.dead.push_back((index, decision));
            self.is_changed |= self.lanes.has_failed(index);
        } else {
            self.decided(index, decision);
        }
        claim
    }

    /// What is to be said of a record is known.
    fn decided(&mut self, index: usize, decision: Decision) {
        self.records.decide(index, decision);
        self.move_on(index);
    }

    /// What happens to records that no retry can help: where they are dead-lettered, those that cannot be are reported.
    fn policy(&self) -> PermanentFailures {
        let options = self.terms.options;
        if options.dead_letters.is_some() { PermanentFailures::Report } else { options.permanent_failures }
    }

    /// Whether the record is dead-lettered: no retry can help it, or none will be made and its place in an order would take
    /// the healthy ones behind it along (B11). A stream counts no deliveries: what makes a decoder panic would stop it.
    fn is_dead(&self, index: usize, report: Report) -> bool {
        let is_abandoned = report.outcome == Ok(OutcomeKind::Abandoned);
        self.records.has_body(index)
            && (report.is_permanent
                || is_abandoned && self.terms.options.dead_letter_abandoned
                || report.is_panic && self.stops_stream(index)
                || (is_abandoned || report.is_failure()) && self.is_last_in_order(index))
    }

    /// Whether the record would be dead-lettered if its handler failed now, although a retry could help.
    pub(super) fn may_be_dead_lettered(&self, index: usize) -> bool {
        self.records.has_body(index) && self.is_last_in_order(index)
    }

    /// Whether this is the last delivery of a record with a place in an order.
    pub(super) fn is_last_in_order(&self, index: usize) -> bool {
        let is_last = |max| self.records.known(index).is_some_and(|info| info.is_last_of(max));
        self.lanes.is_ordered(index) && self.terms.options.max_receive_count.is_some_and(is_last)
    }

    /// Whether a record that fails holds back those behind it, in a source that counts no deliveries.
    fn stops_stream(&self, index: usize) -> bool {
        let holds_back = self.lanes.is_ordered(index) || S::ANSWER == Answer::FirstFailure;
        holds_back && self.records.known(index).is_some_and(|info| !info.counts_deliveries())
    }

    /// What the claim of a record that waits would be.
    pub(super) fn waiting_candidate(&self, index: usize) -> Option<Candidate> {
        self.records.waits_for(index).map(|operation| self.entities.candidate(index, operation))
    }

    /// How many records wait to be dead-lettered.
    pub(super) fn dead(&self) -> usize {
        self.dead.len()
    }

    /// The next record to dead-letter. In an order its turn must have come: behind one that fails it is delivered again.
    pub(super) fn next_dead_letter(&mut self) -> Option<Action> {
        if self.dead.is_empty() || self.dead_letters_in_flight >= MAX_DEAD_LETTERS_IN_FLIGHT {
            return None;
        }
        let at = self.dead.iter().position(|(index, _)| self.lanes.has_its_turn(*index))?;
        let (index, decision) = self.dead.remove(at)?;
        let body = S::dead_letter(self.records.take_body(index)?);
        self.dead_letters_in_flight += 1;
        let (info, key) = (self.records.info(index), self.records.key(index));
        Some(Action::DeadLetter { index, decision, info, body, key })
    }

    /// Records that are not dead-lettered after all, since one before them has failed.
    pub(super) fn skip_dead(&mut self) {
        while let Some(at) = self.dead.iter().position(|(index, _)| self.lanes.has_failed(*index)) {
            if let Some((index, _)) = self.dead.remove(at) {
                self.decide(index, Ok(Outcome::Skipped), None);
            }
        }
    }

    /// A record was dead-lettered, or could not be, for this reason.
    pub(super) fn dead_lettered(&mut self, index: usize, mut decision: Decision, sent: Result<(), Option<String>>) {
        self.dead_letters_in_flight -= 1;
        match sent {
            Ok(()) => {
                decision.dead_lettered = true;
                decision.report.reported = false;
            }
            Err(error) => {
                tracing::error!(target: "lambda_once", error, outcome = report::name(decision.report.outcome), "the record could not be dead-lettered, so it is reported");
            }
        }
        self.decided(index, decision);
    }

    /// Whether something may no longer run, or wait in vain, since this was asked.
    pub(super) fn take_change(&mut self) -> bool {
        self.lanes.take_change() | std::mem::take(&mut self.is_changed)
    }

    /// Something has happened by which a record may no longer run in time.
    pub(super) fn changed(&mut self) {
        self.is_changed = true;
    }

    /// The record has come to a place where a failure may block it already.
    pub(super) fn came(&mut self, index: usize) {
        self.is_changed |= self.lanes.is_blocked(index);
    }

    /// Whether the answer is the same whatever becomes of the record (B6).
    pub(super) fn is_answer_fixed(&self, index: usize) -> bool {
        self.first_reported.is_some_and(|reported| match self.terms.options.answer::<S>() {
            Answer::EachRecord => false,
            Answer::FirstFailure => reported < index,
            Answer::AllOrNothing => true,
        })
    }

    /// The record has the key of an earlier one, and shares its outcome.
    pub(super) fn follow(&mut self, index: usize, leader: usize) {
        self.lanes.wait_for(index, leader);
        if self.lanes.is_ordered(index) {
            self.move_on(index);
        }
    }

    /// Concludes the record, and those whose turn comes with it.
    fn move_on(&mut self, index: usize) {
        let policy = self.policy();
        let over = {
            let Self { lanes, records, .. } = self;
            lanes.advance(index, |index| match records.follows_of(index) {
                None => records.report(index).map(|report| report.reported),
                Some(follows) => records.report(follows.leader).map(|leader| follows.report(leader, policy).reported),
            })
        };
        for index in over {
            self.conclude(index);
        }
        if !self.lanes.is_waiting(index) {
            self.conclude(index);
        }
    }

    /// What a record's report is, if nothing more becomes known.
    fn report(&self, index: usize) -> Report {
        let not_run = |index: usize| {
            let outcome = if self.lanes.is_blocked(index) { OutcomeKind::Skipped } else { OutcomeKind::NotStarted };
            Report::new(Ok(outcome), self.policy())
        };
        if self.is_skipped(index) {
            return not_run(index);
        }
        match self.records.follows_of(index) {
            // The key's outcome, even if the other record is blocked itself and does not get to say it.
            Some(follows) => {
                let leader = self.records.report(follows.leader).unwrap_or_else(|| not_run(follows.leader));
                follows.report(leader, self.policy())
            }
            None => self.records.report(index).unwrap_or_else(|| not_run(index)),
        }
    }

    /// Whether a failure before the record overrules whatever is known of it.
    fn is_skipped(&self, index: usize) -> bool {
        self.lanes.is_blocked(index) && self.lanes.is_waiting(index)
    }

    /// Logs the record's outcome, and drops what is no longer needed of it.
    fn conclude(&mut self, index: usize) {
        if self.records.is_reported(index) {
            return;
        }
        let (report, is_skipped) = (self.report(index), self.is_skipped(index));
        let error = self.records.decision_mut(index).and_then(|decision| decision.error.take());
        let follows = self.records.follows_of(index);
        let decided_by = self.records.decision(follows.map_or(index, |follows| follows.leader));
        let decided_by = decided_by.filter(|_| !is_skipped);
        // A DLQ message says all there is to say of a record with the same payload.
        let same_payload = follows.is_none_or(|follows| follows.same_payload);
        let report = RecordReport {
            index,
            key: self.records.key(index),
            outcome: report.outcome,
            reported: report.reported,
            dead_lettered: same_payload && decided_by.is_some_and(|decision| decision.dead_lettered),
            error: error.filter(|_| !is_skipped),
            // The claim in the way of one that has another's key is the other's.
            held_until: decided_by.and_then(|decision| decision.held_until),
            record: self.records.info(index),
        };
        self.tell(&report);
        if report.reported && self.first_reported.is_none_or(|first| index < first) {
            self.first_reported = Some(index);
            self.is_changed |= self.terms.options.answer::<S>() != Answer::EachRecord;
        }
        self.records.conclude(index, report);
    }

    /// Logs the report, and gives it to the observer.
    fn tell(&self, report: &RecordReport) {
        let outcome = report::name(report.outcome);
        event_at!(
            report::level(report.outcome),
            message_id = report.record.id(),
            receive_count = report.record.receive_count(),
            outcome,
            reported = report.reported,
            dead_lettered = report.dead_lettered.then_some(true),
            operation = self.terms.operation,
            key = report.key.map(tracing::field::display),
            error = report.error,
            "record"
        );
        if let Some(observer) = &self.terms.options.observer {
            observer.observe(report);
        }
        if report.reported && self.is_last_in_order(report.index) {
            tracing::warn!(target: "lambda_once", message_id = report.record.id(), outcome, "the last delivery of a message in an order has failed: the queue moves it to its dead-letter queue next, and with it those behind it that were delivered as often");
        }
    }

    /// One report for each record, in the order of the event.
    pub(super) fn into_reports(mut self) -> Vec<RecordReport> {
        // What no failure blocks was not started, and blocks what is behind it as a failure does.
        let all = 0..self.records.len();
        let is_left = |index: &usize| self.lanes.may_start(*index) && self.records.is_undecided(*index);
        let not_started: Vec<usize> = all.clone().filter(is_left).collect();
        for index in &not_started {
            self.decide(*index, Ok(Outcome::NotStarted), None);
        }
        // What now stands first in a lane has the key of one that is blocked in another.
        let fronts: Vec<usize> = self.lanes.fronts().collect();
        for index in fronts {
            self.conclude(index);
            self.lanes.fail(index);
        }
        all.for_each(|index| self.conclude(index));
        let reports = self.records.into_reports();
        let not_started = reports.iter().filter(|report| report.outcome == Ok(OutcomeKind::NotStarted)).count();
        if not_started > 0 {
            tracing::warn!(target: "lambda_once", not_started, records = reports.len(), "there was no time to start all records: each is delivered again, and has spent a delivery; smaller batches, a longer time-out or more concurrency help");
        }
        reports
    }
}
