//! Answers: what is not decided, that and nothing else, in the order of the event.

use std::{collections::HashSet, time::Duration};

use lambda_once::{ErrorKind, Interruption, OutcomeKind, Verdict as Mark, batch::RecordReport, clock::Timestamp};

use super::{
    Verdict, View, ensure,
    fates::{Fate, Guess},
};
use crate::{
    desk::Told,
    journal::End,
    plan::Policy,
    post::name,
    stage::{Call, MARGIN_MS},
    watch::millis,
};

impl View<'_> {
    pub(super) fn check_answer(&self, call: &Call) -> Verdict {
        let records = || (0..call.places.len()).map(|place| self.record(call, place));
        if records().any(|record| record.id.is_none()) {
            return self.check_refused(call);
        }
        let guesses = self.guesses(call);
        let reported = self.reported(call, &guesses);
        self.check_behind_failures(call, &reported)?;
        self.check_progress(call, &guesses, &reported)?;
        self.check_reports(call, &guesses, &reported)?;
        let settings = &self.seen.plan.settings;
        let are_all = !reported.is_empty() && reported.iter().all(|reported| *reported);
        if settings.total_failure_is_error && are_all {
            ensure!(call.answer == Err(ErrorKind::Batch), Answer, "all failed, and the answer is {:?}", call.answer);
            return Ok(());
        }
        let ids = records().zip(&reported).filter(|(_, reported)| **reported).filter_map(|(record, _)| record.id);
        // SQS is told of an id once, others of each record.
        let mut told = HashSet::new();
        let ids = ids.filter(|id| !self.seen.plan.origin.is_sqs() || told.insert(*id));
        let due: Vec<String> = ids.map(name).collect();
        let is_due = call.answer.as_ref().is_ok_and(|answer| *answer == due);
        ensure!(is_due, Answer, "{}", self.difference(call, &due, &guesses));
        self.check_letters(call, &guesses, &reported)
    }

    /// An event with a record that has no id is refused before anything is done.
    fn check_refused(&self, call: &Call) -> Verdict {
        ensure!(call.answer == Err(ErrorKind::Event), Answer, "a record without an id: {:?}", call.answer);
        let is_claimed = self.seen.asked.claims.iter().any(|claim| claim.invocation == call.number);
        let is_untouched = !is_claimed && self.of_call(call.number).is_empty() && self.looked_at(call) == 0;
        ensure!(is_untouched, Answer, "a refused event was looked at");
        Ok(())
    }

    /// Whatever is behind a record that is reported, in its order, is reported too.
    fn reported(&self, call: &Call, guesses: &[Guess]) -> Vec<bool> {
        let mut failed = HashSet::new();
        let report = |(place, guess): (usize, &Guess)| {
            let lane = self.lane(call, place);
            let is_held_up = lane.is_some_and(|lane| failed.contains(&lane));
            let reported = guess.reported || is_held_up;
            if reported {
                failed.extend(lane);
            }
            reported
        };
        guesses.iter().enumerate().map(report).collect()
    }

    fn check_behind_failures(&self, call: &Call, reported: &[bool]) -> Verdict {
        let mut failed = HashSet::new();
        for (place, reported) in reported.iter().enumerate() {
            let Some(lane) = self.lane(call, place) else { continue };
            let ran = self.attempts(call.number, place);
            ensure!(!failed.contains(&lane) || ran.is_empty(), Order, "{ran:?} ran behind a record that is reported");
            if *reported {
                failed.insert(lane);
            }
        }
        Ok(())
    }

    /// What no retry can help is put aside once, unless a failure before it in its order has it delivered again, or no time is
    /// left; and nothing else is.
    fn check_letters(&self, call: &Call, guesses: &[Guess], reported: &[bool]) -> Verdict {
        let mut failed = HashSet::new();
        for (place, guess) in guesses.iter().enumerate() {
            let lane = self.lane(call, place);
            let is_held_up = lane.is_some_and(|lane| failed.contains(&lane));
            let letters = self.letters.get(&(call.number, place)).map_or(0, Vec::len);
            let due = usize::from(guess.is_dead && !is_held_up);
            let was_late = letters == 0 && call.answered >= call.stop();
            ensure!(letters == due || was_late, Answer, "{letters} letters of record {place}, which is {guess:?}");
            if reported[place] {
                failed.extend(lane);
            }
        }
        Ok(())
    }

    /// Whether the time was never up. What blocks its thread takes time from all others, in every invocation.
    fn had_time(&self, call: &Call) -> bool {
        let expected = self.expected(call, call.answered.after(millis(1)));
        !self.seen.pages.blocked && call.answered < call.stop() && call.answered.after(expected) <= call.stop()
    }

    /// If the time was never up, all was looked at, claimed, waited for and run that nothing held up.
    fn check_progress(&self, call: &Call, guesses: &[Guess], reported: &[bool]) -> Verdict {
        let settings = &self.seen.plan.settings;
        let expected = self.expected(call, call.answered.after(millis(1)));
        let may_halt = settings.stops_batch
            && reported.iter().enumerate().any(|(place, reported)| *reported && self.lane(call, place).is_some());
        if !self.had_time(call) || may_halt {
            return Ok(());
        }
        let looked_at = self.looked_at(call);
        // If every order has failed nothing more can be done.
        let lanes: HashSet<_> = (0..guesses.len()).map(|place| self.lane(call, place)).collect();
        let lost: HashSet<_> =
            (0..looked_at).filter(|place| reported[*place]).map(|place| self.lane(call, place)).collect();
        let may_stop = !lanes.contains(&None) && lanes == lost;
        let is_enough = looked_at == guesses.len() || may_stop;
        ensure!(is_enough, Progress, "{looked_at} of {} records were looked at", guesses.len());
        let mut failed = HashSet::new();
        for (place, guess) in guesses.iter().enumerate() {
            let lane = self.lane(call, place);
            let is_held_up = lane.is_some_and(|lane| failed.contains(&lane));
            if reported[place] {
                failed.extend(lane);
            }
            if is_held_up || guess.leader.is_some() {
                continue;
            }
            ensure!(guess.fate != Fate::Open, Progress, "record {place} was not run, and there was time");
            let is_cut_off = self
                .attempts(call.number, place)
                .iter()
                .any(|attempt| attempt.end.is_none_or(|(end, _)| end == End::CutOff));
            ensure!(!is_cut_off, Progress, "record {place} was cut off before its time");
            if lane.is_some() {
                self.check_patience(call, place, expected)?;
            }
        }
        Ok(())
    }

    /// Where there is an order, a lease that ends in time is waited for.
    fn check_patience(&self, call: &Call, place: usize, expected: Duration) -> Verdict {
        let Some(key) = self.record(call, place).key() else { return Ok(()) };
        let claims = self.claims(call.number, key);
        let owners: HashSet<_> = claims.iter().map(|claim| claim.owner).collect();
        let Some(Told::InProgress(Some(until))) = claims.last().map(|claim| claim.told) else { return Ok(()) };
        let until = match self.look(call, key) {
            // A look that takes its time may see the lease lapsed, and that is an answer where nobody may take over.
            Some(Told::InProgress(_)) if self.seen.plan.settings.after_unknown == Policy::Refuse => return Ok(()),
            Some(Told::InProgress(Some(renewed))) => renewed,
            Some(Told::Nothing) | None => until,
            Some(_) => return Ok(()),
        };
        let until = Timestamp::from_millis(until).after(millis(MARGIN_MS + 1));
        let is_too_late = until >= call.stop() || until.after(expected) > call.stop();
        ensure!(owners.len() == 2 || is_too_late, Progress, "record {place} did not wait until {until:?}");
        Ok(())
    }

    /// Of each record is said what became of it, once, in the order of the event.
    fn check_reports(&self, call: &Call, guesses: &[Guess], reported: &[bool]) -> Verdict {
        ensure!(call.reports.len() == guesses.len(), Report, "{} of {}", call.reports.len(), guesses.len());
        let stops_batch = self.seen.plan.settings.stops_batch;
        let mut failed = HashSet::new();
        for (place, (guess, report)) in guesses.iter().zip(&call.reports).enumerate() {
            let id = self.record(call, place).id.map(name);
            let is_its = report.index == place && Some(report.record.id()) == id.as_deref();
            ensure!(is_its, Report, "{report:?} in the place of record {place}");
            let lane = self.lane(call, place);
            let is_held_up = lane.is_some_and(|lane| failed.contains(&lane));
            if reported[place] {
                failed.extend(lane);
            }
            ensure!(report.reported == reported[place], Report, "{report:?} of {guess:?}");
            let is_put_aside = guess.is_put_aside && !is_held_up;
            ensure!(report.dead_lettered == is_put_aside, Report, "{report:?} of {guess:?}");
            let is_skipped = |guess: &Guess| {
                let leader = guess.leader.map(|leader| call.reports[leader].outcome);
                leader == Some(Ok(OutcomeKind::Skipped))
            };
            let first = guess.leader.unwrap_or(place);
            let is_begun = !self.attempts(call.number, first).is_empty();
            // What is waited for as somebody else has it is open too, and what is to be put aside in its turn.
            let is_open = !is_begun && matches!(guesses[first].fate, Fate::Open | Fate::Retry { failed: false })
                || first != place && guesses[first].is_dead;
            let is_true = match report.outcome {
                // One with an earlier one's key is not run either where that is held up.
                Ok(OutcomeKind::Skipped) => is_held_up || is_open && (stops_batch || is_skipped(guess)),
                // Its claim was granted when its lease had passed.
                Ok(OutcomeKind::InProgress) if !is_held_up && guess.fate == Fate::Open => {
                    report.held_until.is_some_and(|until| until <= call.answered.after(millis(MARGIN_MS + 1)))
                }
                Ok(OutcomeKind::NotStarted) if stops_batch && self.had_time(call) => false,
                _ => !is_held_up && guess.fate.is_told_by(report),
            };
            ensure!(is_true, Report, "{report:?} of {guess:?}, held up: {is_held_up}");
        }
        Ok(())
    }

    /// What is wrong with an answer, record by record.
    fn difference(&self, call: &Call, due: &[String], guesses: &[Guess]) -> String {
        let Ok(answer) = &call.answer else { return format!("{:?}, and not {} ids", call.answer, due.len()) };
        let mut text = format!("{} ids, and not {}", answer.len(), due.len());
        let (found, wanted): (HashSet<_>, HashSet<_>) = (answer.iter().collect(), due.iter().collect());
        for (place, guess) in guesses.iter().enumerate() {
            let id = self.record(call, place).id.map(name).unwrap_or_default();
            if found.contains(&id) != wanted.contains(&id) {
                let attempts = self.attempts(call.number, place);
                text += &format!("\n{id} at {place}, in the answer: {}, {guess:?} {attempts:?}", found.contains(&id));
            }
        }
        let unknown: Vec<_> = found.difference(&wanted).collect();
        text + &format!("\nnot due: {unknown:?}")
    }
}

