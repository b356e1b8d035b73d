//! The settings that coordinator and workers share, and the kinds of stores.

use std::time::Duration;

use crate::judge::Terms;

/// The time that an invocation has.
pub(crate) const INVOCATION: Duration = Duration::from_millis(1_500);
/// The lease of a request, which has no deadline.
pub(crate) const LEASE: Duration = Duration::from_millis(1_500);
/// The longest duration of a request.
pub(crate) const LONGEST_REQUEST: Duration = Duration::from_millis(2_500);
/// The time before a deadline or the end of a lease in which no handler runs.
pub(crate) const RESERVE: Duration = Duration::from_millis(300);
pub(crate) const MARGIN: Duration = Duration::from_millis(500);
/// The largest offset of a worker's clock. Any two differ by less than the margin.
pub(crate) const MAX_OFFSET_MS: i64 = 200;

/// The times on which the judge relies. They follow from the settings above, not from the library.
pub(crate) const TERMS: Terms = Terms {
    // Lease and margin less the offsets, counted from the claim, which is a lease less the reserve before the begin at
    // most: 1,500 + 500 - 400 - 1,200.
    shortest_hold: 400,
    // The reserve, the offset of the worker's clock, and a report.
    late_end: 600,
    // Before half of the lease is over.
    long_run: 700,
    grace: 250,
};

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    DynamoDb,
    Redis,
    Postgres,
}

impl StoreKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DynamoDb => "dynamodb",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::DynamoDb, Self::Redis, Self::Postgres].into_iter().find(|kind| kind.name() == name)
    }
}
