//! Logs each record's outcome and reports it to the observer.

use super::{batch::Batch, records::Duplicate, steps::Terms};
use crate::{
    batch::{
        PermanentFailures,
        report::{self, RecordReport, Report},
        source::{FailureReporting, Source},
    },
    idempotency::{
        outcome::{Outcome, OutcomeKind},
        policy::AfterUnknown,
    },
    telemetry::event_at,
};

impl Duplicate {
    /// Computes the report of a duplicate from its leader's report (B3).
    pub(super) fn report(self, leader: Report, policy: PermanentFailures, terms: &Terms<'_>) -> Report {
        if self.same_payload {
            return leader.of_duplicate();
        }
        // Under the other policies a run without an outcome may have had this payload, so that it may run again.
        let is_refused = terms.engine.settings.after_unknown == AfterUnknown::Refuse;
        if is_refused && leader.outcome == Ok(OutcomeKind::Abandoned) {
            return Report::new(leader.outcome, policy);
        }
        let mismatch = Report::new(Ok(OutcomeKind::Mismatch), policy);
        Report { difference: self.difference, ..mismatch.of_misuse(leader, terms.records_failures()) }
    }
}

impl<S: Source, T> Batch<'_, S, T> {
    /// Computes a record's report from the decisions so far.
    fn report(&self, index: usize) -> Report {
        // `into_reports` decides each record that could have started, so a record without a decision is behind one.
        let skipped = || Report::new(Ok(OutcomeKind::Skipped), self.policy());
        if self.is_skipped(index) {
            return skipped();
        }
        match self.records.as_duplicate(index) {
            // The key's outcome, even if the other record is itself blocked and cannot report it.
            Some(duplicate) => {
                let leader = self.records.report(duplicate.leader).unwrap_or_else(skipped);
                duplicate.report(leader, self.policy(), &self.terms)
            }
            None => self.records.report(index).unwrap_or_else(skipped),
        }
    }

    /// Returns whether an earlier failure overrides the decision about the record.
    fn is_skipped(&self, index: usize) -> bool {
        self.lanes.is_blocked(index) && self.lanes.is_waiting(index)
    }

    /// Logs the record's outcome, and drops data that is no longer needed.
    pub(super) fn conclude(&mut self, index: usize) {
        if self.records.is_reported(index) {
            return;
        }
        let (report, is_skipped) = (self.report(index), self.is_skipped(index));
        let duplicate = self.records.as_duplicate(index);
        let decided_by = self.records.decision(duplicate.map_or(index, |duplicate| duplicate.leader));
        let decided_by = decided_by.filter(|_| !is_skipped);
        // A duplicate with the same payload has the leader's outcome, and needs no DLQ message besides the leader's.
        let shared = decided_by.filter(|_| duplicate.is_none_or(|duplicate| duplicate.same_payload));
        let report = RecordReport {
            index,
            key: self.records.key(index),
            outcome: report.outcome,
            difference: report.difference,
            reported: report.reported,
            dead_lettered: shared.is_some_and(|decision| decision.dead_lettered),
            error: shared.and_then(|decision| decision.error.clone()),
            // A duplicate's report refers to the claim of its leader.
            held_until: decided_by.and_then(|decision| decision.held_until),
            record: self.records.info(index),
        };
        self.tell(&report);
        if report.reported && self.first_reported.is_none_or(|first| index < first) {
            self.first_reported = Some(index);
            self.needs_recheck |= self.terms.options.reporting::<S>() != FailureReporting::EachRecord;
        }
        self.records.conclude(index, report);
    }

    /// Logs the report, and passes it to the observer.
    fn tell(&self, report: &RecordReport) {
        let outcome = report::name(report.outcome);
        event_at!(
            report::level(report.outcome),
            message_id = report.record.id(),
            receive_count = report.record.receive_count(),
            outcome,
            verdict = report.outcome.ok().and_then(OutcomeKind::verdict),
            differs = report.difference.is_known().then(|| report.difference.names()),
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
            tracing::warn!(target: "lambda_once", message_id = report.record.id(), outcome, "the last delivery of an ordered message has failed: the queue will move it to its dead-letter queue, with the messages behind it that were delivered as often");
        }
    }

    /// Returns one report for each record, in the order of the event.
    pub(super) fn into_reports(mut self) -> Vec<RecordReport> {
        // Unblocked records did not start, and block the records behind them like a failure.
        let all = 0..self.records.len();
        let is_left = |index: &usize| self.lanes.may_start(*index) && self.records.is_undecided(*index);
        let not_started: Vec<usize> = all.clone().filter(is_left).collect();
        for index in &not_started {
            self.decide(*index, Ok(Outcome::NotStarted), None);
        }
        // Those behind them are not dead-lettered. The outcomes of their keys count for duplicates in other lanes (B3).
        for (index, decision) in std::mem::take(&mut self.dead) {
            self.count(index, decision);
        }
        // The record now first in a lane has the key of one that is blocked in another lane.
        let fronts: Vec<usize> = self.lanes.fronts().collect();
        for index in fronts {
            self.conclude(index);
            self.lanes.fail(index);
        }
        all.for_each(|index| self.conclude(index));
        let reports = self.records.into_reports();
        let not_started = reports.iter().filter(|report| report.outcome == Ok(OutcomeKind::NotStarted)).count();
        if not_started > 0 {
            tracing::warn!(target: "lambda_once", not_started, records = reports.len(), "there was no time to start all records: they are delivered again, and have used up a delivery; smaller batches, a longer timeout or more concurrency help");
        }
        reports
    }
}
