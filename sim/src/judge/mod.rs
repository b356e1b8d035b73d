//! Judges a history by the library's promise.
//!
//! The judge reads only the [history](crate::history), and shares no code with the library. It demands the promise and
//! no more:
//!
//! | file | demands |
//! |---|---|
//! | `outcomes.rs` | whatever clocks do: the outcome of a key is decided once within the retention, and every response agrees with it; no response contains the result of another payload |
//! | `runs.rs` | while clocks hold: one live run per key and entity; after a loss, runs by the policy of the key |
//! | `order.rs` | while clocks hold: no effect after a newer one of its entity |
//! | `endings.rs` | no message is lost, and no key is stuck once faults have stopped |

use std::fmt;

use crate::history::{History, KeyId, Ms};

mod endings;
mod index;
mod order;
mod outcomes;
mod runs;

pub use index::{Call, Index, Message, Run, Shown};

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

/// Returns the first violation of each property, or nothing if the history keeps the promise.
pub fn judge(history: &History) -> Vec<Violation> {
    let index = Index::new(history);
    let mut found = Vec::new();
    outcomes::check(history, &index, &mut found);
    runs::check(history, &index, &mut found);
    order::check(history, &index, &mut found);
    endings::check(history, &index, &mut found);
    found.sort_by_key(|violation| violation.at);
    let mut seen: Vec<&str> = Vec::new();
    found.retain(|violation| {
        let is_first = !seen.contains(&violation.property);
        seen.push(violation.property);
        is_first
    });
    found
}