impl Fate {
    /// Whether this is what is said of a record that nothing holds up.
    fn is_told_by(self, report: &RecordReport) -> bool {
        match (self, report.outcome) {
            (Self::Done, Ok(outcome)) => outcome.is_done(),
            (Self::Permanent, Ok(outcome)) => outcome.has_failed_for_good(),
            (Self::Refused, Ok(outcome)) => outcome == OutcomeKind::Mismatch,
            (Self::Refused, Err(kind)) => matches!(kind, ErrorKind::KeyMissing | ErrorKind::Payload),
            (Self::Retry { failed: true }, Ok(outcome)) => matches!(
                outcome,
                OutcomeKind::Failed(Mark::Transient | Mark::Unknown) | OutcomeKind::Interrupted(Interruption::Panicked)
            ),
            (Self::Retry { failed: false }, Ok(outcome)) => {
                !outcome.is_done() && !outcome.has_failed_for_good() && outcome != OutcomeKind::Mismatch
            }
            (Self::Retry { failed: false }, Err(kind)) => !matches!(kind, ErrorKind::KeyMissing | ErrorKind::Payload),
            (Self::Open, Ok(outcome)) => outcome == OutcomeKind::NotStarted,
            (Self::Done | Self::Permanent | Self::Retry { failed: true } | Self::Open, Err(_)) => false,
        }
    }
}
