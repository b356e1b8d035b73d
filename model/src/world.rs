//! The bounds of a world.

use crate::state::Change;

/// A small, finite world: its workers, and how much of what may happen.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) workers: Vec<Plan>,
    /// The time at which the world ends.
    pub(crate) ends: u8,
    pub(crate) lease: u8,
    /// The retentions of a claim in progress and of an outcome.
    pub(crate) retention: (u8, u8),
    pub(crate) policy: Policy,
    pub(crate) clock: Clock,
    /// The number of workers that may die, of requests that may have no response in time, of responses that may be
    /// late, of requests that may arrive twice, of amendments by an operator, and of its statements about operations in
    /// doubt.
    pub(crate) crashes: u8,
    pub(crate) timeouts: u8,
    pub(crate) late_answers: u8,
    pub(crate) copies: u8,
    pub(crate) amendments: u8,
    pub(crate) statements: u8,
    pub(crate) changes: Vec<Change>,
    /// Whether handlers return transient and permanent errors.
    pub(crate) errors: (bool, bool),
    /// Whether expired records may be deleted.
    pub(crate) purges: bool,
    /// Whether clients may go.
    pub(crate) cancels: bool,
    /// Whether the operations have an order, by their keys.
    pub(crate) is_ordered: bool,
    /// Whether the world begins with the operations at these positions in doubt.
    pub(crate) doubt: Vec<u8>,
    /// Whether the completion of the first of them is still on its way.
    pub(crate) is_late: bool,
    /// Whether handlers may outlive their lease. Then only the promises hold that hold whatever workers do.
    pub(crate) outlives: bool,
    /// The events that must happen in some trace.
    pub(crate) reaches: Vec<Event>,
}

/// The part of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) key: u8,
    pub(crate) payload: u8,
    /// The difference of its clock: −1, 0 or 1, which is the margin.
    pub(crate) skew: i8,
    /// The number of its deliveries.
    pub(crate) deliveries: u8,
    /// The number of renewals in one delivery.
    pub(crate) renewals: u8,
    pub(crate) path: Path,
}

/// The policy after an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Rerun,
    Refuse,
    Probe,
}

/// The clock that decides leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The sender's, as on DynamoDB.
    Sender,
    /// The store's at the arrival, as on Redis and PostgreSQL.
    Store,
}

impl Path {
    /// Returns whether the effect is committed together with the outcome.
    pub(crate) fn commits(self) -> bool {
        matches!(self, Self::Transaction | Self::Claimless)
    }
}

/// The way in which operations are claimed and settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// One request a claim.
    Single,
    /// `INSERT`, `SELECT` and `UPDATE`.
    Batched,
    /// The outcome is committed together with the effect.
    Transaction,
    /// The same without a claim before.
    Claimless,
}

macro_rules! events {
    ($($event:ident: $words:literal,)+) => {
        /// An event that a world must reach, so that a model in which hardly anything happens does not pass.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Event { $($event,)+ }

        impl Event {
            /// Returns the event in words.
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Self::$event => $words,)+ }
            }
        }
    };
}

events! {
    Executed: "an operation is executed",
    Replayed: "a result is replayed",
    ReplayedFailure: "a failure is replayed",
    TookOver: "a claim takes over",
    OwnClaim: "a repeated claim meets its own",
    InProgress: "a claim is refused as in progress",
    Abandoned: "a claim is refused as abandoned",
    Mismatch: "a claim is refused as a mismatch",
    Superseded: "a claim is refused as superseded",
    LateGrant: "a grant comes after its lease",
    LeaseLost: "a lease is lost",
    Overtaken: "a successor's outcome is answered",
    Unrecorded: "an outcome could not be recorded",
    AppliedBefore: "a settle was applied before",
    HandedBack: "a claim is handed back",
    Withdrawn: "a claim without an answer is withdrawn",
    Recovered: "a probe finds the effect",
    NotDone: "a probe finds no effect",
    Expired: "a claim replaces an expired record",
    Purged: "an expired record is deleted",
    Renewed: "a lease is renewed",
    Refused: "a renewal is refused",
    Changed: "a record changes between two steps of a claim",
    Dropped: "a dropped request releases its claim",
    Undone: "a release finds nothing committed",
    Committed: "a release finds the commit",
    Undecided: "a commit stays undecided",
    Merged: "operations in doubt merge",
    InDoubt: "an older operation waits for one in doubt",
    Forgotten: "an operator forgets a record",
    SettledBy: "an operator settles an operation",
    Released: "an operator's release lets a claim take over",
    PassedOn: "a release is passed on by a hand-back",
    Redacted: "an operator redacts a record",
    Unchanged: "an amendment finds its record or mark changed",
    StatedEffect: "an operator states that an operation took effect",
    StatedNone: "an operator states that an operation had no effect",
}

impl Event {
    /// Returns the bit of the event.
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u64
    }
}
