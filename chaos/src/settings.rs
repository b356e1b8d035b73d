//! The settings that coordinator and workers share, and the kinds of stores.

use std::time::Duration;

use crate::judge::Terms;

/// The time that an invocation has.
pub(crate) const INVOCATION: Duration = Duration::from_millis(1_500);
/// The lease of a request or a consumer's message, which have no deadline.
pub(crate) const LEASE: Duration = Duration::from_millis(1_500);
/// The longest duration of their handlers.
pub(crate) const LONGEST_REQUEST: Duration = Duration::from_millis(2_500);
/// The time before a deadline or the end of a lease in which no handler runs.
pub(crate) const RESERVE: Duration = Duration::from_millis(300);
pub(crate) const MARGIN: Duration = Duration::from_millis(500);
/// The largest offset of a worker's clock. Any two differ by less than the margin.
pub(crate) const MAX_OFFSET_MS: i64 = 200;

/// The times on which the judge relies. They follow from the settings above, not from the library.
pub(crate) const fn terms(store: StoreKind) -> Terms {
    Terms {
        // Lease and margin less the offsets, counted from the claim, which is a lease less the reserve before the begin at
        // most: 1,500 + 500 - 400 - 1,200.
        shortest_hold: 400,
        // The reserve, the offset of the worker's clock, and a report.
        late_end: 600,
        // Before half of the lease is over.
        long_run: 700,
        grace: 250,
        // DynamoDB Local compiles its code anew.
        slow_start: if matches!(store, StoreKind::DynamoDb) { 4_000 } else { 0 },
    }
}

/// The pace of load and faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The operations of a run of half a minute.
    pub(crate) operations: u32,
    /// The most messages and clients at once.
    pub(crate) most_open: u32,
    /// The shortest and the longest time between two kills of workers, in milliseconds.
    pub(crate) kills: (u64, u64),
    /// The same for restarts of the server.
    pub(crate) restarts: (u64, u64),
}

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    DynamoDb,
    Redis,
    RedisCluster,
    Postgres,
}

impl StoreKind {
    /// Returns the pace of load and faults. DynamoDB Local, and the AWS SDK in a debug build, are slow, above all after their
    /// start.
    pub(crate) const fn pace(self) -> Pace {
        match self {
            Self::DynamoDb => Pace { operations: 300, most_open: 40, kills: (150, 1_300), restarts: (60_000, 120_000) },
            Self::Redis | Self::Postgres => {
                Pace { operations: 2_000, most_open: 260, kills: (100, 600), restarts: (4_000, 8_000) }
            }
            // A node takes two seconds to serve its slots again.
            Self::RedisCluster => {
                Pace { operations: 2_000, most_open: 260, kills: (100, 600), restarts: (2_000, 5_000) }
            }
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::DynamoDb => "dynamodb",
            Self::Redis => "redis",
            Self::RedisCluster => "redis-cluster",
            Self::Postgres => "postgres",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::DynamoDb, Self::Redis, Self::RedisCluster, Self::Postgres].into_iter().find(|kind| kind.name() == name)
    }
}
