//! Checks waits for claims that are held elsewhere (B6): long enough, not too long, and with few polls.

use std::collections::HashSet;

use lambda_once::clock::Timestamp;

use super::{Checked, Evidence, ensure, lapses};
use crate::{
    journal::End,
    plan::Policy,
    recorded_store::{Claim, Read, Settling, Told},
    runner::Invocation,
    timeline::{Moment, millis},
};

/// The documented default of `wait_up_to`, in milliseconds.
const WAIT_UP_TO_MS: u64 = 20_000;

/// The longest pause before a claim is sent again, in milliseconds.
const LONGEST_PAUSE_MS: u64 = 200;

/// The maximum number of keys that one poll reads.
const KEYS_IN_A_POLL: usize = 25;

/// The maximum number of keys that are polled in a second.
const KEYS_IN_A_SECOND: usize = 100;

impl Evidence<'_> {
    fn wait_up_to_ms(&self) -> u64 {
        self.history.plan.settings.wait_up_to_ms.unwrap_or(WAIT_UP_TO_MS)
    }

    fn may_wait(&self, invocation: &Invocation, place: usize) -> bool {
        self.lane(invocation, place).is_some() || self.history.plan.settings.waits_without_order()
    }

    /// Returns whether a record was certainly still waiting when this read returned.
    pub(super) fn waits_until_response(&self, invocation: &Invocation, place: usize, read: &Read) -> bool {
        let settings = &self.history.plan.settings;
        let Some(answered) = read.answered else { return false };
        let Some(refused) = self.refused(invocation, place) else { return false };
        let limit = refused.answered.map(|refused| refused.at.after(millis(self.wait_up_to_ms())));
        let is_within = limit.is_some_and(|limit| answered.at < limit);
        // A run that ended at the same time may have been observed first.
        let expected = self.expected_after(invocation, answered.at);
        let is_in_vain = self.last_known_lease(read).is_some_and(|until| until.after(expected) > invocation.stop());
        // An earlier failure in its order ends the wait, and so may any failure if the response depends on no more.
        let is_alone = !settings.stops_batch
            && (self.lane(invocation, place).is_none()
                || (0..place).all(|earlier| self.lane(invocation, earlier) != self.lane(invocation, place)))
            && !settings.is_all_or_nothing();
        is_within && !is_in_vain && is_alone && self.had_time(invocation)
    }

    /// Returns the end of the lease in the way for others, from the results of claims and reads before this read.
    fn last_known_lease(&self, read: &Read) -> Option<Timestamp> {
        let lease = |answered: Option<Moment>, told: Told| {
            let answered = answered.filter(|answered| *answered < read.asked)?;
            Some((answered, told.held_until().flatten().map(Timestamp::from_millis)?))
        };
        let claims = self.claims.get(&(read.invocation, read.key)).into_iter().flatten();
        let reads = self.reads_of(read.invocation).iter().filter(|earlier| earlier.key == read.key);
        let claims = claims.filter_map(|claim| lease(claim.answered, claim.told));
        let known = claims.chain(reads.filter_map(|read| lease(read.answered, read.told)));
        known.max().map(|(_, until)| lapses(until))
    }

    /// Returns the first refusal of a record's claim.
    fn refused(&self, invocation: &Invocation, place: usize) -> Option<&Claim> {
        let key = self.record(invocation, place).key()?;
        let is_refused = |claim: &&&Claim| claim.told.held_until().is_some();
        self.claims(invocation.number, key).iter().find(is_refused).copied()
    }

    /// Returns whether an earlier request of the claim got no response, so that the record may be read to withdraw that
    /// request.
    pub(super) fn was_in_doubt(&self, refused: &Claim) -> bool {
        let claims = self.claims.get(&(refused.invocation, refused.key)).into_iter().flatten();
        claims.into_iter().any(|claim| claim.owner == refused.owner && claim.told == Told::Nothing)
    }

    /// Checks that a lease that ends in time is waited for, and the record then claimed again.
    pub(super) fn check_waited(&self, invocation: &Invocation, place: usize, reported: &[bool]) -> Checked {
        if !self.may_wait(invocation, place) {
            return Ok(());
        }
        let Some(key) = self.record(invocation, place).key() else { return Ok(()) };
        let claims = self.claims(invocation.number, key);
        let owners: HashSet<_> = claims.iter().map(|claim| claim.owner).collect();
        let Some(claim) = claims.last() else { return Ok(()) };
        let Some(Some(until)) = claim.told.held_until() else { return Ok(()) };
        // It is refused immediately, and read only to withdraw an in-doubt request of the same claim.
        if lapses(Timestamp::from_millis(until)) >= invocation.stop() {
            return Ok(());
        }
        let is_fixed = self.history.plan.settings.is_all_or_nothing()
            && reported.iter().enumerate().any(|(other, reported)| *reported && other != place);
        let until = match self.last_read(claim) {
            _ if is_fixed => return Ok(()),
            Some(read) => match read.told {
                // A slow poll may find that the lease has ended, which decides the record if nobody may take over.
                Told::InProgress(_) if self.history.plan.settings.after_unknown == Policy::Refuse => return Ok(()),
                Told::InProgress(_) if read.fingerprint != claim.fingerprint => return Ok(()),
                Told::InProgress(Some(renewed)) => renewed,
                _ => return Ok(()),
            },
            None => until,
        };
        let until = lapses(Timestamp::from_millis(until));
        let expected = self.expected_at_last(invocation);
        let limit = claim.answered.map(|answered| answered.at.after(millis(self.wait_up_to_ms())));
        let is_too_late = until >= invocation.stop()
            || until.after(expected) > invocation.stop()
            || limit.is_none_or(|limit| until >= limit);
        ensure!(owners.len() == 2 || is_too_late, Progress, "record {place} did not wait until {until:?}");
        Ok(())
    }

    pub(super) fn check_waits(&self, invocation: &Invocation) -> Checked {
        self.check_polls(invocation)?;
        if invocation.was_killed() || self.history.journal.was_frozen {
            return Ok(());
        }
        self.check_wait_limit(invocation)
    }

    /// Checks the polls of waiting records: one at a time, of few keys, and of few keys per second.
    fn check_polls(&self, invocation: &Invocation) -> Checked {
        let is_poll = |read: &&Read| {
            let claims = self.claims.get(&(invocation.number, read.key)).map_or(&[][..], Vec::as_slice);
            let last = claims.iter().rev().find(|claim| claim.asked < read.asked);
            last.is_some_and(|claim| claim.told.held_until().is_some() && !self.was_in_doubt(claim))
        };
        let polls: Vec<&Read> = self.reads_of(invocation.number).iter().copied().filter(is_poll).collect();
        for (nth, poll) in polls.iter().enumerate() {
            let in_call = polls.iter().filter(|other| other.call == poll.call).count();
            ensure!(in_call <= KEYS_IN_A_POLL, Waiting, "{in_call} keys were polled by one call");
            let second = poll.asked.at.after(millis(1_000));
            let in_second = polls[nth..].iter().take_while(|other| other.asked.at < second).count();
            // A call that begins within the limit may exceed it.
            let most = KEYS_IN_A_SECOND + KEYS_IN_A_POLL;
            ensure!(in_second <= most, Waiting, "{in_second} keys were polled in a second");
            let open = |other: &&&Read| {
                other.call != poll.call && other.asked < poll.asked && other.answered.is_none_or(|at| at > poll.asked)
            };
            let open = polls.iter().find(open);
            ensure!(open.is_none(), Waiting, "{poll:?} was asked beside {open:?}");
        }
        Ok(())
    }

    /// Checks that no record waits longer than the setting. Later it is not claimed again, and the response is not
    /// delayed for it once everything else is done.
    fn check_wait_limit(&self, invocation: &Invocation) -> Checked {
        // The end of a call that never returns is unknown.
        let Some(call_ms) = self.history.plan.longest_call_ms() else { return Ok(()) };
        // A poll and its consequences may be in progress, and the claims of one call wait for the repeated ones among
        // them.
        let faults = &self.history.plan.faults;
        let sends_again = faults.late > 0 || !faults.rates.is_empty() || !faults.always.is_empty();
        let slack = 3 * call_ms + if sends_again { 3 * (call_ms + LONGEST_PAUSE_MS) } else { 10 };
        let with_calls = |at: Timestamp| self.free_from(at.after(millis(slack)));
        let limit = |claim: &Claim| Some(with_calls(claim.answered?.at.after(millis(self.wait_up_to_ms()))));
        let claims = self.claims_of(invocation).iter().copied();
        let refused = claims.clone().filter(|claim| claim.told.held_until().is_some());
        let mut waits: Option<Timestamp> = None;
        for claim in refused {
            let Some(limit) = limit(claim) else { continue };
            waits = waits.max(Some(limit));
            let is_later = |later: &&&Claim| later.owner != claim.owner && later.asked.at > limit;
            let later = self.claims[&(invocation.number, claim.key)].iter().find(is_later);
            let is_in_vain = self.is_held_beyond(claim, limit);
            ensure!(later.is_none() || !is_in_vain, Waiting, "{later:?} after a wait that ended at {limit:?}");
        }
        let Some(waits) = waits else { return Ok(()) };
        let settles = self.settles_of(invocation).iter();
        let has_hooks =
            self.history.plan.settings.dead_letters.is_some() || self.history.plan.settings.redelivery.is_some();
        // A repeated request takes additional time.
        if has_hooks || settles.clone().any(|settle| settle.told == Settling::Nothing) {
            return Ok(());
        }
        let settles = settles.map(|settle| settle.asked);
        let runs = self.runs_of(invocation).iter().filter_map(|run| run.end).map(|(_, ended)| ended);
        let moments = claims.filter_map(|claim| claim.answered).chain(settles).chain(runs);
        let active = with_calls(moments.map(|moment| moment.at).max().unwrap_or(invocation.began));
        // Once a handler has failed, another failure makes no difference.
        let fails = |end| matches!(end, End::Transient | End::Unknown | End::Panicked);
        let is_fixed = self.history.plan.settings.is_all_or_nothing()
            && self.runs_of(invocation).iter().any(|run| run.end.is_some_and(|(end, _)| fails(end)));
        let latest = if is_fixed { active } else { active.max(waits) };
        let ended = invocation.ended;
        ensure!(ended <= latest, Waiting, "answered at {ended:?}, and nothing was waited for after {latest:?}");
        Ok(())
    }

    /// Returns whether all results that the engine had until then show that the key is held beyond the limit.
    fn is_held_beyond(&self, claim: &Claim, limit: Timestamp) -> bool {
        let is_beyond =
            |told: Told| told.held_until().flatten().is_some_and(|until| lapses(Timestamp::from_millis(until)) > limit);
        let mut reads = self
            .history
            .calls
            .reads
            .iter()
            .filter(|read| read.invocation == claim.invocation && read.key == claim.key && read.asked.at <= limit);
        is_beyond(claim.told) && reads.all(|read| is_beyond(read.told))
    }
}
