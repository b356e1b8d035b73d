//! The format of a store's records.

#[cfg(feature = "powertools")]
pub use crate::key::powertools::PowertoolsKeys;

/// The format of the records that a store writes. It also decides how keys and payloads are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordFormat {
    /// The library's native format.
    #[default]
    Native,
    /// The format of AWS Powertools, which has fewer outcomes: no failures, no superseded operations, and no compressed
    /// results.
    #[cfg(feature = "powertools")]
    Powertools(PowertoolsKeys),
}

impl RecordFormat {
    /// Returns whether a record may be FAILED or superseded, and its result compressed.
    pub(crate) const fn keeps_every_outcome(self) -> bool {
        matches!(self, Self::Native)
    }
}
