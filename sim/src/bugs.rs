//! Bugs planted at the boundary of store and engine, to show that the simulation finds them.
//!
//! Each changes requests or responses as if a rule of the protocol had been forgotten. The library's sources are not
//! touched.

use lambda_once::{
    Error, MemoryStore, OutcomeKind,
    clock::Timestamp,
    record::{Owner, Record, Status, StoredResult},
    store::{ClaimRequest, Claimed, Grant, Refusal, SettleRequest, Settled, Settlement, Takeover},
};

use crate::world::server::{Request, Response, plain, record};

macro_rules! bugs {
    ($($bug:ident $rule:literal $name:literal $doc:literal,)*) => {
        /// A planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $doc] $bug,)*
        }

        impl Bug {
            /// All bugs.
            pub const ALL: &[Self] = &[$(Self::$bug,)*];

            /// Returns the name for the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bug => $name,)* }
            }

            /// Returns the rule that it breaks.
            pub const fn rule(self) -> &'static str {
                match self { $(Self::$bug => $rule,)* }
            }

            /// Returns its description.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$bug => $doc,)* }
            }
        }
    };
}

bugs! {
    RecordsExpireWithTheLease "C1" "records-expire-with-the-lease" "A record in progress counts as absent once its lease has ended.",
    FingerprintForgotten "C2" "fingerprint-forgotten" "Claims are not compared by payload.",
    LapsedTakenByOtherPayload "C2" "lapsed-taken-by-other-payload" "A lapsed claim is taken over by another payload.",
    CompletedClaimedAgain "C3" "completed-claimed-again" "A completed record is claimed as if it were absent.",
    FailedClaimedAgain "C4" "failed-claimed-again" "A failed record is claimed as if it were absent.",
    RepetitionGrantedAfresh "C5" "repetition-granted-afresh" "A repeated claim is granted without the history on record.",
    LiveClaimTaken "C6" "live-claim-taken" "A claim replaces one that stands.",
    LeaseAloneDecides "L3" "lease-alone-decides" "The skew margin is not added to a lease.",
    RefuseTakesOver "C7" "refuse-takes-over" "A lapsed claim is taken over under every policy.",
    TakeoverNotTold "C8" "takeover-not-told" "A grant does not show that it took over.",
    SettleWithoutOwner "S1" "settle-without-owner" "A settle does not check the owner.",
    SettleOverOutcome "S1" "settle-over-outcome" "A settle does not check that the record is in progress.",
    ReleaseWithoutOwner "S3" "release-without-owner" "A release deletes the record of any claim.",
    LostLeaseReportedDone "S3" "lost-lease-reported-done" "A settle that finds its lease lost reports success.",
    AnswerBeforeWrite "S4" "answer-before-write" "A completion is answered and not written.",
    HandBackDeletes "S9" "hand-back-deletes" "A claim that took over is deleted when it is handed back.",
    LateReleaseErasesTakeover "S9" "late-release-erases-takeover" "A release deletes a record whose claim took over.",
    RenewalLowersLease "L5" "renewal-lowers-lease" "A late copy of a renewal lowers the lease.",
    RenewalIgnored "L5" "renewal-ignored" "A renewal is answered and not written.",
    OrderForgotten "G1" "order-forgotten" "Claims and settles do not read or write the mark.",
    CompletionLeavesMark "G3" "completion-leaves-mark" "A completion does not raise the newest sequence.",
    DoubtForgotten "G2" "doubt-forgotten" "An operation runs although a newer one may have taken effect.",
    EntityShared "G2" "entity-shared" "Two operations of one entity run at the same time.",
    ClockStandsStill "L7" "clock-stands-still" "The clock is read once in an invocation.",
    InProgressAcknowledged "B6" "in-progress-acknowledged" "A message that is in progress elsewhere is acknowledged.",
    AnswersOutOfOrder "contract" "answers-out-of-order" "The answers of a call come in reverse order.",
    ReportsNothing "B7" "reports-nothing" "A batch's response reports no failure.",
}

impl Bug {
    /// Returns the bug with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }

    /// Applies a request to the store with this bug.
    pub(crate) fn apply(self, memory: &MemoryStore, request: &Request, now: Timestamp) -> Result<Response, Error> {
        match request {
            Request::Claim(claim) => self.claim(memory, claim, now),
            Request::Settle(settle) => self.settle(memory, settle.clone(), now),
            Request::Read(..) => plain(memory, request),
        }
    }

