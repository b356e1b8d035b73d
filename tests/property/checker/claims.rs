//! Checks claims ahead of the work (B12): held claims whose handlers have not begun.

use std::collections::HashSet;

use lambda_once::record::Owner;

use super::{Checked, Evidence, SLOW_POLL, ensure};
use crate::{
    journal::Run,
    plan::Policy,
    recorded_store::{Claim, Ending, Read, Told},
    runner::Invocation,
    timeline::Moment,
};

/// The maximum number of requests in one claim call.
const LARGEST_CHUNK: usize = 100;

/// The maximum numbers of chunks and of records that are claimed ahead if handlers are fast.
const MOST_CHUNKS_AHEAD: usize = 10;
const MOST_AHEAD: usize = 250;

/// Handlers with a shorter expected duration are fast from the beginning, with this many chunks and records claimed
/// ahead.
const FAST_MS: u64 = 5;
const CHUNKS_OF_FAST: usize = 4;
const AHEAD_OF_FAST: usize = 100;

/// The number of records that must be done before others are looked up.
const MIN_DONE: usize = 3;

enum Event<'a> {
    Asked(&'a Claim),
    Answered(&'a Claim),
    Began(&'a Run),
    /// The first poll of a run returned.
    Polled,
    PolledSlowly,
    Ended(&'a Run),
    Released(Owner),
}

/// The state of an invocation's claims and runs at one moment.
#[derive(Default)]
struct Standing {
    /// Every requested claim.
    known: HashSet<Owner>,
    /// Requested claims without a response yet.
    asked: HashSet<Owner>,
    /// Granted claims whose handlers have not begun.
    ahead: HashSet<Owner>,
    /// Open calls of the handler, each by the tick at which it began.
    open: HashSet<u64>,
    was_polled: bool,
    was_polled_slowly: bool,
}

impl Evidence<'_> {
    pub(super) fn check_claims_ahead(&self, invocation: &Invocation) -> Checked {
        let (mut standing, mut is_new) = (Standing::default(), false);
        let mut events = self.events(invocation).into_iter().peekable();
        while let Some((moment, event)) = events.next() {
            match event {
                Event::Asked(claim) => {
                    // A repeated request is not new.
                    is_new |= standing.known.insert(claim.owner);
                    standing.asked.insert(claim.owner);
                }
                Event::Answered(claim) => {
                    standing.asked.remove(&claim.owner);
                    if claim.told == Told::Granted {
                        standing.ahead.insert(claim.owner);
                    }
                }
                Event::Began(run) => {
                    standing.open.insert(run.began.tick);
                    if let Some(owner) = self.owner(run) {
                        standing.ahead.remove(&owner);
                    }
                }
                Event::Polled => standing.was_polled = true,
                Event::PolledSlowly => standing.was_polled_slowly = true,
                Event::Ended(run) => drop(standing.open.remove(&run.began.tick)),
                Event::Released(owner) => drop(standing.ahead.remove(&owner)),
            }
            // The requests of one call are checked together.
            let is_last_of_call = events.peek().is_none_or(|(_, next)| !matches!(next, Event::Asked(_)));
            match (event, self.history.plan.settings.after_unknown) {
                (Event::Answered(_), Policy::Rerun) => self.check_rerun(invocation, &standing, moment)?,
                (Event::Asked(_), Policy::Refuse | Policy::Probe) if is_last_of_call && is_new => {
                    is_new = false;
                    self.check_just_in_time(&standing, moment)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn events(&self, invocation: &Invocation) -> Vec<(Moment, Event<'_>)> {
        let mut events = Vec::new();
        for claim in self.claims_of(invocation) {
            events.push((claim.asked, Event::Asked(claim)));
            events.extend(claim.answered.map(|answered| (answered, Event::Answered(claim))));
        }
        for run in self.runs_of(invocation) {
            events.push((run.began, Event::Began(run)));
            let ended = run.end.map(|(_, ended)| ended);
            // A poll that panics also returns.
            events.extend(run.polled.or(ended).map(|polled| (polled, Event::Polled)));
            let panicked_slowly =
                ended.filter(|ended| run.polled.is_none() && ended.at.since(run.began.at) > SLOW_POLL);
            events.extend(run.polled_slowly.or(panicked_slowly).map(|polled| (polled, Event::PolledSlowly)));
            events.extend(ended.map(|ended| (ended, Event::Ended(run))));
        }
        for settle in self.settles_of(invocation) {
            if settle.ending == Ending::Release {
                events.push((settle.asked, Event::Released(settle.owner)));
            }
        }
        events.sort_by_key(|(moment, _)| moment.tick);
        events
    }

    /// Checks that records are looked up before they are claimed only after others were done, and at most ten chunks at
    /// a time, each in its own call.
    pub(super) fn check_lookups(&self, invocation: &Invocation) -> Checked {
        let chunk = self.history.plan.settings.chunk.clamp(1, LARGEST_CHUNK);
        let claims = self.claims_of(invocation);
        let is_lookup = |read: &&&Read| {
            let mut claims = claims.iter().filter(|claim| claim.key == read.key);
            claims.all(|claim| claim.asked > read.asked)
        };
        let lookups: Vec<&Read> = self.reads_of(invocation.number).iter().filter(is_lookup).copied().collect();
        let is_final = |told: Told| matches!(told, Told::Completed | Told::Failed | Told::Mismatch);
        for lookup in &lookups {
            let before = |answered: Option<Moment>| answered.is_some_and(|answered| answered < lookup.asked);
            let done = claims.iter().filter(|claim| before(claim.answered) && is_final(claim.told)).count();
            ensure!(done >= MIN_DONE, ClaimsAhead, "{lookup:?} after {done} records that were done");
            let is_open = |other: &&&Read| other.asked <= lookup.asked && !before(other.answered);
            let open = lookups.iter().filter(is_open).count();
            ensure!(open <= MOST_CHUNKS_AHEAD * chunk, ClaimsAhead, "{open} records are looked up at once");
            let of_call = lookups.iter().filter(|other| other.call == lookup.call).count();
            ensure!(of_call <= chunk, ClaimsAhead, "{of_call} records were looked up by one call");
        }
        Ok(())
    }

    /// Checks the number of claims ahead. Before any handler has begun, the limit is one chunk, or four chunks and 100
    /// records if handlers are expected to be fast. Then it is ten chunks and 250 records, or one chunk if no handler
    /// is fast.
    fn check_rerun(&self, invocation: &Invocation, standing: &Standing, moment: Moment) -> Checked {
        let settings = &self.history.plan.settings;
        let chunk = settings.chunk.clamp(1, LARGEST_CHUNK);
        let nothing_began = self.runs_of(invocation).first().is_none_or(|run| run.began > moment);
        let most = match settings.expected_ms {
            Some(ms) if nothing_began && ms < FAST_MS => chunk.max(AHEAD_OF_FAST.min(CHUNKS_OF_FAST * chunk)),
            _ if nothing_began || self.are_slow() => chunk,
            _ => MOST_AHEAD.min(MOST_CHUNKS_AHEAD * chunk),
        };
        let ahead = standing.ahead.len();
        ensure!(ahead <= most, ClaimsAhead, "{ahead} claims stand at {moment:?} and have not begun");
        Ok(())
    }

    /// Returns whether, as far as the service can tell, at most one chunk of handlers can begin during one call of the
    /// store.
    fn are_slow(&self) -> bool {
        let plan = &self.history.plan;
        let settings = &plan.settings;
        // Without latency a call takes no time.
        let Some(call_ms) = plan.longest_call_ms() else { return false };
        let is_slow = |ms: u64| {
            let begin_within_call = u64::try_from(settings.concurrency * settings.together).unwrap() * call_ms;
            ms > call_ms && begin_within_call <= ms * u64::try_from(settings.chunk.min(LARGEST_CHUNK)).unwrap()
        };
        let is_expected_slow = settings.expected_ms.is_none_or(|ms| ms >= FAST_MS && is_slow(ms));
        is_expected_slow && plan.records.iter().all(|record| is_slow(record.ms + record.blocks_ms))
    }

    /// Checks that there are no more claims than free slots. Until a first poll has returned, and after a poll that
    /// blocked its thread, the limit is the claims of one call of the handler.
    fn check_just_in_time(&self, standing: &Standing, moment: Moment) -> Checked {
        let settings = &self.history.plan.settings;
        let is_careful = !standing.was_polled || standing.was_polled_slowly;
        let free = settings.concurrency.saturating_sub(standing.open.len());
        let slots = if is_careful { free.min(1) } else { free };
        let claims = standing.asked.len() + standing.ahead.len();
        let most = slots * settings.together;
        ensure!(claims <= most, ClaimsAhead, "{claims} claims stand or are asked for at {moment:?}, for {slots} slots");
        Ok(())
    }
}
