//! Requests to claim a key, and their results.

use std::{sync::Arc, time::Duration};

use super::{Mismatch, MismatchState, ResultData};
use crate::{
    clock::Timestamp,
    order::{Order, Sequence},
    record::{Fingerprint, KeyHash, Owner, Record, Status},
};

/// The permission to replace a claim whose lease has ended without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// Allowed if the payload is the same, or of a different [version](Fingerprint::payload_version).
    Allowed,
    /// Refused, because the operation may have taken effect.
    Refused,
}

/// A request for the right to run an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The operation.
    pub key: KeyHash,
    /// The fingerprint of its payload, if payloads are compared.
    pub fingerprint: Option<Fingerprint>,
    /// The token of the claim. It is the same in every repetition of this claim, and different in any other claim.
    pub owner: Owner,
    /// The lease of the claim.
    pub lease: Duration,
    /// The maximum clock difference. Others may take over only after the lease and this margin have passed.
    pub skew_margin: Duration,
    /// The minimum time for which the record is kept while in progress. It never expires before the lease and the
    /// margin have passed.
    pub retention: Duration,
    /// Whether an abandoned claim may be taken over.
    pub takeover: Takeover,
    /// Whether a refusal's record contains the data of its result.
    pub result_data: ResultData,
    /// The position of the operation in the order of its entity, if any. A store reads it by [`order()`](Self::order).
    pub order: Option<Order>,
    /// The operation's name as in logs, at most [256 bytes](crate::record::MAX_LABEL_BYTES). It is stored in the
    /// record.
    pub operation: Arc<str>,
    /// The application's label for this operation, as plain text of at most
    /// [`MAX_LABEL_BYTES`](crate::record::MAX_LABEL_BYTES). It is stored in the record.
    pub label: Option<Arc<str>>,
}

impl ClaimRequest {
    /// Returns the position of the operation in the order of its entity. Without the feature `order` this is a constant
    /// `None`, so that the compiler removes a store's code for ordered operations.
    pub const fn order(&self) -> Option<&Order> {
        Order::possible(&self.order)
    }
}

/// The result of a [`ClaimRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The caller may run the operation.
    Granted(Grant),
    /// The caller may not run the operation.
    Refused(Refusal),
}

/// A granted claim, as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The instant at which the holder must have stopped.
    pub lease_until: Timestamp,
    /// The number of grants of the record, including this one.
    pub attempt: u64,
    /// The status that the claim replaced, or `None` if there was no record, or a claim that had expired.
    pub prior_status: Option<Status>,
    /// Whether the mark of an ordered operation's entity was full of operations in doubt, and this claim is the first
    /// for which two of them [merged](super::ordering). Older operations wait until a newer one completes. A claim that is
    /// sent again may report the merge of an earlier claim.
    pub has_merged_doubt: bool,
}

impl Grant {
    /// Returns whether an earlier claim on the key ended without an outcome, so that the operation may have taken
    /// effect.
    pub fn took_over(&self) -> bool {
        self.prior_status == Some(Status::InProgress)
    }
}

/// The reason why a claim was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The operation is completed. Replay the result in its record. A record from a cache may contain only the fields
    /// that a replay needs: status, fingerprint, expiration and result.
    Completed(Box<Record>),
    /// The operation failed permanently. Replay the failure in its record.
    Failed(Box<Record>),
    /// Another claim is live, on the key or, for an ordered operation, on its entity. Also returned for an operation
    /// that is older than one that may have taken effect.
    InProgress {
        /// End of the live claim's lease. `None` if its record has no lease, or if the operation is older than one that
        /// may have taken effect.
        lease_until: Option<Timestamp>,
        /// The number of grants of the record.
        attempt: u64,
    },
    /// A claim ended without an outcome, and the request's [`Takeover`] forbids replacing it.
    Abandoned {
        /// The number of grants of the record.
        attempt: u64,
    },
    /// The key is used with a different payload.
    Mismatch(Mismatch),
    /// The operation is ordered, and a newer one of its entity has taken effect.
    Superseded {
        /// The greatest completed sequence.
        newest: Sequence,
    },
}

impl Refusal {
    /// Returns the end of the blocking lease, if there is a live claim and its record has a lease.
    pub(crate) fn lease_until(&self) -> Option<Timestamp> {
        match self {
            Self::InProgress { lease_until, .. }
            | Self::Mismatch(Mismatch { state: MismatchState::InProgress { lease_until, .. }, .. }) => *lease_until,
            _ => None,
        }
    }
}
