//! Checks runs: each within its time and its order, and repeated only for a reason.

use std::{collections::HashMap, time::Duration};

use lambda_once::{clock::Timestamp, record::Owner, store::Settled};

use super::{Checked, Evidence, ensure};
use crate::{
    journal::{End, Run},
    plan::{Policy, ProbeBehaviour, StoredState},
    recorded_store::Ending,
    runner::{Invocation, MARGIN_MS},
    store::Applied,
    timeline::{Moment, millis},
};

/// The maximum duration of settles that begin after the deadline because a handler blocked its thread past it.
const LATE_SETTLES_MS: u64 = 1_000;

/// The precision of timers.
const TIMER: Duration = millis(2);

impl Evidence<'_> {
    pub(super) fn check_runs(&self) -> Checked {
        ensure!(self.history.tasks == 0, Bounds, "{} tasks are left", self.history.tasks);
        for invocation in &self.history.invocations {
            self.check_bounds(invocation)?;
            self.check_order(invocation)?;
        }
        self.check_repetitions()?;
        self.check_effects()
    }

    fn check_bounds(&self, invocation: &Invocation) -> Checked {
        let (settings, journal) = (&self.history.plan.settings, &self.history.journal);
        let open = journal.most_open.get(&invocation.number).copied().unwrap_or(0);
        ensure!(open <= settings.concurrency, Bounds, "{open} handlers ran at once");
        let stop = invocation.stop();
        // A handler that blocks its thread cannot be cancelled, and neither can those beside it.
        let last_end = self.free_from(stop);
        for run in self.runs_of(invocation) {
            ensure!(run.together <= settings.together, Bounds, "{} records were together", run.together);
            ensure!(run.began.at < stop, Bounds, "{run:?} began past the handler deadline {stop:?}");
            let was_spent =
                matches!(run.end, Some((End::NotReached, _))) && self.is_last_in_order(invocation, run.place);
            ensure!(!was_spent, DeadLetter, "{run:?} spends a last delivery without being reached");
            let Some((end, ended)) = run.end else {
                ensure!(false, Bounds, "{run:?} has not ended");
                return Ok(());
            };
            if journal.was_frozen {
                continue;
            }
            ensure!(ended.at <= last_end, Bounds, "{run:?} ended past the handler deadline {stop:?}");
            let expected = run.began.at.after(self.expected(invocation, run.began));
            let is_first = self.runs(invocation, run.place)[0].began == run.began;
            ensure!(!is_first || expected <= stop, Bounds, "{run:?} could not be expected to end in time");
            if let Some(limits) = self.last_attempt_timeout(invocation, run) {
                self.check_last_attempt(invocation, run, (end, ended.at), limits)?;
            }
        }
        let late = journal.blocked.iter().filter(|blocked| blocked.until > stop).map(|blocked| blocked.until).max();
        let last_answer =
            late.map_or(invocation.deadline(), |late| invocation.deadline().max(late.after(millis(LATE_SETTLES_MS))));
        let is_in_time = journal.was_frozen || invocation.ended <= last_answer;
        ensure!(is_in_time, Bounds, "answered {:?} after the deadline", invocation.ended.since(invocation.deadline()));
        Ok(())
    }

    /// Checks that a record with others behind it runs as long as it may on its last delivery, and no longer.
    fn check_last_attempt(
        &self,
        invocation: &Invocation,
        run: &Run,
        (end, ended): (End, Timestamp),
        (least, most): (Duration, Duration),
    ) -> Checked {
        let may_be_cut_off = end != End::Cancelled
            || ended >= run.began.at.after(least)
            || ended >= invocation.stop()
            || invocation.was_killed();
        ensure!(may_be_cut_off, Bounds, "{run:?} was cancelled before {least:?}");
        let latest = self.free_from(run.began.at.after(most));
        ensure!(ended <= latest, Bounds, "{run:?} held back its followers for more than {most:?}");
        Ok(())
    }

    /// Returns the minimum and maximum time that a handler may run on the last delivery of a record with others behind
    /// it, or `None` if there is no such limit, or if it is not certain.
    fn last_attempt_timeout(&self, invocation: &Invocation, run: &Run) -> Option<(Duration, Duration)> {
        let settings = &self.history.plan.settings;
        let key = self.record(invocation, run.place).key();
        let mut followers = self.followers(invocation, run.place);
        let has_followers = followers.any(|later| self.record(invocation, later).key() != key || key.is_none());
        let is_limited = settings.dead_letters.is_some()
            && self.is_last_in_order(invocation, run.place)
            && has_followers
            && run.together == 1
            && self.runs(invocation, run.place).len() == 1;
        let half = |until: Timestamp| until.since(run.began.at) / 2;
        let (least, most) = match settings.last_attempt_timeout_ms {
            Some(ms) => (millis(ms), millis(ms)),
            None => (half(invocation.stop()), half(invocation.deadline())),
        };
        is_limited.then(|| (least.saturating_sub(TIMER), most + TIMER))
    }

    /// Checks that the records of a lane run one after the other, in the order of the event.
    fn check_order(&self, invocation: &Invocation) -> Checked {
        let mut last: HashMap<usize, &Run> = HashMap::new();
        for run in self.runs_of(invocation) {
            let Some(lane) = self.lane(invocation, run.place) else { continue };
            if let Some(before) = last.insert(lane, run) {
                // Records that are handled together are in order.
                let is_together = self.history.plan.settings.consecutive && before.began == run.began;
                let is_next = before.place < run.place
                    || before.place == run.place && before.end.is_some_and(|(end, _)| end == End::NotDone);
                ensure!(is_next, Order, "{run:?} began after {before:?}");
                let has_ended = is_together || before.end.is_some_and(|(_, ended)| ended < run.began);
                ensure!(has_ended, Order, "{run:?} began before the end of {before:?}");
            }
        }
        if self.history.plan.settings.stops_batch && self.history.plan.settings.dead_letters.is_none() {
            self.check_halt(invocation)?;
        }
        Ok(())
    }

    /// Checks that nothing begins after a failure that stops the batch.
    fn check_halt(&self, invocation: &Invocation) -> Checked {
        let ordered = self.runs_of(invocation).iter().filter(|run| self.lane(invocation, run.place).is_some());
        let fails = |end| matches!(end, End::Transient | End::Unknown | End::Panicked | End::Cancelled);
        let failed = ordered.filter_map(|run| run.end).filter(|(end, _)| fails(*end));
        let halt = failed.map(|(_, ended)| ended.at).min();
        for run in self.runs_of(invocation) {
            let is_late = run.is_handler && halt.is_some_and(|halt| run.began.at > halt);
            ensure!(!is_late, Order, "{run:?} began after a failure at {halt:?}");
        }
        Ok(())
    }

    /// Checks that the handler of a key runs again only if the previous run released the key, or left no outcome and
    /// the policy allows it. After a killed invocation, too, only runs that had begun and were not recorded are
    /// repeated, with a takeover.
    fn check_repetitions(&self) -> Checked {
        let mut last: HashMap<usize, &Run> = HashMap::new();
        let ended = self.settled();
        for run in self.history.journal.runs.iter().filter(|run| run.is_handler) {
            let Some(key) = run.key else { continue };
            let Some(before) = last.insert(key, run) else { continue };
            let took_over = run.claim.is_some_and(|(took_over, _)| took_over);
            let before_it = |ending| {
                let moment = self.owner(before).and_then(|owner| ended.get(&(owner, ending)));
                moment.is_some_and(|moment| *moment < run.began)
            };
            let lapses = before.claim.map(|(_, lease_until)| lease_until.after(millis(MARGIN_MS)));
            let is_lost = took_over
                && self.history.plan.settings.after_unknown != Policy::Refuse
                && lapses.is_some_and(|lapses| lapses < run.began.at);
            let end = before.end.map(|(end, _)| end);
            let releases = match end {
                Some(End::Transient | End::NotReached) => true,
                Some(End::Panicked) => self.history.plan.settings.releases_panics,
                _ => false,
            };
            let is_decided = before_it(Ending::Complete) || before_it(Ending::Fail);
            ensure!(!is_decided, Once, "{run:?} runs after {before:?}, whose outcome is recorded");
            let is_released = releases && before_it(Ending::Release);
            ensure!(is_released || is_lost, Once, "{run:?} runs after {before:?} without a reason");
        }
        Ok(())
    }

    /// Returns the time at which each claim was settled in the store.
    fn settled(&self) -> HashMap<(Owner, Ending), Moment> {
        let settles = self.history.applied.iter().filter_map(|(moment, applied)| match applied {
            Applied::Settle(request, Settled::Done { .. }) => Some((*moment, request)),
            _ => None,
        });
        let mut settled = HashMap::new();
        for (moment, request) in settles {
            settled.entry((request.owner, Ending::from(&request.settlement))).or_insert(moment);
        }
        settled
    }

    /// Checks that an effect happens once if the policy does not repeat runs without an outcome.
    fn check_effects(&self) -> Checked {
        let plan = &self.history.plan;
        let is_once = match plan.settings.after_unknown {
            Policy::Rerun => false,
            Policy::Refuse => true,
            Policy::Probe => plan.records.iter().all(|record| record.probe == ProbeBehaviour::Truth),
        };
        // A run that is released after a panic counts as one without an effect.
        if !is_once || plan.settings.releases_panics {
            return Ok(());
        }
        let lost = plan.stored.iter().filter(|(_, stored)| stored.state == StoredState::Lapsed(true));
        let mut effects: HashMap<usize, usize> = lost.map(|(key, _)| (*key, 1)).collect();
        for run in self.history.journal.runs.iter().filter(|run| run.effect) {
            if let Some(key) = run.key {
                let count = effects.entry(key).or_default();
                *count += 1;
                ensure!(*count == 1, Once, "order {key} took effect {count} times, at last by {run:?}");
            }
        }
        Ok(())
    }
}
