//! What became of each record of an invocation.

use std::collections::HashMap;

use lambda_once::{
    OutcomeKind,
    record::{Fingerprint, Status},
};

use super::View;
use crate::{
    desk::{Claim, Look, Told, Verdict},
    journal::{Attempt, End},
    plan::Body,
    stage::Call,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// It failed for good, now or before.
    Permanent,
    /// No retry can help, and nothing of it is recorded: it has no key, another payload, or cannot be decoded.
    Refused,
    /// A retry may help; whether its handler ran to its end.
    Retry {
        failed: bool,
    },
    /// It was not begun.
    Open,
}

/// What is known of a record by itself, without those before it in its order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    pub(super) fate: Fate,
    pub(super) reported: bool,
    /// Whether it has to be put aside.
    pub(super) is_dead: bool,
    /// Whether it was, or its operation was as another record.
    pub(super) is_put_aside: bool,
    /// For a record with the key of an earlier one: that one.
    pub(super) leader: Option<usize>,
}

impl View<'_> {
    /// How many records of an event were looked at: they are decoded one by one, in their order.
    pub(super) fn looked_at(&self, call: &Call) -> usize {
        self.seen.pages.decoded.get(&call.number).copied().unwrap_or(0)
    }

    /// For each record of an event.
    pub(super) fn guesses(&self, call: &Call) -> Vec<Guess> {
        let mut guesses: Vec<Guess> = Vec::with_capacity(call.places.len());
        let mut leaders = HashMap::new();
        for place in 0..call.places.len() {
            let leader = match self.record(call, place).body {
                Body::Order { key, note } if place < self.looked_at(call) => {
                    let (leader, theirs) = *leaders.entry(key).or_insert((place, note));
                    (leader != place).then_some((leader, theirs == note))
                }
                _ => None,
            };
            let guess = match leader {
                Some((leader, same_payload)) => self.follow(guesses[leader], leader, same_payload),
                None => self.lead(call, place),
            };
            guesses.push(guess);
        }
        guesses
    }

    fn acknowledges(&self, fate: Fate) -> bool {
        let settings = &self.seen.plan.settings;
        let by_policy = settings.acknowledges_failures && settings.dead_letters.is_none();
        match fate {
            Fate::Done => true,
            Fate::Permanent | Fate::Refused => by_policy,
            Fate::Retry { .. } | Fate::Open => false,
        }
    }

    /// A record with an earlier one's key has its outcome; with another payload it is a misuse of the key, once that stands.
    fn follow(&self, theirs: Guess, leader: usize, same_payload: bool) -> Guess {
        let leader = Some(leader);
        if same_payload {
            return Guess { is_dead: false, leader, ..theirs };
        }
        let stands = matches!(theirs.fate, Fate::Done | Fate::Permanent);
        let fate = Fate::Refused;
        Guess { fate, reported: !(stands && self.acknowledges(fate)), is_dead: false, is_put_aside: false, leader }
    }

    fn lead(&self, call: &Call, place: usize) -> Guess {
        let fate = self.fate(call, place);
        let is_dead = self.is_dead(call, place, fate);
        let is_put_aside = self.letters.get(&(call.number, place)).is_some_and(|sent| sent.contains(&true));
        let reported = !(self.acknowledges(fate) || is_dead && is_put_aside);
        Guess { fate, reported, is_dead, is_put_aside: is_dead && is_put_aside, leader: None }
    }

    fn is_dead(&self, call: &Call, place: usize, fate: Fate) -> bool {
        let settings = &self.seen.plan.settings;
        let count = self.record(call, place).receive_count + u32::try_from(call.delivery).unwrap();
        let is_last = settings.max_receive_count.is_some_and(|max| count >= max);
        let takes_healthy_along = self.lane(call, place).is_some() && is_last;
        settings.dead_letters.is_some()
            && match fate {
                Fate::Permanent | Fate::Refused => true,
                Fate::Retry { failed } => failed && takes_healthy_along,
                Fate::Done | Fate::Open => false,
            }
    }

    fn fate(&self, call: &Call, place: usize) -> Fate {
        if place >= self.looked_at(call) {
            return Fate::Open;
        }
        let attempt = self.attempts(call.number, place).last();
        match self.record(call, place).body {
            Body::Poison => Fate::Refused,
            Body::NoKey if !self.seen.plan.settings.runs_without_key => Fate::Refused,
            Body::NoKey => attempt.map_or(Fate::Open, |attempt| of_end(attempt)),
            // Of several claims the last one counts: the first was refused, and its lease waited for.
            Body::Order { key, .. } => match self.claims(call.number, key).last() {
                None => Fate::Open,
                // Given up before what a look shows was known, it was in progress.
                Some(claim) if matches!(claim.told, Told::InProgress(_)) && !self.was_given_up(call, place) => {
                    let told = self.look(call, key).unwrap_or(claim.told);
                    self.of_claim(&Claim { told, ..**claim }, None)
                }
                Some(claim) => self.of_claim(claim, attempt.copied()),
            },
        }
    }

    /// What a look at a record that is waited for has shown at last.
    pub(super) fn look(&self, call: &Call, key: usize) -> Option<Told> {
        let hash = self.seen.hashes[&key];
        let is_of_it = |look: &&Look| look.invocation == call.number && look.key == hash;
        let look = self.seen.asked.looks.iter().rev().find(is_of_it)?;
        let ours = self.claims(call.number, key).last().and_then(|claim| claim.fingerprint);
        let is_other = ours.zip(look.fingerprint).is_some_and(|(ours, theirs)| ours != theirs);
        Some(if is_other { Told::Mismatch } else { look.told })
    }

    /// Whether a record that waited did so in vain. Of one that was held up its duplicates tell, if there are any: they have
    /// what had become known of it.
    fn was_given_up(&self, call: &Call, place: usize) -> bool {
        let is_told =
            |place: usize, outcome| call.reports.get(place).is_some_and(|report| report.outcome == Ok(outcome));
        let body = self.record(call, place).body;
        let mut duplicates = (place + 1..call.places.len()).filter(|later| self.record(call, *later).body == body);
        is_told(place, OutcomeKind::InProgress)
            || is_told(place, OutcomeKind::Skipped) && duplicates.all(|later| is_told(later, OutcomeKind::Skipped))
    }

    fn of_claim(&self, claim: &Claim, attempt: Option<&Attempt>) -> Fate {
        match claim.told {
            Told::Completed => Fate::Done,
            Told::Failed => Fate::Permanent,
            Told::Mismatch => Fate::Refused,
            Told::InProgress(_) | Told::Abandoned | Told::Nothing => Fate::Retry { failed: false },
            Told::Granted => match attempt {
                None => Fate::Open,
                Some(attempt) => match self.lost_to(claim) {
                    Some(current) if is_outcome(attempt) => of_successor(current, claim.fingerprint),
                    _ => of_end(attempt),
                },
            },
        }
    }

    /// The record that was found in the place of a claim, when its outcome was to be recorded.
    fn lost_to(&self, claim: &Claim) -> Option<Option<(Status, Option<Fingerprint>)>> {
        match self.settles(claim.owner).last()?.verdict {
            Verdict::Lost(current) => Some(current),
            Verdict::Done | Verdict::Nothing => None,
        }
    }
}

fn is_outcome(attempt: &Attempt) -> bool {
    matches!(attempt.end, Some((End::Succeeded | End::Recovered | End::Permanent, _)))
}

fn of_end(attempt: &Attempt) -> Fate {
    match attempt.end.map(|(end, _)| end) {
        // The work is done, whether or not that could be recorded.
        Some(End::Succeeded | End::Recovered) => Fate::Done,
        Some(End::Permanent) => Fate::Permanent,
        Some(End::Transient | End::Unknown | End::Panicked) => Fate::Retry { failed: true },
        Some(End::CutOff | End::NotDone) | None => Fate::Retry { failed: false },
    }
}

/// What a successor has recorded counts, and nothing else.
fn of_successor(current: Option<(Status, Option<Fingerprint>)>, ours: Option<Fingerprint>) -> Fate {
    match current {
        Some((_, Some(theirs))) if ours.is_some_and(|ours| ours != theirs) => Fate::Retry { failed: false },
        Some((Status::Completed, _)) => Fate::Done,
        Some((Status::Failed, _)) => Fate::Permanent,
        Some((Status::InProgress, _)) | None => Fate::Retry { failed: false },
    }
}
