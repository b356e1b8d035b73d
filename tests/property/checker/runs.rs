//! Runs: each within its time and its order, settled by what it said, and repeated only for a reason.

use std::collections::HashMap;

use lambda_once::{record::Owner, store::Settled};

use super::{Verdict, View, ensure};
use crate::{
    desk::{Ending, Told},
    ground::Applied,
    journal::{Attempt, End},
    plan::{Look, Policy, State},
    stage::{Call, MARGIN_MS},
    watch::{Moment, millis},
};

impl View<'_> {
    pub(super) fn check_runs(&self) -> Verdict {
        ensure!(self.seen.tasks == 0, Bounds, "{} tasks are left", self.seen.tasks);
        for call in &self.seen.calls {
            self.check_bounds(call)?;
            self.check_order(call)?;
            self.check_settlements(call)?;
        }
        self.check_repetitions()?;
        self.check_effects()
    }

    fn check_bounds(&self, call: &Call) -> Verdict {
        let (settings, pages) = (&self.seen.plan.settings, &self.seen.pages);
        let open = pages.most_open.get(&call.number).copied().unwrap_or(0);
        ensure!(open <= settings.concurrency, Bounds, "{open} handlers ran at once");
        ensure!(pages.most_together <= settings.together, Bounds, "{} records were together", pages.most_together);
        for attempt in self.of_call(call.number) {
            let began = attempt.began.at;
            ensure!(began < call.stop(), Bounds, "{attempt:?} began past the stop point {:?}", call.stop());
            let ended = attempt.end.map(|(_, ended)| ended.at);
            ensure!(ended.is_some(), Bounds, "{attempt:?} has not ended");
            // A handler that blocks its thread cannot be cut off, nor can those beside it.
            if pages.blocked {
                continue;
            }
            ensure!(ended <= Some(call.stop()), Bounds, "{attempt:?} ended past the stop point {:?}", call.stop());
            let end = began.after(self.expected(call, began));
            let is_first = self.attempts(call.number, attempt.place)[0].began == attempt.began;
            ensure!(!is_first || end <= call.stop(), Bounds, "{attempt:?} could not be expected to end in time");
        }
        let is_in_time = pages.blocked || call.answered <= call.ends();
        ensure!(is_in_time, Bounds, "answered {:?} after the end", call.answered.since(call.ends()));
        Ok(())
    }

    /// The records of a lane run one after the other, as they stand in the event.
    fn check_order(&self, call: &Call) -> Verdict {
        let mut last: HashMap<usize, &Attempt> = HashMap::new();
        for attempt in self.of_call(call.number) {
            let Some(lane) = self.lane(call, attempt.place) else { continue };
            if let Some(before) = last.insert(lane, attempt) {
                let is_next = before.place < attempt.place
                    || before.place == attempt.place && before.end.is_some_and(|(end, _)| end == End::NotDone);
                ensure!(is_next, Order, "{attempt:?} began after {before:?}");
                let has_ended = before.end.is_some_and(|(_, ended)| ended < attempt.began);
                ensure!(has_ended, Order, "{attempt:?} began before the end of {before:?}");
            }
        }
        if self.seen.plan.settings.stops_batch && self.seen.plan.settings.dead_letters.is_none() {
            self.check_halt(call)?;
        }
        Ok(())
    }

    /// Nothing begins after a failure that stops the batch.
    fn check_halt(&self, call: &Call) -> Verdict {
        let failed = self.of_call(call.number).iter().filter(|attempt| self.lane(call, attempt.place).is_some());
        let failed = failed.filter_map(|attempt| attempt.end);
        let kept = |end| matches!(end, End::Transient | End::Unknown | End::Panicked | End::CutOff);
        let halt = failed.filter(|(end, _)| kept(*end)).map(|(_, ended)| ended.at).min();
        for attempt in self.of_call(call.number) {
            let is_late = attempt.ran && halt.is_some_and(|halt| attempt.began.at > halt);
            ensure!(!is_late, Order, "{attempt:?} began after a failure at {halt:?}");
        }
        Ok(())
    }

    /// What is asked of the store follows from how a run ended, and what was never begun is given back.
    fn check_settlements(&self, call: &Call) -> Verdict {
        let mut owners = HashMap::new();
        for attempt in self.of_call(call.number) {
            if let (Some(owner), Some((end, _))) = (self.owner(attempt), attempt.end) {
                owners.insert(owner, (attempt, end));
            }
        }
        for (owner, (attempt, end)) in &owners {
            let due = match end {
                End::Succeeded | End::Recovered => Some(Ending::Complete),
                End::Permanent => Some(Ending::Fail),
                End::Transient => Some(Ending::Release),
                End::Panicked if self.seen.plan.settings.releases_panics => Some(Ending::Release),
                End::Panicked | End::Unknown | End::CutOff | End::NotDone => None,
            };
            let asked = self.settles(*owner);
            ensure!(asked.is_empty() == due.is_none(), Settlement, "{attempt:?} is settled by {asked:?}");
            let is_due = asked.iter().all(|settle| Some(settle.ending) == due);
            ensure!(is_due, Settlement, "{attempt:?} is settled by {asked:?}");
        }
        let claims = self.seen.asked.claims.iter().filter(|claim| claim.invocation == call.number);
        for claim in claims.filter(|claim| claim.told == Told::Granted) {
            let asked = self.settles(claim.owner);
            let is_given_back = !asked.is_empty() && asked.iter().all(|settle| settle.ending == Ending::Release);
            ensure!(owners.contains_key(&claim.owner) || is_given_back, Settlement, "{claim:?} is kept for nothing");
        }
        Ok(())
    }

    /// A key's handler runs once more only if the run before released the key, or left no outcome, and then as the policy
    /// has it.
    fn check_repetitions(&self) -> Verdict {
        let mut last: HashMap<usize, &Attempt> = HashMap::new();
        let ended = self.settled();
        for attempt in self.seen.pages.attempts.iter().filter(|attempt| attempt.ran) {
            let Some(key) = attempt.key else { continue };
            let Some(before) = last.insert(key, attempt) else { continue };
            let took_over = attempt.claim.is_some_and(|(took_over, _)| took_over);
            let before_it = |ending| {
                let moment = self.owner(before).and_then(|owner| ended.get(&(owner, ending)));
                moment.is_some_and(|moment| *moment < attempt.began)
            };
            let lapses = before.claim.map(|(_, lease_until)| lease_until.after(millis(MARGIN_MS)));
            let is_lost = took_over
                && self.seen.plan.settings.after_unknown != Policy::Refuse
                && lapses.is_some_and(|lapses| lapses < attempt.began.at);
            let end = before.end.map(|(end, _)| end);
            let releases = match end {
                Some(End::Transient) => true,
                Some(End::Panicked) => self.seen.plan.settings.releases_panics,
                _ => false,
            };
            let is_decided = before_it(Ending::Complete) || before_it(Ending::Fail);
            ensure!(!is_decided, Once, "{attempt:?} runs after {before:?}, whose outcome is recorded");
            let is_released = releases && before_it(Ending::Release);
            ensure!(is_released || is_lost, Once, "{attempt:?} runs after {before:?} without a reason");
        }
        Ok(())
    }

    /// When each claim was settled in the store.
    fn settled(&self) -> HashMap<(Owner, Ending), Moment> {
        let settles = self.seen.applied.iter().filter_map(|(moment, applied)| match applied {
            Applied::Settle(request, Settled::Done) => Some((*moment, request)),
            _ => None,
        });
        let mut settled = HashMap::new();
        for (moment, request) in settles {
            settled.entry((request.owner, Ending::from(&request.settlement))).or_insert(moment);
        }
        settled
    }

    /// Where a loss is not met by running again, an effect happens once.
    fn check_effects(&self) -> Verdict {
        let plan = &self.seen.plan;
        let is_once = match plan.settings.after_unknown {
            Policy::Rerun => false,
            Policy::Refuse => true,
            Policy::Probe => plan.records.iter().all(|record| record.probe == Look::Truth),
        };
        // What is released after a panic is said to have no effect.
        if !is_once || plan.settings.releases_panics {
            return Ok(());
        }
        let lost = plan.kept.iter().filter(|(_, kept)| kept.state == State::Lapsed(true)).map(|(key, _)| *key);
        let mut effects: HashMap<usize, usize> = lost.map(|key| (key, 1)).collect();
        for attempt in self.seen.pages.attempts.iter().filter(|attempt| attempt.effect) {
            if let Some(key) = attempt.key {
                let count = effects.entry(key).or_default();
                *count += 1;
                ensure!(*count == 1, Once, "order {key} took effect {count} times, at last by {attempt:?}");
            }
        }
        Ok(())
    }
}
