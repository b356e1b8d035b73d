//! Derives the expected outcome of each record of an invocation, and its effect on the response.

use std::collections::HashMap;

use lambda_once::record::{Fingerprint, Status};

use super::{
    Checked, Evidence, ensure, lapses,
    table::{Outcome, Rule, rule_of},
};
use crate::{
    journal::{End, Run},
    plan::{Body, PayloadChoice, Policy},
    recorded_store::{Claim, Read, Settling, Told},
    runner::Invocation,
};

/// The expectations for a record, without regard to the records before it in its order.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) outcome: Outcome,
    /// All outcomes that the evidence allows.
    pub(super) possible: Vec<Outcome>,
    pub(super) reported: bool,
    /// Whether it must be dead-lettered, or `None` if either is allowed.
    pub(super) is_dead: Option<bool>,
    /// Whether it was dead-lettered, or its operation was, through another record.
    pub(super) is_dead_lettered: bool,
    /// The earlier record with the same key, if there is one.
    pub(super) leader: Option<usize>,
}

impl Evidence<'_> {
    /// Returns the number of records of an event that were decoded. Records are decoded one by one, in order.
    pub(super) fn decoded(&self, invocation: &Invocation) -> usize {
        self.history.journal.decoded.get(&invocation.number).copied().unwrap_or(0)
    }

    /// Returns the expectations for each record of an event.
    pub(super) fn expected_outcomes(&self, invocation: &Invocation) -> Vec<Expected> {
        let mut all: Vec<Expected> = Vec::with_capacity(invocation.places.len());
        let mut leaders = HashMap::new();
        for place in 0..invocation.places.len() {
            let record = self.record(invocation, place);
            let leader = match record.body {
                Body::Order { key, .. } if place < self.decoded(invocation) => {
                    let leader = *leaders.entry(key).or_insert(place);
                    (leader != place).then_some(leader)
                }
                _ => None,
            };
            all.push(match leader {
                Some(leader) => self.follower(invocation, place, &all[leader], leader),
                None => self.leader(invocation, place),
            });
        }
        all
    }

    pub(super) fn acknowledges(&self, outcome: Outcome) -> bool {
        let settings = &self.history.plan.settings;
        match outcome.rule() {
            Rule::Acknowledged => true,
            Rule::ByPolicy => settings.acknowledges_failures && settings.dead_letters.is_none(),
            Rule::Reported => false,
        }
    }

    /// Derives the expectations for a record with the key of an earlier one. It has the same outcome, or is a mismatch
    /// if its payload differs and the earlier record has an outcome.
    fn follower(&self, invocation: &Invocation, place: usize, theirs: &Expected, leader: usize) -> Expected {
        let same_payload =
            self.history.plan.same_payload(self.record(invocation, place), self.record(invocation, leader));
        if !same_payload {
            let settings = &self.history.plan.settings;
            // A failure that was not recorded leaves the key to its claim.
            let stands = theirs.outcome.stands()
                && !(theirs.outcome == Outcome::FailedForGood && self.is_unsettled(invocation, leader));
            let is_abandoned = theirs.outcome == Outcome::Abandoned && settings.after_unknown == Policy::Refuse;
            let outcome = if is_abandoned { Outcome::Abandoned } else { Outcome::Mismatch };
            let is_last = settings.is_all_or_nothing() || self.is_last_in_order(invocation, place);
            let is_dead = is_last
                && match is_abandoned {
                    true => self.is_dead(invocation, place, outcome) == Some(true),
                    false => settings.dead_letters.is_some() && stands && !theirs.reported,
                };
            let letters = self.dead_letters(invocation, place);
            let is_dead_lettered = is_dead && letters.iter().any(|letter| letter.was_sent);
            let reported = !(stands && self.acknowledges(outcome) || is_dead_lettered);
            return Expected {
                outcome,
                possible: vec![outcome],
                reported,
                is_dead: if is_dead { None } else { Some(false) },
                is_dead_lettered,
                leader: Some(leader),
            };
        }
        let replayed = |outcome: &Outcome| match outcome.rule() {
            Rule::Acknowledged => Outcome::Replayed,
            _ => *outcome,
        };
        let possible: Vec<_> = theirs.possible.iter().map(replayed).collect();
        let outcome =
            if possible.len() > 1 { expected_outcome(&possible, invocation, place) } else { replayed(&theirs.outcome) };
        let reported = if outcome == replayed(&theirs.outcome) {
            theirs.reported
        } else {
            !(self.acknowledges(outcome) || theirs.is_dead_lettered)
        };
        Expected { outcome, possible, reported, is_dead: Some(false), leader: Some(leader), ..theirs.clone() }
    }

    fn leader(&self, invocation: &Invocation, place: usize) -> Expected {
        let possible = self.possible_outcomes(invocation, place);
        let mut outcome = expected_outcome(&possible, invocation, place);
        let letters = self.dead_letters(invocation, place);
        // Both outcomes have the same name.
        let is_reported = invocation.reports.get(place).is_some_and(|report| report.reported);
        if outcome == Outcome::Mismatch
            && is_reported
            && letters.is_empty()
            && possible.contains(&Outcome::MismatchForNow)
        {
            outcome = Outcome::MismatchForNow;
        }
        let is_dead = self.is_dead(invocation, place, outcome);
        let may_be_dead = is_dead != Some(false);
        let is_dead_lettered = may_be_dead && letters.iter().any(|letter| letter.was_sent);
        let reported = !(self.acknowledges(outcome) || is_dead_lettered);
        Expected { outcome, possible, reported, is_dead, is_dead_lettered, leader: None }
    }

    /// Returns whether a record must be dead-lettered, because a retry cannot succeed, or because this is the last
    /// delivery and the failure would also dead-letter healthy records.
    fn is_dead(&self, invocation: &Invocation, place: usize, outcome: Outcome) -> Option<bool> {
        let settings = &self.history.plan.settings;
        if settings.dead_letters.is_none() {
            return Some(false);
        }
        let is_last = self.is_last_in_order(invocation, place);
        match outcome {
            _ if outcome.rule() == Rule::ByPolicy => Some(true),
            _ if outcome.has_failed() => Some(is_last),
            Outcome::Abandoned => Some(is_last || settings.dead_letter_abandoned),
            Outcome::Cancelled if is_last => {
                let run = self.runs(invocation, place).last()?;
                let (_, ended) = run.end?;
                (ended.at < invocation.stop()).then_some(true)
            }
            Outcome::LeaseLost if is_last => None,
            _ => Some(false),
        }
    }

    fn possible_outcomes(&self, invocation: &Invocation, place: usize) -> Vec<Outcome> {
        if place >= self.decoded(invocation) {
            return vec![Outcome::NotStarted];
        }
        let run = self.runs(invocation, place).last();
        vec![match self.record(invocation, place).body {
            Body::Poison => Outcome::Undecodable,
            Body::Ping => Outcome::Ignored,
            Body::PoisonForNow | Body::PoisonPanics | Body::PingPanics => Outcome::NotDecoded,
            Body::NoKey if !self.history.plan.settings.runs_without_key => Outcome::KeyMissing,
            Body::NoKey => run.map_or(Outcome::NotStarted, |run| outcome_of_run(run)),
            Body::Order { key, .. } => match self.claims(invocation.number, key).last() {
                None => return self.outcomes_of_lookup(invocation, place),
                Some(claim) if claim.told.held_until().is_some() => {
                    return self.outcomes_of_wait(invocation, place, claim);
                }
                // A claim is not acted on if its lease has passed when the responses to its call arrive. Its lease
                // counts from the start of the invocation, whatever lease the store has recorded.
                Some(claim)
                    if run.is_none() && claim.lease_until.is_some() && invocation.lease_until() <= invocation.ended =>
                {
                    return vec![Outcome::NotStarted, Outcome::InProgress];
                }
                Some(claim) => self.outcome_of_claim(claim, run.copied()),
            },
        }]
    }

    /// Derives the outcomes of an unclaimed record, which may have been looked up. A completed one has the outcome of
    /// that read.
    fn outcomes_of_lookup(&self, invocation: &Invocation, place: usize) -> Vec<Outcome> {
        let key = self.record(invocation, place).key().map(|key| self.history.hashes[&key]);
        let mut reads = self.reads_of(invocation.number).iter().rev();
        let shown = reads.find(|read| Some(read.key) == key && matches!(read.told, Told::Completed | Told::Failed));
        let Some(read) = shown else { return vec![Outcome::NotStarted] };
        let outcome = match read.told {
            _ if !self.is_of_payload(invocation, place, read) => Outcome::Mismatch,
            Told::Failed => Outcome::ReplayedFailure,
            _ => Outcome::Replayed,
        };
        // Of the records in one read, an earlier one may stop the batch. Another record with the same key still has its
        // outcome.
        let report = invocation.reports.get(place).map(|report| format!("{:?}", report.outcome));
        let was_stopped = self.history.plan.settings.stops_batch && report.as_deref() == Some("Ok(Skipped)");
        if was_stopped { vec![Outcome::NotStarted, outcome] } else { vec![outcome] }
    }

    /// Returns whether the record in a read has this payload. Its claimant used one of the plan's payloads.
    fn is_of_payload(&self, invocation: &Invocation, place: usize, read: &Read) -> bool {
        let Some(fingerprint) = read.fingerprint else { return true };
        if self.history.plan.settings.payload == PayloadChoice::Ignored {
            return true;
        }
        let record = self.record(invocation, place);
        let is_of_it = |claim: &&Claim| claim.key == read.key && claim.fingerprint == Some(fingerprint);
        self.history.calls.claims.iter().filter(is_of_it).any(|claim| {
            let Some(claimant) = self.history.invocations.iter().find(|other| other.number == claim.invocation) else {
                return false;
            };
            let mut records = (0..claimant.places.len()).map(|place| self.record(claimant, place));
            let first = records.find(|first| matches!(first.body, Body::Order { .. }) && first.key() == record.key());
            first.is_some_and(|first| self.history.plan.same_payload(first, record))
        })
    }

    /// Derives the outcomes of a record that waits for a claim: the result of a poll, unless it stopped waiting before.
    fn outcomes_of_wait(&self, invocation: &Invocation, place: usize, claim: &Claim) -> Vec<Outcome> {
        let mut waited_for = vec![match claim.told {
            Told::MismatchInProgress(_) => Outcome::MismatchForNow,
            _ => Outcome::InProgress,
        }];
        let Some(read) = self.last_read(claim) else { return waited_for };
        let shown = self.shown_by(read, claim);
        let reads = self.reads_of(claim.invocation).iter().filter(|read| read.key == claim.key);
        let earlier = reads.map(|read| self.shown_by(read, claim)).filter(|outcome| outcome.is_in_progress());
        waited_for.extend(earlier);
        waited_for.dedup();
        // A read that may have been made to withdraw an in-doubt request need not count as a poll.
        if !shown.is_in_progress() && !self.was_in_doubt(claim) && self.waits_until_response(invocation, place, read) {
            return vec![shown];
        }
        waited_for.insert(0, shown);
        waited_for.dedup();
        waited_for
    }

    /// Returns the outcome that a read shows to a waiting claim.
    fn shown_by(&self, read: &Read, claim: &Claim) -> Outcome {
        let is_other = claim.fingerprint.zip(read.fingerprint).is_some_and(|(ours, theirs)| ours != theirs);
        match (read.told, is_other) {
            (Told::Nothing, _) => Outcome::InProgress,
            (Told::Completed | Told::Failed, true) => Outcome::Mismatch,
            (told, true) if self.is_held(told, read) => Outcome::MismatchForNow,
            (_, true) => Outcome::Abandoned,
            (Told::Completed, _) => Outcome::Replayed,
            (Told::Failed, _) => Outcome::ReplayedFailure,
            (told, _) => match self.history.plan.settings.after_unknown {
                // A slow poll may find that the lease has ended.
                Policy::Refuse if !self.is_held(told, read) => Outcome::Abandoned,
                _ => Outcome::InProgress,
            },
        }
    }

    fn is_held(&self, told: Told, read: &Read) -> bool {
        let until = match told {
            Told::InProgress(Some(until)) => lambda_once::clock::Timestamp::from_millis(until),
            _ => return true,
        };
        read.answered.is_none_or(|answered| lapses(until) > answered.at)
    }

    /// Returns the last successful read of a key after its claim was refused.
    pub(super) fn last_read(&self, claim: &Claim) -> Option<&Read> {
        let is_of_it = |read: &&Read| {
            read.key == claim.key
                && claim.answered.is_some_and(|answered| answered < read.asked)
                && read.told != Told::Nothing
        };
        self.reads_of(claim.invocation).iter().rev().copied().find(is_of_it)
    }

    fn outcome_of_claim(&self, claim: &Claim, run: Option<&Run>) -> Outcome {
        match claim.told {
            Told::Completed => Outcome::Replayed,
            Told::Failed => Outcome::ReplayedFailure,
            Told::Mismatch => Outcome::Mismatch,
            Told::MismatchInProgress(_) => Outcome::MismatchForNow,
            Told::InProgress(_) => Outcome::InProgress,
            Told::Abandoned | Told::MismatchAbandoned => Outcome::Abandoned,
            Told::Nothing => Outcome::StoreTrouble,
            Told::Granted => match run.filter(|run| run.began > claim.asked) {
                None => Outcome::NotStarted,
                Some(run) => self.outcome_of_settle(claim, run),
            },
        }
    }

    fn outcome_of_settle(&self, claim: &Claim, run: &Run) -> Outcome {
        let outcome = outcome_of_run(run);
        let told = self.settles(claim.owner).last().map(|settle| settle.told);
        match (outcome, told) {
            (Outcome::Executed | Outcome::Recovered | Outcome::FailedForGood, Some(Settling::Lost(current))) => {
                outcome_of_successor(current, claim.fingerprint)
            }
            (Outcome::Executed | Outcome::Recovered, Some(Settling::Nothing) | None) => Outcome::Unrecorded,
            (Outcome::Executed, Some(Settling::Done)) if claim.took_over => Outcome::TookOver,
            _ => outcome,
        }
    }

    /// Checks that a completed invocation reports each record in its place, with a known outcome name.
    pub(super) fn check_names(&self, invocation: &Invocation) -> Checked {
        for report in &invocation.reports {
            let name = format!("{:?}", report.outcome);
            ensure!(rule_of(&name).is_some(), Report, "{name} is not in the table of outcomes");
        }
        Ok(())
    }
}

