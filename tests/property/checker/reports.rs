//! Checks the reports to observers, to the redelivery hook and to the dead-letter destination.

use std::collections::HashSet;

use lambda_once::{batch::RecordReport, clock::Timestamp};

use super::{
    Checked, Evidence, ensure, lapses,
    outcomes::Expected,
    table::{Outcome, Rule, rule_of},
};
use crate::{
    recorded_store::{Settling, Told},
    runner::Invocation,
    source::id_of,
};

impl Evidence<'_> {
    /// Checks that there is one report per record, in the order of the event, with an outcome that the evidence allows
    /// and with the response that this outcome requires.
    pub(super) fn check_reports(&self, invocation: &Invocation, expected: &[Expected], reported: &[bool]) -> Checked {
        let reports = &invocation.reports;
        ensure!(reports.len() == expected.len(), Report, "{} of {}", reports.len(), expected.len());
        self.check_names(invocation)?;
        let mut failed = HashSet::new();
        for (place, (expected_one, report)) in expected.iter().zip(reports).enumerate() {
            let id = self.record(invocation, place).id.map(id_of);
            let is_its = report.index == place && Some(report.record.id()) == id.as_deref();
            ensure!(is_its, Report, "{report:?} in the place of record {place}");
            let lane = self.lane(invocation, place);
            let is_held_back = lane.is_some_and(|lane| failed.contains(&lane));
            if reported[place] {
                failed.extend(lane);
            }
            ensure!(report.reported == reported[place], Report, "{report:?} of {expected_one:?}");
            let is_dead_lettered = expected_one.is_dead_lettered && !is_held_back;
            ensure!(report.dead_lettered == is_dead_lettered, Report, "{report:?} of {expected_one:?}");
            let name = format!("{:?}", report.outcome);
            let is_true = if name == "Ok(Skipped)" {
                is_held_back || self.may_be_skipped(invocation, place, expected)
            } else {
                let is_early =
                    name == "Ok(NotStarted)" && self.history.plan.settings.stops_batch && self.had_time(invocation);
                !is_held_back && !is_early && expected_one.outcome.names().contains(&&*name)
            };
            ensure!(is_true, Report, "{report:?} of {expected_one:?}, held back: {is_held_back}");
            let is_acknowledged = rule_of(&name) == Some(Rule::Acknowledged);
            ensure!(!is_acknowledged || !report.reported, Report, "{report:?} is done, and reported");
            self.check_held_until(invocation, place, expected, report)?;
        }
        self.check_redelivery(invocation, reported)
    }

    /// Returns whether a record that no failure in its lane holds back may be skipped. Either the batch was stopped
    /// before the record began, or a record with the same key was skipped.
    fn may_be_skipped(&self, invocation: &Invocation, place: usize, expected: &[Expected]) -> bool {
        let leader = expected[place].leader;
        let first = leader.unwrap_or(place);
        let began = !self.runs(invocation, first).is_empty();
        let is_open = |outcome: &Outcome| *outcome == Outcome::NotStarted || outcome.is_in_progress();
        // A record that waits for its turn to be dead-lettered is open, too.
        let is_open = !began && expected[first].possible.iter().any(is_open)
            || leader.is_some() && expected[first].is_dead != Some(false);
        let is_leader_skipped =
            leader.is_some_and(|leader| format!("{:?}", invocation.reports[leader].outcome) == "Ok(Skipped)");
        is_open && (self.history.plan.settings.stops_batch || is_leader_skipped)
    }

    /// Checks that the reported end of a key's lease is the end of the lease in the way, or of the lease that a run
    /// left.
    fn check_held_until(
        &self,
        invocation: &Invocation,
        place: usize,
        expected: &[Expected],
        report: &RecordReport,
    ) -> Checked {
        let first = expected[place].leader.unwrap_or(place);
        let is_skipped = |report: &RecordReport| format!("{:?}", report.outcome) == "Ok(Skipped)";
        let is_due = if is_skipped(report) {
            report.held_until.is_none()
        } else {
            let due = self.held_until(invocation, first, expected[first].outcome);
            // The lease of a record with the key of a skipped one may be unknown.
            let is_unknown = report.held_until.is_none() && is_skipped(&invocation.reports[first]);
            due.is_empty() || is_unknown || due.contains(&report.held_until)
        };
        ensure!(is_due, Report, "{report:?} of {:?} is not true of its lease", expected[first]);
        Ok(())
    }

    /// Returns the ends of leases that may be reported, or none if they are not certain.
    fn held_until(&self, invocation: &Invocation, place: usize, outcome: Outcome) -> Vec<Option<Timestamp>> {
        let claim = self.record(invocation, place).key().and_then(|key| self.claims(invocation.number, key).last());
        let Some(claim) = claim else { return vec![None] };
        let own = claim.lease_until.map(lapses);
        let is_unsettled = self.is_unsettled(invocation, place);
        match outcome {
            Outcome::InProgress if claim.told == Told::Granted => vec![own],
            Outcome::InProgress | Outcome::MismatchForNow => {
                let told = |told: Told| told.held_until().flatten().map(Timestamp::from_millis).map(lapses);
                let reads = self.reads_of(invocation.number).iter().filter(|read| read.key == claim.key);
                std::iter::once(told(claim.told)).chain(reads.map(|read| told(read.told))).collect()
            }
            Outcome::Cancelled | Outcome::FailedUnknown => vec![own],
            Outcome::Panicked if !self.history.plan.settings.releases_panics => vec![own],
            Outcome::Panicked | Outcome::FailedForNow if is_unsettled => vec![own],
            Outcome::FailedForGood | Outcome::Unrecorded if is_unsettled => vec![own],
            Outcome::LeaseLost | Outcome::NotStarted | Outcome::StoreTrouble => Vec::new(),
            _ => vec![None],
        }
    }

    /// Returns whether nothing has told the worker that the end of its claim is recorded.
    pub(super) fn is_unsettled(&self, invocation: &Invocation, place: usize) -> bool {
        let claim = self.record(invocation, place).key().and_then(|key| self.claims(invocation.number, key).last());
        claim
            .is_some_and(|claim| self.settles(claim.owner).last().is_none_or(|settle| settle.told == Settling::Nothing))
    }

    /// Checks that the hook is called once with the reported records, if there are any, while there is time.
    fn check_redelivery(&self, invocation: &Invocation, reported: &[bool]) -> Checked {
        let calls = self.history.journal.redeliveries.iter().filter(|call| call.invocation == invocation.number);
        let calls: Vec<_> = calls.collect();
        let is_due = self.history.plan.settings.redelivery.is_some() && reported.iter().any(|reported| *reported);
        let settle_by = invocation.deadline().before(invocation.reserve() / 2);
        let was_late = calls.is_empty() && invocation.ended >= settle_by;
        let is_called = calls.len() == usize::from(is_due) || was_late;
        ensure!(is_called, Redelivery, "called {} times, with {reported:?} reported", calls.len());
        let failed = invocation.reports.iter().filter(|report| report.reported);
        let told = |report: &RecordReport| (report.index, report.outcome, report.held_until);
        for call in calls {
            let is_told = call.reports.iter().map(told).eq(failed.clone().map(told));
            ensure!(is_told, Redelivery, "told of {:?}", call.reports);
        }
        Ok(())
    }

    /// Checks that exactly the records whose retry cannot succeed are dead-lettered, once each, unless an earlier
    /// failure in their order has them redelivered, or no time is left.
    pub(super) fn check_dead_letters(
        &self,
        invocation: &Invocation,
        expected: &[Expected],
        reported: &[bool],
    ) -> Checked {
        let mut failed = HashSet::new();
        for (place, expected) in expected.iter().enumerate() {
            let lane = self.lane(invocation, place);
            let is_held_back = lane.is_some_and(|lane| failed.contains(&lane));
            let letters = self.dead_letters(invocation, place).len();
            let is_due = match expected.is_dead {
                Some(is_dead) => letters == usize::from(is_dead && !is_held_back),
                None => letters <= usize::from(!is_held_back),
            };
            let was_late = letters == 0 && invocation.ended >= invocation.stop();
            ensure!(is_due || was_late, DeadLetter, "record {place} was sent {letters} times, and is {expected:?}");
            if reported[place] {
                failed.extend(lane);
            }
        }
        Ok(())
    }
}
