//! Checks responses, which contain exactly the undecided records, in the order of the event.

use std::collections::{HashMap, HashSet};

use lambda_once::ErrorKind;

use super::{Checked, Evidence, ensure, outcomes::Expected, table::Outcome};
use crate::{
    journal::{End, Run},
    plan::Body,
    runner::Invocation,
    source::id_of,
    timeline::{Moment, millis},
};

impl Evidence<'_> {
    pub(super) fn check_response(&self, invocation: &Invocation) -> Checked {
        let Some(answer) = &invocation.answer else {
            return self.check_killed(invocation);
        };
        let records = || (0..invocation.places.len()).map(|place| self.record(invocation, place));
        if records().any(|record| record.id.is_none()) {
            return self.check_refused(invocation);
        }
        if self.cannot_start(invocation) {
            let has_orders = records().any(|record| matches!(record.body, Body::Order { .. }));
            let is_error = answer.as_ref().is_err_and(|kind| *kind != ErrorKind::Batch);
            ensure!(is_error || !has_orders, Progress, "no record can ever start, and the answer is {answer:?}");
            if is_error {
                return self.check_untouched(invocation);
            }
        }
        let expected = self.expected_outcomes(invocation);
        let reported = self.reported(invocation, &expected);
        self.check_behind_failures(invocation, &reported)?;
        self.check_progress(invocation, &expected, &reported)?;
        self.check_reports(invocation, &expected, &reported)?;
        self.check_dead_letters(invocation, &expected, &reported)?;
        let settings = &self.history.plan.settings;
        let are_all = !reported.is_empty() && reported.iter().all(|reported| *reported);
        let are_any = reported.iter().any(|reported| *reported);
        if settings.total_failure_is_error && are_all || settings.is_all_or_nothing() && are_any {
            ensure!(*answer == Err(ErrorKind::Batch), FailureReporting, "records failed, and the answer is {answer:?}");
            return Ok(());
        }
        let ids = records().zip(&reported).filter(|(_, reported)| **reported).filter_map(|(record, _)| record.id);
        // SQS gets each id once, other sources get one entry per record.
        let mut told = HashSet::new();
        let ids = ids.filter(|id| !self.history.plan.source.is_sqs() || told.insert(*id));
        let due: Vec<String> = ids.map(id_of).collect();
        let is_due = answer.as_ref().is_ok_and(|answer| *answer == due);
        ensure!(is_due, FailureReporting, "{}", self.difference(invocation, &due, &expected));
        Ok(())
    }

    /// Checks that a killed invocation has dead-lettered each record at most once.
    fn check_killed(&self, invocation: &Invocation) -> Checked {
        for place in 0..invocation.places.len() {
            let letters = self.dead_letters(invocation, place).len();
            ensure!(letters <= 1, DeadLetter, "record {place} was dead-lettered {letters} times");
        }
        Ok(())
    }

    /// Checks that an event with a record without an id is refused before any work is done.
    fn check_refused(&self, invocation: &Invocation) -> Checked {
        let answer = &invocation.answer;
        ensure!(*answer == Some(Err(ErrorKind::Event)), FailureReporting, "a record without an id: {answer:?}");
        self.check_untouched(invocation)?;
        ensure!(self.decoded(invocation) == 0, FailureReporting, "a refused event was decoded");
        Ok(())
    }

    fn check_untouched(&self, invocation: &Invocation) -> Checked {
        ensure!(
            self.claims_of(invocation).is_empty() && self.runs_of(invocation).is_empty(),
            FailureReporting,
            "a refused event was acted on"
        );
        Ok(())
    }

    /// Returns whether not even the first record can be expected to end in time.
    fn cannot_start(&self, invocation: &Invocation) -> bool {
        let expected = millis(self.history.plan.settings.expected_ms.unwrap_or(0));
        invocation.began >= invocation.stop() || invocation.began.after(expected) > invocation.stop()
    }

    /// Returns whether each record is reported. All records behind a reported one in its order are reported, too.
    fn reported(&self, invocation: &Invocation, expected: &[Expected]) -> Vec<bool> {
        let mut failed = HashSet::new();
        let report = |(place, expected): (usize, &Expected)| {
            let lane = self.lane(invocation, place);
            let reported = expected.reported || lane.is_some_and(|lane| failed.contains(&lane));
            if reported {
                failed.extend(lane);
            }
            reported
        };
        expected.iter().enumerate().map(report).collect()
    }

    fn check_behind_failures(&self, invocation: &Invocation, reported: &[bool]) -> Checked {
        // The last handler call with the first reported record of each lane.
        let mut failed: HashMap<usize, Option<Moment>> = HashMap::new();
        for (place, reported) in reported.iter().enumerate() {
            let Some(lane) = self.lane(invocation, place) else { continue };
            let runs = self.runs(invocation, place);
            if let Some(call) = failed.get(&lane) {
                // Records that are handled together begin before a failure among them is known.
                let is_together = self.history.plan.settings.consecutive && call.is_some();
                let may_run = is_together && runs.iter().all(|run| Some(run.began) == *call);
                ensure!(runs.is_empty() || may_run, Order, "{runs:?} behind a record that is reported");
            } else if *reported {
                failed.insert(lane, runs.last().map(|run| run.began));
            }
        }
        Ok(())
    }

    /// Returns whether time never ran out. A frozen process has lost time, in every invocation.
    pub(super) fn had_time(&self, invocation: &Invocation) -> bool {
        let expected = self.expected_at_last(invocation);
        let stop = invocation.stop();
        let journal = &self.history.journal;
        !journal.was_frozen && invocation.ended < stop && invocation.ended.after(expected) <= stop
    }

    /// Checks that, if time never ran out, all records that nothing held back were decoded, claimed, waited for and
    /// run.
    fn check_progress(&self, invocation: &Invocation, expected: &[Expected], reported: &[bool]) -> Checked {
        let settings = &self.history.plan.settings;
        let may_halt = settings.stops_batch
            && reported.iter().enumerate().any(|(place, reported)| *reported && self.lane(invocation, place).is_some());
        if !self.had_time(invocation) || may_halt {
            return Ok(());
        }
        let decoded = self.decoded(invocation);
        // If every order has failed, there is nothing more to do.
        let lanes: HashSet<_> = (0..expected.len()).map(|place| self.lane(invocation, place)).collect();
        let failed = (0..decoded).filter(|place| reported[*place]);
        let failed: HashSet<_> = failed.map(|place| self.lane(invocation, place)).collect();
        let may_stop = !lanes.contains(&None) && lanes == failed;
        let is_enough = decoded == expected.len() || may_stop;
        ensure!(is_enough, Progress, "{decoded} of {} records were decoded", expected.len());
        let mut failed = HashSet::new();
        for (place, expected) in expected.iter().enumerate() {
            let lane = self.lane(invocation, place);
            let is_held_back = lane.is_some_and(|lane| failed.contains(&lane));
            if reported[place] {
                failed.extend(lane);
            }
            if is_held_back || expected.leader.is_some() {
                continue;
            }
            let is_open = expected.possible.contains(&Outcome::NotStarted);
            ensure!(!is_open, Progress, "record {place} was not run, and there was time");
            let is_cancelled = |run: &&Run| run.end.is_none_or(|(end, _)| end == End::Cancelled);
            // A call with several records is cancelled for all of them.
            let is_limited = |run: &Run| {
                let mut call = self.runs_of(invocation).iter().filter(|other| other.began == run.began);
                settings.dead_letters.is_some() && call.any(|run| self.is_last_in_order(invocation, run.place))
            };
            let cancelled = self.runs(invocation, place).iter().find(|run| is_cancelled(run) && !is_limited(run));
            ensure!(cancelled.is_none(), Progress, "{cancelled:?} was cancelled before its time");
            self.check_waited(invocation, place, reported)?;
        }
        Ok(())
    }

    /// Describes the differences of a response, record by record.
    fn difference(&self, invocation: &Invocation, due: &[String], expected: &[Expected]) -> String {
        let Some(Ok(answer)) = &invocation.answer else {
            return format!("{:?}, and not {} ids", invocation.answer, due.len());
        };
        let mut text = format!("{} ids, and not {}", answer.len(), due.len());
        let (found, wanted): (HashSet<_>, HashSet<_>) = (answer.iter().collect(), due.iter().collect());
        for (place, expected) in expected.iter().enumerate() {
            let id = self.record(invocation, place).id.map(id_of).unwrap_or_default();
            if found.contains(&id) != wanted.contains(&id) {
                let runs = self.runs(invocation, place);
                text += &format!("\n{id} at {place}, in the answer: {}, {expected:?} {runs:?}", found.contains(&id));
            }
        }
        let unknown: Vec<_> = found.difference(&wanted).collect();
        text + &format!("\nnot due: {unknown:?}")
    }
}
