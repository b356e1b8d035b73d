//! The format of a store's records.

#[cfg(feature = "powertools")]
pub use crate::key::powertools::PowertoolsKeys;

/// Which records a store writes, and with it how keys and payloads are hashed for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordFormat {
    /// This library's own.
    #[default]
    Native,
    /// Those of AWS Powertools, which knows fewer outcomes: neither failures nor operations that a newer one supersedes, and
    /// no results that are compressed.
    #[cfg(feature = "powertools")]
    Powertools(PowertoolsKeys),
}

impl RecordFormat {
    /// Whether a record may say FAILED or superseded, and its result be compressed.
    pub(crate) const fn keeps_every_outcome(self) -> bool {
        matches!(self, Self::Native)
    }
}
