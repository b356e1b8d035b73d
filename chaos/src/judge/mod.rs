//! Judges a history by the library's promise.
//!
//! The judge reads only the [history](crate::history), and shares no code with the library. It demands the promise and no
//! more:
//!
//! | file | demands |
//! |---|---|
//! | `runs.rs` | one live run per key; after a run without a recorded outcome, runs and effects by the policy of the key; nothing after an outcome |
//! | `answers.rs` | all responses of a key are equal, and a recorded outcome stays |
//! | `order.rs` | no effect after a newer one of its entity |
//! | `endings.rs` | no message is lost, no transaction commits twice, and no key is stuck once faults have stopped |

use std::fmt;

use crate::history::{History, KeyId, Ms};

mod answers;
mod endings;
mod index;
mod order;
mod runs;
mod summary;

pub use index::Index;
pub use summary::{Summary, summarize};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the property.
    pub property: &'static str,
    /// The key.
    pub key: KeyId,
    /// The time at which it shows.
    pub at: Ms,
    /// The contradiction, in words.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { property, key, at, text } = self;
        write!(f, "{property}: key {key}, at {}.{:03} s: {text}", at / 1_000, at % 1_000)
    }
}

/// The times on which the judge relies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The shortest time from the begin of a run without a deadline until another worker may take over. A claim is sent
    /// at the latest its whole lease less the reserve before the begin, and lapses a lease and the part of the margin that
    /// clocks leave after it was sent.
    pub shortest_hold: Ms,
    /// The time before a deadline in which a handler may be cancelled while it reports its end, or in which there may be
    /// too little time to record its outcome.
    pub late_end: Ms,
    /// If a run without a deadline ends this long after its claim, its lease may have been lost before.
    pub long_run: Ms,
    /// The time in which a process that thaws, or that was not scheduled, may finish an action that it had decided
    /// before.
    pub grace: Ms,
    /// The time after the start of a server in which its responses may come too late.
    pub slow_start: Ms,
}

/// Returns all violations, the earliest first.
pub fn judge(history: &History, terms: Terms) -> Vec<Violation> {
    let index = Index::new(history, terms);
    let mut found = Vec::new();
    for (key, of) in (0..).zip(&history.keys) {
        runs::check(&index, key, of, &mut found);
        answers::check(&index, key, &mut found);
        endings::check(history, &index, key, of, &mut found);
    }
    order::check(history, &index, &mut found);
    found.sort_by_key(|violation| violation.at);
    found
}
