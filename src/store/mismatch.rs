//! Uses of a key with a different payload.

use std::fmt;

use crate::{clock::Timestamp, record::Difference};

/// The use of a key with a payload other than its record's.
///
/// `Display` gives a sentence, as in "the key was used with another payload: the body differs".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Mismatch {
    /// The state of the operation that the key belongs to.
    pub state: MismatchState,
    /// The parts in which the two payloads differ, as far as the fingerprints show.
    pub difference: Difference,
}

/// The state of the operation that owns a key which is used with a different payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MismatchState {
    /// The operation is completed or permanently failed. It owns the key until its record expires.
    Final,
    /// The operation has a live claim. If the claim is released, the key is free for any payload.
    InProgress {
        /// End of the current claim's lease, or `None` if the record has no lease.
        lease_until: Option<Timestamp>,
        /// Number of grants of the record.
        attempt: u64,
    },
    /// A claim on the operation ended without an outcome. Only the same payload may take it over, if takeovers are
    /// allowed.
    Abandoned {
        /// Number of grants of the record.
        attempt: u64,
    },
}

impl Mismatch {
    /// Creates a mismatch with an operation in this state whose payload differs in these parts.
    pub const fn new(state: MismatchState, difference: Difference) -> Self {
        Self { state, difference }
    }

    /// Returns whether no retry with this payload can succeed until the record expires.
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
    fn a_mismatch_names_the_known_differences() {
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
