//! Requests to end or renew a claim, and their results.

use std::time::Duration;

use crate::{
    clock::Timestamp,
    order::Order,
    record::{Fingerprint, KeyHash, Owner, Record, Status, StoredResult},
};

/// A request to end or renew a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleRequest {
    /// The operation.
    pub key: KeyHash,
    /// The token of the claim.
    pub owner: Owner,
    /// The recorded fingerprint of the claim. A store need not write it again, but a wrapper may need it to detect a
    /// misuse of the key.
    pub fingerprint: Option<Fingerprint>,
    /// The change to the claim.
    pub settlement: Settlement,
    /// The order of the claim. A store reads it by [`order()`](Self::order).
    pub order: Option<Order>,
}

impl SettleRequest {
    /// Returns the order of the claim (see [`ClaimRequest::order`](super::ClaimRequest::order)).
    pub const fn order(&self) -> Option<&Order> {
        Order::possible(&self.order)
    }
}

/// The end of a claim, or its renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Records the outcome of the operation.
    Record {
        /// The outcome.
        outcome: FinalStatus,
        /// The result to replay, or the error.
        result: StoredResult,
        /// The time for which the record is kept, from now on.
        retention: Duration,
    },
    /// Deletes the record, so that the operation may run again. If the record shows that its claim took over, it is not
    /// deleted and the lease is lost, because a release that arrives late cannot take that takeover into account.
    Release,
    /// Releases a claim that took over. The record remains INPROGRESS without an owner, and its lease is over, so the
    /// next claim still learns that an outcome was lost.
    HandBack,
    /// Extends the claim by another `lease` from now. A renewal never lowers the lease or the expiration on record, so
    /// a late copy of an older renewal changes nothing. Once the lease and the margin have passed, it is refused
    /// ([`Settled::LeaseLost`]).
    Renew {
        /// The lease of the claim.
        lease: Duration,
        /// See [`ClaimRequest::skew_margin`](super::ClaimRequest::skew_margin).
        skew_margin: Duration,
        /// See [`ClaimRequest::retention`](super::ClaimRequest::retention).
        retention: Duration,
    },
}

/// The status of a decided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinalStatus {
    /// The operation took effect.
    Completed,
    /// The operation failed permanently.
    Failed,
}

impl From<FinalStatus> for Status {
    fn from(status: FinalStatus) -> Self {
        match status {
            FinalStatus::Completed => Self::Completed,
            FinalStatus::Failed => Self::Failed,
        }
    }
}

impl Settlement {
    /// Creates a settlement that records that the operation took effect.
    pub const fn complete(result: StoredResult, retention: Duration) -> Self {
        Self::Record { outcome: FinalStatus::Completed, result, retention }
    }

    /// Creates a settlement that records that the operation failed permanently.
    pub const fn fail(result: StoredResult, retention: Duration) -> Self {
        Self::Record { outcome: FinalStatus::Failed, result, retention }
    }

    /// Returns whether the operation may run again.
    pub const fn is_release(&self) -> bool {
        matches!(self, Self::Release | Self::HandBack)
    }

    /// Returns whether the operation took effect, and with it the writes of its handler in a transaction.
    pub const fn took_effect(&self) -> bool {
        matches!(
            self,
            Self::Record { outcome: FinalStatus::Completed, result: StoredResult { superseded: false, .. }, .. }
        )
    }

    /// Returns the result to be recorded.
    pub const fn result(&self) -> Option<&StoredResult> {
        match self {
            Self::Record { result, .. } => Some(result),
            _ => None,
        }
    }

    /// Returns the name for errors and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Record { outcome: FinalStatus::Completed, .. } => "complete",
            Self::Record { outcome: FinalStatus::Failed, .. } => "fail",
            Self::Release | Self::HandBack => "release",
            Self::Renew { .. } => "renew",
        }
    }
}

/// The result of a [`SettleRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The claim has ended as requested.
    Done {
        /// The existing record, if this call changed nothing because the claim had already ended as requested. It may
        /// come without the data of its result. `None` if this call ended the claim, or if nothing was left to release.
        found: Option<Box<Record>>,
    },
    /// The claim was renewed.
    Renewed {
        /// The recorded lease, at the end of which the holder must have stopped. It may be later than the requested
        /// one.
        lease_until: Timestamp,
    },
    /// The record no longer belongs to this owner. Nothing was written.
    LeaseLost {
        /// The current record, read consistently, or `None` if there was none.
        current: Option<Box<Record>>,
    },
}
