//! Checks a case against the plan, the calls of the store and the journal of the handlers. The expectations do not use
//! the implementation's tables or its reports.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    time::Duration,
};

use lambda_once::{
    clock::Timestamp,
    record::{KeyHash, Owner},
};

use crate::{
    journal::{DeadLettered, End, Run},
    plan::Record,
    recorded_store::{Claim, Read, Settle, Told},
    runner::{History, Invocation, LEASE_MS, MARGIN_MS},
    timeline::{Moment, millis},
};

mod claims;
mod ledger;
mod outcomes;
mod reports;
mod responses;
mod runs;
mod settles;
mod table;
mod waits;

/// The shortest poll that counts as blocking.
pub(crate) const SLOW_POLL: Duration = millis(10);

/// A broken promise, with a description.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// The response lists exactly the undecided records, in the order of the event (B1, B2, B7, B8).
    FailureReporting,
    /// The report on each record is correct.
    Report,
    /// The redelivery hook is called once, with the failed records and the times until which their keys are held (B7).
    Redelivery,
    /// A record is dead-lettered once if required, and otherwise never (B7, B11).
    DeadLetter,
    /// The store's records match its responses, and only the owner of a claim changes them.
    Record,
    /// No handler runs twice for one key without a reason (B3, B6).
    Once,
    /// A run is settled by its outcome and without delay (B7).
    Settlement,
    /// The order is kept (B4).
    Order,
    /// Nothing begins or ends after its time, and the concurrency limit is kept (B4, B5, B10, B11).
    Bounds,
    /// Claims are no further ahead of the work than documented (B12).
    ClaimsAhead,
    /// Waiting for a claim that is held elsewhere is limited, and polls few keys (B6).
    Waiting,
    /// All work that there is time for is done (B5).
    Progress,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.text)
    }
}

pub(crate) type Checked = Result<(), Violation>;

/// Returns a broken promise unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $promise:ident, $($text:tt)+) => {
        if !$condition {
            return Err($crate::checker::Violation {
                promise: $crate::checker::Promise::$promise,
                text: format!($($text)+),
            });
        }
    };
}
use ensure;

/// The history of a case, indexed.
pub(crate) struct Evidence<'a> {
    history: &'a History,
    claims: HashMap<(usize, KeyHash), Vec<&'a Claim>>,
    claims_of: HashMap<usize, Vec<&'a Claim>>,
    settles: HashMap<Owner, Vec<&'a Settle>>,
    settles_of: HashMap<usize, Vec<&'a Settle>>,
    reads_of: HashMap<usize, Vec<&'a Read>>,
    /// Runs by invocation and place in the event. A probe precedes its handler.
    runs: HashMap<(usize, usize), Vec<&'a Run>>,
    /// Runs by invocation, in the order in which they began.
    runs_of: HashMap<usize, Vec<&'a Run>>,
    dead_letters: HashMap<(usize, usize), Vec<&'a DeadLettered>>,
    /// The end of each run and the longest run until then, by invocation, in the order of the ends.
    longest: HashMap<usize, Vec<(Moment, Duration)>>,
    /// The times at which blocked threads became free again.
    freed: HashSet<Timestamp>,
}

/// Checks all promises.
pub(crate) fn check(history: &History) -> Checked {
    let evidence = Evidence::new(history);
    evidence.check_ledger()?;
    evidence.check_runs()?;
    for invocation in &history.invocations {
        evidence.check_claims_ahead(invocation)?;
        evidence.check_lookups(invocation)?;
        evidence.check_settles(invocation)?;
        evidence.check_waits(invocation)?;
        evidence.check_response(invocation)?;
    }
    Ok(())
}

