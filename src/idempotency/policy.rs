//! Choices that a caller makes, as types.

use crate::store::Takeover;

/// What happens when a claim has ended without an outcome: its holder crashed, was cut off, or could not record.
///
/// Nobody knows then whether the operation took effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterUnknown {
    /// Run again once the lease and the skew margin have passed. The run is told that it took over.
    ///
    /// The effect happens once, except that after such a loss it may happen again.
    #[default]
    Rerun,
    /// Refuse with [`Outcome::Abandoned`](crate::Outcome::Abandoned) until an operator deletes the record, or the
    /// retention ends. The effect happens at most once; it may refuse an operation that never ran.
    Refuse,
}

impl AfterUnknown {
    pub(crate) const fn takeover(self) -> Takeover {
        match self {
            Self::Rerun => Takeover::Allowed,
            Self::Refuse => Takeover::Refused,
        }
    }
}

/// What a panic in the handler says about the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// Nothing: it may have taken effect. The claim is kept until its lease ends.
    #[default]
    Unknown,
    /// It did not take effect. The claim is released.
    Transient,
}
