//! What must be, derived from the plan and from what was seen at the store and in the handler.

use std::{collections::HashMap, fmt, time::Duration};

use lambda_once::{
    clock::Timestamp,
    record::{KeyHash, Owner},
};

use crate::{
    desk::{Claim, Settle, Told},
    journal::Attempt,
    plan::Record,
    stage::{Call, LEASE_MS, Seen},
    watch::millis,
};

mod answers;
mod fates;
mod ledger;
mod runs;

/// Which promise is broken, and how.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// The answer lists exactly what is not decided.
    Answer,
    /// What is said of each record is true.
    Report,
    /// The store's records are as its answers say, and only a claim's owner changes them.
    Record,
    /// No handler runs twice for one key.
    Once,
    /// What is settled is what the handler said.
    Settlement,
    /// An order is kept.
    Order,
    /// Nothing runs past its time, nor more at once than is allowed.
    Bounds,
    /// What there is time for is done.
    Progress,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.text)
    }
}

pub(crate) type Verdict = Result<(), Violation>;

/// Fails with what is broken, unless the condition holds.
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

/// What was seen, sorted for looking up.
pub(crate) struct View<'a> {
    seen: &'a Seen,
    claims: HashMap<(usize, KeyHash), Vec<&'a Claim>>,
    settles: HashMap<Owner, Vec<&'a Settle>>,
    /// By invocation and place in the event; a probe comes before its handler.
    attempts: HashMap<(usize, usize), Vec<&'a Attempt>>,
    /// By invocation, in the order of their beginning.
    of_call: HashMap<usize, Vec<&'a Attempt>>,
    /// Whether each letter was sent.
    letters: HashMap<(usize, usize), Vec<bool>>,
}

/// Checks everything.
pub(crate) fn check(seen: &Seen) -> Verdict {
    let view = View::new(seen);
    view.check_ledger()?;
    view.check_runs()?;
    seen.calls.iter().try_for_each(|call| view.check_answer(call))
}

impl<'a> View<'a> {
    fn new(seen: &'a Seen) -> Self {
        let mut view = Self {
            seen,
            claims: HashMap::new(),
            settles: HashMap::new(),
            attempts: HashMap::new(),
            of_call: HashMap::new(),
            letters: HashMap::new(),
        };
        for claim in &seen.asked.claims {
            view.claims.entry((claim.invocation, claim.key)).or_default().push(claim);
        }
        for settle in &seen.asked.settles {
            view.settles.entry(settle.owner).or_default().push(settle);
        }
        for attempt in &seen.pages.attempts {
            view.attempts.entry((attempt.invocation, attempt.place)).or_default().push(attempt);
            view.of_call.entry(attempt.invocation).or_default().push(attempt);
        }
        for letter in &seen.pages.letters {
            view.letters.entry((letter.invocation, letter.place)).or_default().push(letter.sent);
        }
        view
    }

    fn record(&self, call: &Call, place: usize) -> &'a Record {
        &self.seen.plan.records[call.places[place]]
    }

    fn lane(&self, call: &Call, place: usize) -> Option<usize> {
        self.seen.plan.lane(self.record(call, place))
    }

    fn attempts(&self, call: usize, place: usize) -> &[&'a Attempt] {
        self.attempts.get(&(call, place)).map_or(&[], Vec::as_slice)
    }

    fn of_call(&self, call: usize) -> &[&'a Attempt] {
        self.of_call.get(&call).map_or(&[], Vec::as_slice)
    }

    fn claims(&self, call: usize, key: usize) -> &[&'a Claim] {
        self.claims.get(&(call, self.seen.hashes[&key])).map_or(&[], Vec::as_slice)
    }

    fn settles(&self, owner: Owner) -> &[&'a Settle] {
        self.settles.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// The claim under which a record was handed over.
    fn owner(&self, attempt: &Attempt) -> Option<Owner> {
        let claims = self.claims(attempt.invocation, attempt.key?);
        let granted = claims.iter().rev().find(|claim| claim.told == Told::Granted && claim.asked < attempt.began);
        granted.map(|claim| claim.owner)
    }

    /// When the attempts at a record began and ended; `None` if there were none, or one has not ended.
    fn span(&self, call: usize, place: usize) -> Option<(Timestamp, Timestamp)> {
        let attempts = self.attempts(call, place);
        Some((attempts.first()?.began.at, attempts.last()?.end?.1.at))
    }

    /// The longest run of an invocation that had ended before a time.
    fn longest(&self, call: &Call, before: Timestamp) -> Duration {
        let spans = self.of_call(call.number).iter().filter_map(|attempt| self.span(call.number, attempt.place));
        spans.filter(|(_, ended)| *ended < before).map(|(began, ended)| ended.since(began)).max().unwrap_or_default()
    }

    /// How long a run is expected to take at a time.
    fn expected(&self, call: &Call, at: Timestamp) -> Duration {
        self.seen.plan.settings.expected_ms.map_or_else(|| self.longest(call, at), millis)
    }
}

impl Call {
    /// When the invocation is ended from outside, or else its lease.
    fn ends(&self) -> Timestamp {
        self.began.after(millis(if self.left_ms == 0 { LEASE_MS } else { self.left_ms }))
    }

    /// By the documented defaults: the reserve is a twentieth of the time left, from half a second to two.
    fn stop(&self) -> Timestamp {
        let reserve = (self.ends().since(self.began) / 20).clamp(millis(500), millis(2_000));
        self.ends().before(reserve)
    }
}