impl<'a> Evidence<'a> {
    fn new(history: &'a History) -> Self {
        let mut evidence = Self {
            history,
            claims: HashMap::new(),
            claims_of: HashMap::new(),
            settles: HashMap::new(),
            settles_of: HashMap::new(),
            reads_of: HashMap::new(),
            runs: HashMap::new(),
            runs_of: HashMap::new(),
            dead_letters: HashMap::new(),
            longest: HashMap::new(),
            freed: history.journal.blocked.iter().map(|blocked| blocked.until).collect(),
        };
        for claim in &history.calls.claims {
            evidence.claims.entry((claim.invocation, claim.key)).or_default().push(claim);
            evidence.claims_of.entry(claim.invocation).or_default().push(claim);
        }
        for settle in &history.calls.settles {
            evidence.settles.entry(settle.owner).or_default().push(settle);
            evidence.settles_of.entry(settle.invocation).or_default().push(settle);
        }
        for read in &history.calls.reads {
            evidence.reads_of.entry(read.invocation).or_default().push(read);
        }
        for run in &history.journal.runs {
            evidence.runs.entry((run.invocation, run.place)).or_default().push(run);
            evidence.runs_of.entry(run.invocation).or_default().push(run);
        }
        for letter in &history.journal.dead_letters {
            evidence.dead_letters.entry((letter.invocation, letter.place)).or_default().push(letter);
        }
        evidence.longest = history.invocations.iter().map(|one| (one.number, evidence.spans(one))).collect();
        evidence
    }

    /// Returns the ends of an invocation's runs, in order, each with the longest run until its end. Cancelled runs do
    /// not count, because they do not show how long others take.
    fn spans(&self, invocation: &Invocation) -> Vec<(Moment, Duration)> {
        let span = |run: &&Run| {
            let runs = self.runs(invocation, run.place);
            let (first, (end, ended)) = (runs.first()?, runs.last()?.end?);
            (first.began == run.began && end != End::Cancelled).then(|| (ended, ended.at.since(first.began.at)))
        };
        let mut spans: Vec<_> = self.runs_of(invocation).iter().filter_map(span).collect();
        spans.sort_by_key(|(ended, _)| ended.tick);
        let mut longest = Duration::ZERO;
        for (_, span) in &mut spans {
            longest = longest.max(*span);
            *span = longest;
        }
        spans
    }

