//! What a record is on its way: to be looked at, ready, waiting, begun, decided.

use std::sync::Arc;

use crate::{
    Claim,
    batch::RecordInfo,
    clock::Timestamp,
    idempotency::{
        engine::{Backoff, Candidate},
        guard::contain,
    },
    store::Refusal,
};

/// A record that can run.
pub(super) struct Ready<T> {
    pub(super) index: usize,
    pub(super) payload: T,
    pub(super) info: Arc<RecordInfo>,
    /// `None` if it runs unprotected.
    pub(super) candidate: Option<Candidate>,
    pub(super) claim: Option<Claim>,
    /// Whether it may wait for a lease in its way to end, and be claimed once more.
    pub(super) may_wait: bool,
}

impl<T> Ready<T> {
    /// The claim that is to be released. Dropping the payload runs code of the user's.
    pub(super) fn give_up(self) -> Option<Claim> {
        let Self { payload, claim, .. } = self;
        let _ = contain(|| drop(payload));
        claim
    }
}

/// A record that waits for the lease in its way to end.
pub(super) struct Patient<T> {
    pub(super) ready: Ready<T>,
    /// When that lease is over for others.
    pub(super) until: Timestamp,
    /// What became of it, if it does not get its second claim.
    pub(super) refusal: Refusal,
    /// When to look whether it has come to its end before that.
    pub(super) look_at: Timestamp,
    pub(super) looks: Backoff,
}

impl<T> Patient<T> {
    /// Sets the time of the next look.
    pub(super) fn look_later(&mut self, now: Timestamp) {
        self.look_at = now.after(self.looks.next_look());
    }
}

/// A record whose handler has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) index: usize,
    pub(super) at: Timestamp,
}

/// A record's place behind an earlier one with the same key.
#[derive(Clone, Copy)]
pub(super) struct Follows {
    pub(super) leader: usize,
    /// Whether its payload is the leader's too.
    pub(super) same_payload: bool,
}

/// A record of the event.
pub(super) enum Slot<R> {
    Incoming(R),
    /// Its body has been decoded.
    Open(Arc<RecordInfo>),
    /// Its outcome counts, and nothing more of it is needed.
    Acknowledged,
    /// Its outcome counts, and it is reported.
    Failed(Arc<RecordInfo>),
}
