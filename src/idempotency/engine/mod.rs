//! The protocol: claim, run, settle. Whatever wraps a handler goes through here.

use super::claim::Claim;
use crate::{
    order::Sequence,
    record::{Fingerprint, KeyHash},
    store::Refusal,
};

mod calls;
mod checking;
mod claiming;
mod claimless;
mod committing;
mod ending;
mod heartbeat;
mod probing;
mod running;
mod settling;
mod waiting;

pub(crate) use checking::Needs;
#[cfg(any(feature = "batch", feature = "http"))]
pub(crate) use claiming::Withdrawal;
#[cfg(feature = "batch")]
pub(crate) use committing::tell_doubt;
pub(crate) use committing::{Classifier, Commit, OpenTransaction};
#[cfg(feature = "http")]
pub(crate) use ending::Conclusion;
pub(crate) use ending::{End, Success};
pub(crate) use probing::earlier_result;
#[cfg(feature = "batch")]
pub(crate) use settling::{Settled, Unsettled};
#[cfg(any(feature = "batch", feature = "http"))]
pub(crate) use waiting::Polled;
#[cfg(feature = "batch")]
pub(crate) use waiting::{LeaseWait, WaitStep};

/// An operation that wants to be claimed.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: KeyHash,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Where it stands in the order of its entity, if that has one. Boxed: batches move candidates a lot, and few are ordered.
    pub(crate) sequence: Option<Box<Sequence>>,
}

/// The answer to a claim.
#[derive(Debug)]
pub(crate) enum ClaimAnswer {
    Granted(Claim),
    Refused(Refusal),
    /// The stop point has passed. If it was granted after that, it was released again.
    OutOfTime,
}
