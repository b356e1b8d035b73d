//! Checks settles: each run by its outcome, and before the next handler begins if that would delay it.

use std::{collections::HashMap, time::Duration};

use super::{Checked, Evidence, ensure};
use crate::{
    journal::End,
    recorded_store::{Ending, Told},
    runner::Invocation,
    timeline::millis,
};

/// The maximum time that an outcome may have been due when another handler begins.
const DUE_AT_MOST: Duration = millis(2);

impl Evidence<'_> {
    pub(super) fn check_settles(&self, invocation: &Invocation) -> Checked {
        self.check_endings(invocation)?;
        self.check_delay(invocation)
    }

    /// Returns the settle that follows such a run, or `None` if the claim is kept.
    fn ending_of(&self, end: End) -> Option<Ending> {
        match end {
            End::Succeeded | End::Recovered => Some(Ending::Complete),
            End::Permanent => Some(Ending::Fail),
            End::Transient | End::NotReached => Some(Ending::Release),
            End::Panicked if self.history.plan.settings.releases_panics => Some(Ending::Release),
            End::Panicked | End::Unknown | End::Cancelled | End::NotDone => None,
        }
    }

    /// Checks that each settle follows from the end of its run, and that claims whose handlers did not begin are
    /// released. A killed invocation may omit both, but does nothing else.
    fn check_endings(&self, invocation: &Invocation) -> Checked {
        let mut owners = HashMap::new();
        for run in self.runs_of(invocation) {
            if let (Some(owner), Some((end, _))) = (self.owner(run), run.end) {
                owners.insert(owner, (run, end));
            }
        }
        for (owner, (run, end)) in &owners {
            let due = self.ending_of(*end);
            let settles = self.settles(*owner);
            let is_settled = !settles.is_empty() || due.is_none() || invocation.was_killed();
            ensure!(is_settled, Settlement, "{run:?} is not settled");
            let is_due = settles.iter().all(|settle| Some(settle.ending) == due);
            ensure!(is_due, Settlement, "{run:?} is settled by {settles:?}");
        }
        let claims = self.claims_of(invocation).iter();
        for claim in claims.filter(|claim| claim.told == Told::Granted && !owners.contains_key(&claim.owner)) {
            let settles = self.settles(claim.owner);
            let is_released = !settles.is_empty() || invocation.was_killed();
            let only_released = settles.iter().all(|settle| settle.ending == Ending::Release);
            ensure!(is_released && only_released, Settlement, "{claim:?} is kept for nothing");
        }
        Ok(())
    }

    /// Checks that all outcomes that have been due for too long are sent before a handler begins. A handler that blocks
    /// its thread delays the others by at most one run.
    fn check_delay(&self, invocation: &Invocation) -> Checked {
        let runs = self.runs_of(invocation);
        for run in runs {
            let (Some(owner), Some((end, ended))) = (self.owner(run), run.end) else { continue };
            if self.ending_of(end).is_none() {
                continue;
            }
            let sent = self.settles(owner).first().map(|settle| settle.asked);
            // In the order in which they began.
            let next = runs.partition_point(|later| later.began.at <= ended.at.after(DUE_AT_MOST));
            if let Some(later) = runs.get(next) {
                let is_sent = sent.is_some_and(|sent| sent < later.began);
                ensure!(is_sent, Settlement, "{later:?} began before {run:?} was settled");
            }
        }
        Ok(())
    }
}