    fn claim(self, memory: &MemoryStore, request: &ClaimRequest, now: Timestamp) -> Result<Response, Error> {
        let mut claim = request.clone();
        let found = record(memory, &claim.key);
        let is_mine = found.as_ref().is_some_and(|record| record.owner == Some(claim.owner));
        let has = |status| found.as_ref().is_some_and(|record| record.status == status);
        let is_lapsed = |record: &Record| record.lease_until.is_some_and(|until| until.after(claim.skew_margin) < now);
        match self {
            Self::RecordsExpireWithTheLease => {
                let ended = |record: &Record| record.lease_until.is_some_and(|until| until < now);
                if has(Status::InProgress) && found.as_ref().is_some_and(ended) {
                    memory.remove(&claim.key);
                }
            }
            Self::FingerprintForgotten => claim.fingerprint = None,
            Self::LapsedTakenByOtherPayload if has(Status::InProgress) && found.as_ref().is_some_and(is_lapsed) => {
                claim.fingerprint = None;
            }
            Self::CompletedClaimedAgain if has(Status::Completed) => drop(memory.remove(&claim.key)),
            Self::FailedClaimedAgain if has(Status::Failed) => drop(memory.remove(&claim.key)),
            Self::LiveClaimTaken if has(Status::InProgress) && !is_mine => drop(memory.remove(&claim.key)),
            Self::LeaseAloneDecides => claim.skew_margin = std::time::Duration::ZERO,
            Self::RefuseTakesOver => claim.takeover = Takeover::Allowed,
            Self::OrderForgotten => claim.order = None,
            _ => {}
        }
        let unordered = ClaimRequest { order: None, ..claim.clone() };
        let mut response = plain(memory, &Request::Claim(claim));
        if let Ok(Response::Claimed(Claimed::Refused(Refusal::InProgress { lease_until, .. }))) = &response
            && unordered != *request
        {
            let is_doubt = lease_until.is_none();
            if self == Self::DoubtForgotten && is_doubt {
                response = plain(memory, &Request::Claim(above_doubt(memory, request)));
            } else if self == Self::EntityShared && !is_doubt {
                response = plain(memory, &Request::Claim(unordered));
            }
        }
        if let Ok(Response::Claimed(Claimed::Granted(grant))) = &mut response {
            match self {
                Self::TakeoverNotTold => grant.prior_status = None,
                Self::RepetitionGrantedAfresh if is_mine => {
                    *grant = Grant { prior_status: None, attempt: 1, ..*grant };
                }
                _ => {}
            }
        }
        response
    }

    fn settle(self, memory: &MemoryStore, mut settle: SettleRequest, now: Timestamp) -> Result<Response, Error> {
        let found = record(memory, &settle.key);
        let owner: Option<Owner> = found.as_ref().and_then(|record| record.owner);
        let is_mine = owner == Some(settle.owner);
        let is_in_progress = found.as_ref().is_some_and(|record| record.status == Status::InProgress);
        let done = Ok(Response::Settled(Settled::Done { found: None }));
        match (self, &settle.settlement) {
            (Self::SettleWithoutOwner, Settlement::Record { .. }) => settle.owner = owner.unwrap_or(settle.owner),
            (Self::SettleOverOutcome, Settlement::Record { .. }) => {
                if let Some(record) = found.filter(|_| !is_in_progress) {
                    let owner = Some(settle.owner);
                    memory.insert(settle.key, Record { status: Status::InProgress, owner, ..record });
                }
            }
            (Self::ReleaseWithoutOwner, Settlement::Release) if is_in_progress => {
                memory.remove(&settle.key);
                return done;
            }
            (Self::AnswerBeforeWrite, Settlement::Record { .. }) if is_mine && is_in_progress => return done,
            (Self::HandBackDeletes, Settlement::HandBack) if is_mine && is_in_progress => {
                memory.remove(&settle.key);
                return done;
            }
            (Self::LateReleaseErasesTakeover, Settlement::Release) if is_mine && is_in_progress => {
                memory.remove(&settle.key);
                return done;
            }
            (Self::RenewalLowersLease, Settlement::Renew { lease, .. }) if is_mine && is_in_progress => {
                let until = now.after(*lease);
                memory.insert(settle.key, Record { lease_until: Some(until), ..found.unwrap_or_else(absent) });
                return Ok(Response::Settled(Settled::Renewed { lease_until: until }));
            }
            (Self::RenewalIgnored, Settlement::Renew { lease, .. }) if is_mine && is_in_progress => {
                return Ok(Response::Settled(Settled::Renewed { lease_until: now.after(*lease) }));
            }
            (Self::OrderForgotten, _) => settle.order = None,
            (Self::CompletionLeavesMark, Settlement::Record { .. }) => settle.order = None,
            _ => {}
        }
        let response = plain(memory, &Request::Settle(settle));
        match response {
            Ok(Response::Settled(Settled::LeaseLost { .. })) if self == Self::LostLeaseReportedDone => done,
            response => response,
        }
    }

    /// Returns whether a message with this outcome is acknowledged, although the response reports it.
    pub(crate) fn acknowledges(self, outcome: Option<OutcomeKind>) -> bool {
        match self {
            Self::ReportsNothing => true,
            Self::InProgressAcknowledged => outcome == Some(OutcomeKind::InProgress),
            _ => false,
        }
    }

    /// Changes the responses of a whole call.
    pub(crate) fn mix<T>(self, given: &mut [T]) {
        if self == Self::AnswersOutOfOrder {
            given.reverse();
        }
    }
}

/// Returns the claim at the greatest sequence in doubt. It is not older than any, and holds the entity like others.
fn above_doubt(memory: &MemoryStore, request: &ClaimRequest) -> ClaimRequest {
    let mut claim = request.clone();
    if let (Some(order), Some(mark)) = (&mut claim.order, memory.mark(&request.key)) {
        let in_doubt = mark.doubt.iter().map(|doubt| doubt.sequence);
        let lapsed = mark.holder.iter().map(|holder| holder.sequence);
        order.sequence = in_doubt.chain(lapsed).fold(order.sequence, Ord::max);
    }
    claim
}

fn absent() -> Record {
    Record { result: StoredResult::DROPPED, ..Record::new(Status::InProgress) }
}
