//! Waiting for a lease that ends in time: such a record is claimed once more when it is over, and looked at before that, as
//! whoever holds it may come to its end.

use std::time::Duration;

use super::{
    schedule::Room,
    stages::{Patient, Ready},
    state::{Invocation, take_for_claims},
};
use crate::{
    Error,
    batch::{report::replayed, source::Source},
    clock::Timestamp,
    idempotency::engine::{Candidate, Seen},
    store::{Refusal, rules::lapses},
};

impl<S: Source, T> Invocation<S, T> {
    /// Takes out the records that may be claimed again.
    pub(super) fn take_patient(&mut self, room: Room) -> Vec<Ready<T>> {
        let now = self.now;
        let is_due = |patient: &Patient<T>| patient.until <= now;
        let due = take_for_claims(&mut self.patient, &self.lanes, room, is_due, |patient| patient.ready.index);
        due.into_iter().map(|patient| patient.ready).collect()
    }

    /// What is to be looked at, as it may have come to its end before its lease has.
    pub(super) fn watched(&mut self) -> Vec<(usize, Candidate)> {
        let now = self.now;
        let waiting = || self.patient.iter().filter(|patient| patient.until > now);
        if self.looking || waiting().all(|patient| patient.look_at > now) {
            return Vec::new();
        }
        // One call for all of them.
        waiting().filter_map(|patient| Some((patient.ready.index, patient.ready.candidate?))).collect()
    }

    /// What a look has shown of a record that waits, if it still does.
    pub(super) fn seen(&mut self, index: usize, seen: Result<Seen, Error>, margin: Duration) {
        let Some(at) = self.patient.iter().position(|patient| patient.ready.index == index) else { return };
        let outcome = match seen {
            Ok(Seen::Free) => {
                self.patient[at].until = self.now;
                return;
            }
            Ok(Seen::Refused(refusal @ Refusal::InProgress { lease_until: Some(lease_until), .. })) => {
                let patient = &mut self.patient[at];
                patient.until = lapses(lease_until, margin);
                patient.refusal = refusal;
                return patient.look_later(self.now);
            }
            Ok(Seen::Trouble(_)) => return self.patient[at].look_later(self.now),
            Ok(Seen::Refused(refusal)) => Ok(replayed(refusal)),
            Err(error) => Err(error),
        };
        self.patient.swap_remove(at).ready.give_up();
        self.decide(index, outcome);
    }

    /// How long until there is something to do even if nothing comes to an end: a lease that is waited for is over, or,
    /// with something under way, the stop point has come and outcomes or claims are at hand, which must not wait for that.
    pub(super) fn wakes_after(&self, now: Timestamp, is_under_way: bool) -> Option<Duration> {
        let is_at_hand = !self.due.is_empty() || !self.ready.is_empty();
        let stop = (is_under_way && is_at_hand && !self.stopped).then_some(self.window.stop);
        let waiting = self.patient.iter().filter(|patient| patient.until > self.now);
        let leases = waiting.clone().map(|patient| patient.until);
        let looks = waiting.map(|patient| patient.look_at).filter(|_| !self.looking && !self.stopped);
        leases.chain(looks).chain(stop).min().map(|wake| wake.since(now))
    }
}