/// Returns the reported outcome if it is possible, or else the first possible outcome.
fn expected_outcome(possible: &[Outcome], invocation: &Invocation, place: usize) -> Outcome {
    if let [only] = possible {
        return *only;
    }
    let name = invocation.reports.get(place).map(|report| format!("{:?}", report.outcome));
    // A skipped record had not begun, or was still waiting.
    let is_open = |outcome: &Outcome| *outcome == Outcome::NotStarted || outcome.is_in_progress();
    let is_told = |outcome: &&Outcome| {
        name.as_deref().is_some_and(|name| outcome.names().contains(&name) || name == "Ok(Skipped)" && is_open(outcome))
    };
    *possible.iter().find(is_told).unwrap_or(&possible[0])
}

fn outcome_of_run(run: &Run) -> Outcome {
    match run.end.map(|(end, _)| end) {
        Some(End::Succeeded) => Outcome::Executed,
        Some(End::Recovered) => Outcome::Recovered,
        Some(End::Permanent) => Outcome::FailedForGood,
        Some(End::Transient | End::NotReached) => Outcome::FailedForNow,
        Some(End::Unknown) => Outcome::FailedUnknown,
        Some(End::Panicked) => Outcome::Panicked,
        Some(End::Cancelled | End::NotDone) | None => Outcome::Cancelled,
    }
}

/// Returns the outcome that a successor has recorded. Nothing else counts.
fn outcome_of_successor(current: Option<(Status, Option<Fingerprint>)>, ours: Option<Fingerprint>) -> Outcome {
    match current {
        Some((_, Some(theirs))) if ours.is_some_and(|ours| ours != theirs) => Outcome::LeaseLost,
        Some((Status::Completed, _)) => Outcome::Replayed,
        Some((Status::Failed, _)) => Outcome::ReplayedFailure,
        Some((Status::InProgress, _)) | None => Outcome::LeaseLost,
    }
}
