//! Dead letters: which records are dead-lettered, when, and what follows from it (B7, B11).

use super::{batch::Batch, steps::Action};
use crate::{
    batch::{
        PermanentFailures,
        report::{self, Decision, Report},
        source::{FailureReporting, Source},
    },
    idempotency::outcome::{Outcome, OutcomeKind},
};

/// The maximum number of records that are being dead-lettered.
const MAX_DEAD_LETTERS_IN_FLIGHT: usize = 10;

// The functions that are called for each record are `inline`, because their callers are in another codegen unit.
impl<S: Source, T> Batch<'_, S, T> {
    /// Returns what happens to records that no retry can help: where they are dead-lettered, those that cannot be are reported.
    #[inline]
    pub(super) fn policy(&self) -> PermanentFailures {
        let options = self.terms.options;
        if options.dead_letters.is_some() { PermanentFailures::Report } else { options.permanent_failures }
    }

    /// Whether the record is to be dead-lettered: no retry can help it, or none will be made and its place in an order would take
    /// the healthy ones behind it along (B11). A stream counts no deliveries: what makes a decoder panic would stop it.
    #[inline]
    pub(super) fn is_dead_lettered(&self, index: usize, report: Report) -> bool {
        let is_abandoned = report.outcome == Ok(OutcomeKind::Abandoned);
        self.records.has_body(index)
            && (report.is_permanent
                || is_abandoned && self.terms.options.dead_letter_abandoned
                || report.is_panic && self.stops_stream(index)
                || (is_abandoned || report.is_failure()) && self.is_last_in_order(index))
    }

    /// Whether the record would be dead-lettered if its handler failed now, although a retry could help.
    #[inline]
    pub(super) fn may_be_dead_lettered(&self, index: usize) -> bool {
        self.records.has_body(index) && self.is_last_in_order(index)
    }

    /// Whether this is the last delivery of a record with a place in an order.
    #[inline]
    pub(super) fn is_last_in_order(&self, index: usize) -> bool {
        let is_last = |max| self.records.known(index).is_some_and(|info| info.is_last_of(max));
        self.lanes.is_ordered(index) && self.terms.options.max_receive_count.is_some_and(is_last)
    }

    /// Whether a record that fails holds back those behind it, in a source that counts no deliveries.
    fn stops_stream(&self, index: usize) -> bool {
        let holds_back = self.lanes.is_ordered(index) || S::REPORTING == FailureReporting::FirstFailure;
        holds_back && self.records.known(index).is_some_and(|info| !info.counts_deliveries())
    }

    /// Returns how many records wait to be dead-lettered.
    #[inline]
    pub(super) fn waiting_dead_letters(&self) -> usize {
        self.dead.len()
    }

    /// Takes the next record to dead-letter. In an order its turn must have come: behind one that fails it is delivered again.
    #[inline]
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

    /// Skips records that are not dead-lettered after all, since one before them has failed.
    pub(super) fn skip_blocked_dead_letters(&mut self) {
        while let Some(at) = self.dead.iter().position(|(index, _)| self.lanes.has_failed(*index)) {
            if let Some((index, _)) = self.dead.remove(at) {
                self.decide(index, Ok(Outcome::Skipped), None);
            }
        }
    }

    /// Takes the result of dead-lettering a record, or the reason why that failed.
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