    fn record(&self, invocation: &Invocation, place: usize) -> &'a Record {
        &self.history.plan.records[invocation.places[place]]
    }

    fn lane(&self, invocation: &Invocation, place: usize) -> Option<usize> {
        self.history.plan.lane(self.record(invocation, place))
    }

    fn runs(&self, invocation: &Invocation, place: usize) -> &[&'a Run] {
        self.runs.get(&(invocation.number, place)).map_or(&[], Vec::as_slice)
    }

    fn runs_of(&self, invocation: &Invocation) -> &[&'a Run] {
        self.runs_of.get(&invocation.number).map_or(&[], Vec::as_slice)
    }

    fn claims_of(&self, invocation: &Invocation) -> &[&'a Claim] {
        self.claims_of.get(&invocation.number).map_or(&[], Vec::as_slice)
    }

    fn settles_of(&self, invocation: &Invocation) -> &[&'a Settle] {
        self.settles_of.get(&invocation.number).map_or(&[], Vec::as_slice)
    }

    fn reads_of(&self, invocation: usize) -> &[&'a Read] {
        self.reads_of.get(&invocation).map_or(&[], Vec::as_slice)
    }

    fn claims(&self, invocation: usize, key: usize) -> &[&'a Claim] {
        self.claims.get(&(invocation, self.history.hashes[&key])).map_or(&[], Vec::as_slice)
    }

    fn settles(&self, owner: Owner) -> &[&'a Settle] {
        self.settles.get(&owner).map_or(&[], Vec::as_slice)
    }

    fn dead_letters(&self, invocation: &Invocation, place: usize) -> &[&'a DeadLettered] {
        self.dead_letters.get(&(invocation.number, place)).map_or(&[], Vec::as_slice)
    }

    /// Returns the claim under which a record was given to the handler.
    fn claim_of(&self, run: &Run) -> Option<&'a Claim> {
        let claims = self.claims(run.invocation, run.key?);
        claims.iter().rev().find(|claim| claim.told == Told::Granted && claim.asked < run.began).copied()
    }

    fn owner(&self, run: &Run) -> Option<Owner> {
        self.claim_of(run).map(|claim| claim.owner)
    }

    /// Returns the expected duration of a run at a moment. The service may not have observed a run that ended at that
    /// moment without blocking its thread.
    fn expected(&self, invocation: &Invocation, at: Moment) -> Duration {
        let is_freed = self.freed.contains(&at.at);
        self.expected_by(invocation, |ended| if is_freed { ended.tick < at.tick } else { ended.at < at.at })
    }

    /// Returns the expected duration of a run after all runs that had already ended.
    fn expected_after(&self, invocation: &Invocation, at: Timestamp) -> Duration {
        self.expected_by(invocation, |ended| ended.at <= at)
    }

    /// Returns the expected duration of a run, from the setting or from the runs that have ended.
    fn expected_by(&self, invocation: &Invocation, has_ended: impl Fn(&Moment) -> bool) -> Duration {
        let spans = self.longest.get(&invocation.number).map_or(&[][..], Vec::as_slice);
        let known = spans.partition_point(|(ended, _)| has_ended(ended));
        let longest = spans[..known].last().map_or(Duration::ZERO, |(_, longest)| *longest);
        self.history.plan.settings.expected_ms.map_or(longest, millis)
    }

    /// Returns the expected duration of a run after all runs of the invocation.
    fn expected_at_last(&self, invocation: &Invocation) -> Duration {
        self.expected_after(invocation, invocation.ended)
    }

    /// Returns the first time at or after `at` at which no thread was blocked.
    fn free_from(&self, at: Timestamp) -> Timestamp {
        self.history
            .journal
            .blocked
            .iter()
            .fold(at, |at, blocked| if blocked.from <= at && at < blocked.until { blocked.until } else { at })
    }

    /// Returns whether a failure of the record on this delivery would also dead-letter healthy records behind it.
    fn is_last_in_order(&self, invocation: &Invocation, place: usize) -> bool {
        let count = self.record(invocation, place).receive_count + u32::try_from(invocation.delivery).unwrap();
        let is_last = self.history.plan.settings.max_receive_count.is_some_and(|max| count >= max);
        is_last && self.lane(invocation, place).is_some()
    }

    /// Returns the records behind a record in its lane.
    fn followers<'b>(&'b self, invocation: &'b Invocation, place: usize) -> impl Iterator<Item = usize> + 'b {
        let lane = self.lane(invocation, place);
        (place + 1..invocation.places.len())
            .filter(move |later| lane.is_some() && self.lane(invocation, *later) == lane)
    }
}

/// Returns the time at which others may take over a lease.
fn lapses(lease_until: Timestamp) -> Timestamp {
    lease_until.after(millis(MARGIN_MS + 1))
}

impl Invocation {
    fn was_killed(&self) -> bool {
        self.answer.is_none()
    }

    /// Returns the invocation's deadline, or the end of its lease if the deadline is unknown.
    fn deadline(&self) -> Timestamp {
        self.began.after(millis(if self.left_ms == 0 { LEASE_MS } else { self.left_ms }))
    }

    /// Returns the end of its leases for their holder, which is one second after a known deadline.
    fn lease_until(&self) -> Timestamp {
        if self.left_ms == 0 { self.deadline() } else { self.deadline().after(millis(1_000)) }
    }

    /// Returns the documented default reserve: 5 % of the time left, at least 500 ms and at most 2 s.
    fn reserve(&self) -> Duration {
        (self.deadline().since(self.began) / 20).clamp(millis(500), millis(2_000))
    }

    fn stop(&self) -> Timestamp {
        self.deadline().before(self.reserve())
    }
}
