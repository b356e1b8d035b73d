//! Mismatches: a key that is used with another payload.

use std::fmt;

use crate::{clock::Timestamp, record::Difference};

/// The use of a key with another payload than that of its record.
///
/// `Display` writes it for people, as in "the key was used with another payload: the body differs".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Mismatch {
    /// The state of the operation that the key belongs to.
    pub state: MismatchState,
    /// The parts in which the two payloads differ, as far as the fingerprints show them.
    pub difference: Difference,
}

/// The state of the operation that a key belongs to, if the key is used with another payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MismatchState {
    /// It is done, or failed for good. It owns the key for as long as its record stands.
    Final,
    /// A claim on it stands until `lease_until`; `None` if its record has no lease. If that is released, the key is
    /// free for any payload.
    InProgress {
        /// End of the current claim's lease.
        lease_until: Option<Timestamp>,
        /// Number of times that the record has been granted.
        attempt: u64,
    },
    /// A claim on it ended without an outcome. Only its own payload may take it over, if that is allowed.
    Abandoned {
        /// Number of times that the record has been granted.
        attempt: u64,
    },
}

impl Mismatch {
    /// Creates a mismatch with an operation in this state, whose payload differs in these parts.
    pub const fn new(state: MismatchState, difference: Difference) -> Self {
        Self { state, difference }
    }

    /// Returns whether no retry with this payload can help as long as the record stands.
    pub const fn is_final(self) -> bool {
        matches!(self.state, MismatchState::Final)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            MismatchState::Final => "the key was used with another payload",
            MismatchState::InProgress { .. } => "an operation with this key and another payload is running",
            MismatchState::Abandoned { .. } => {
                "an operation with this key and another payload ended without an outcome"
            }
        })?;
        if self.difference.is_known() { write!(f, ": {}", self.difference.sentence()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::PayloadPart;

    #[test]
    fn a_mismatch_says_what_differs_if_that_is_known() {
        let query_and_body = Difference::of([PayloadPart::Query, PayloadPart::Body]);
        for (state, difference, text) in [
            (MismatchState::Final, Difference::UNKNOWN, "the key was used with another payload"),
            (
                MismatchState::Final,
                Difference::of([PayloadPart::Body]),
                "the key was used with another payload: the body differs",
            ),
            (
                MismatchState::InProgress { lease_until: None, attempt: 1 },
                query_and_body,
                "an operation with this key and another payload is running: the query and the body differ",
            ),
            (
                MismatchState::Abandoned { attempt: 1 },
                query_and_body,
                "an operation with this key and another payload ended without an outcome: the query and the body differ",
            ),
        ] {
            assert_eq!(Mismatch::new(state, difference).to_string(), text);
        }
    }
}
