//! Selects and dead-letters records, and handles the results (B7, B11).

use super::{batch::Batch, steps::Action};
use crate::{
    batch::{
        PermanentFailures,
        report::{self, Decision, Report},
        source::{FailureReporting, Source},
    },
    idempotency::{guard::catch_panic, outcome::OutcomeKind},
};

/// The maximum number of concurrent dead-letter calls.
const MAX_DEAD_LETTERS_IN_FLIGHT: usize = 10;

// Functions that are called for each record are `inline`, because their callers are in another codegen unit.
impl<S: Source, T> Batch<'_, S, T> {
    /// Returns the policy for records that no retry can help. With dead letters, those that cannot be sent are
    /// reported.
    #[inline]
    pub(super) fn policy(&self) -> PermanentFailures {
        let options = self.terms.options;
        if options.dead_letters.is_some() { PermanentFailures::Report } else { options.permanent_failures }
    }

    /// Returns whether the record is to be dead-lettered, because no retry can help it, or because none will be made
    /// and its healthy followers in the order would go with it (B11). Streams count no deliveries, so a record that
    /// makes a decoder panic would stop them.
    #[inline]
    pub(super) fn is_dead_lettered(&self, index: usize, report: Report) -> bool {
        let is_abandoned = report.outcome == Ok(OutcomeKind::Abandoned);
        self.records.has_body(index)
            && (report.is_permanent
                || is_abandoned && self.terms.options.dead_letter_abandoned
                || report.is_panic && self.stops_stream(index)
                || (is_abandoned || report.is_failure()) && self.is_last_in_order(index))
    }

    /// Returns whether the record would be dead-lettered if its handler failed transiently.
    #[inline]
    pub(super) fn may_be_dead_lettered(&self, index: usize) -> bool {
        self.records.has_body(index) && self.is_last_in_order(index)
    }

    /// Returns whether this is the last delivery of an ordered record.
    #[inline]
    pub(super) fn is_last_in_order(&self, index: usize) -> bool {
        let is_last = |max| self.records.known(index).is_some_and(|info| info.is_last_of(max));
        self.lanes.is_ordered(index) && self.terms.options.max_receive_count.is_some_and(is_last)
    }

    /// Returns whether a failure of the record holds back those behind it, in a source that counts no deliveries.
    fn stops_stream(&self, index: usize) -> bool {
        let holds_back = self.lanes.is_ordered(index) || S::REPORTING == FailureReporting::FirstFailure;
        holds_back && self.records.known(index).is_some_and(|info| !info.counts_deliveries())
    }

    /// Returns the number of records that wait to be dead-lettered.
    #[inline]
    pub(super) fn waiting_dead_letters(&self) -> usize {
        self.dead.len()
    }

    /// Returns the next record to dead-letter. In an order its turn must have come, because behind a failed record it
    /// is delivered again.
    #[inline]
    pub(super) fn next_dead_letter(&mut self) -> Option<Action> {
        if self.dead.is_empty() || self.dead_letters_in_flight >= MAX_DEAD_LETTERS_IN_FLIGHT {
            return None;
        }
        let at = self.dead.iter().position(|(index, _)| self.lanes.has_its_turn(*index))?;
        let (index, decision) = self.dead.remove(at)?;
        let body = self.records.take_body(index)?;
        // This may be user code.
        let body = catch_panic(|| S::dead_letter(body));
        self.dead_letters_in_flight += 1;
        let (info, key) = (self.records.info(index), self.records.key(index));
        Some(Action::DeadLetter { index, decision, info, body, key })
    }

    /// Skips records that are no longer dead-lettered because one before them has failed. The outcomes of their keys
    /// count for duplicates in other lanes (B3).
    pub(super) fn skip_blocked_dead_letters(&mut self) {
        while let Some(at) = self.dead.iter().position(|(index, _)| self.lanes.has_failed(*index)) {
            if let Some((index, decision)) = self.dead.remove(at) {
                self.count(index, decision);
            }
        }
    }

    /// Takes the result of dead-lettering a record, or the reason for the failure.
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
        self.count(index, decision);
    }
}
