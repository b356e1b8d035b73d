//! The protocol's rules for claims and settles, which every store applies.
//!
//! ```
//! use lambda_once::{
//!     Error,
//!     clock::Timestamp,
//!     record::Record,
//!     store::{ClaimRequest, Claimed, rules::{self, Change}},
//! };
//!
//! /// A claim, for a database that replaces a document if its revision is still the same.
//! fn claim(found: Option<&Record>, request: &ClaimRequest, now: Timestamp) -> Result<Option<Claimed>, Error> {
//!     let (change, claimed) = rules::claim(found, request, now)?;
//!     let is_applied = match change {
//!         Change::Keep => true,
//!         Change::Put(record) => replace(found, Some(*record)),
//!         Change::Delete => replace(found, None),
//!     };
//!     Ok(is_applied.then_some(claimed)) // `None`: read again, and decide again
//! }
//! # fn replace(found: Option<&Record>, record: Option<Record>) -> bool { true }
//! ```
//!
//! A store that can evaluate them at the record (in a condition, a script or a statement) does so, and uses these
//! functions to explain a refusal. A store that replaces a record only if it has not changed since it was read decides
//! by [`claim`] and [`settle`].

use std::{sync::Arc, time::Duration};

use super::{
    ClaimRequest, Claimed, Grant, Mismatch, MismatchState, Refusal, ResultData, SettleRequest, Settled, Settlement,
    Takeover,
};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    order::Order,
    record::{Fingerprint, NEWEST_KNOWN_VERSION, Owner, Record, Status, StoredResult},
};

mod amending;
#[cfg(test)]
mod tests;

pub(in crate::store) use amending::amend_record;
pub use amending::{amend, check_amendment, explain_amendment};

/// The change that a request makes to the record of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record stays unchanged.
    Keep,
    /// This record replaces it.
    Put(Box<Record>),
    /// The record is deleted.
    Delete,
}

/// Decides a claim, based on the record that exists, if any. Returns the change and the result, which holds only if the
/// change is applied to that very record.
///
/// # Errors
///
/// The errors of [`judge`]. [`ErrorKind::Config`], permanent, for a request with an order, which these rules do not
/// support.
pub fn claim(record: Option<&Record>, request: &ClaimRequest, now: Timestamp) -> Result<(Change, Claimed), Error> {
    refuse_order(request.order())?;
    Ok(match record.map_or(Ok(Judgement::Free), |record| judge(record, request, now))? {
        Judgement::Free => {
            let (record, grant) = claimed(record, request, now);
            (Change::Put(Box::new(record)), Claimed::Granted(grant))
        }
        Judgement::Mine(grant) => (Change::Keep, Claimed::Granted(grant)),
        Judgement::Refused(refusal) => (Change::Keep, Claimed::Refused(refusal)),
    })
}

/// Decides a settle, based on the record that was found, if any. Returns the change and the result, which holds only if
/// the change is applied to that very record.
///
/// * **S1** It applies while the record is in progress under the request's owner, and never creates a record.
/// * **L5** A renewal applies only until the lease and the skew margin have passed. It raises the lease and the
///   expiration, and never lowers them.
/// * **S9** A release deletes the record, unless its claim took over, so that the loss of the earlier run stays on record.
///   A hand-back removes the owner and ends the lease.
/// * **S2, S3** Otherwise it had been applied before, or its lease is lost ([`explain_settle`]). A record that cannot be
///   read is passed as its error.
///
/// # Errors
///
/// * [`ErrorKind::Config`], permanent, for a request with an order, which these rules do not support.
/// * The errors of [`explain_settle`].
pub fn settle(
    found: Result<Option<Record>, Error>,
    request: &SettleRequest,
    now: Timestamp,
) -> Result<(Change, Settled), Error> {
    refuse_order(request.order())?;
    match found {
        Ok(Some(mut record)) if may_settle(request, &record, now) => Ok(match apply(&mut record, request, now) {
            Some(answer) => (Change::Put(Box::new(record)), answer),
            None => (Change::Delete, Settled::Done { found: None }),
        }),
        found => Ok((Change::Keep, explain_settle(request, found)?)),
    }
}

fn refuse_order(order: Option<&Order>) -> Result<(), Error> {
    order.map_or(Ok(()), |_| Err(Error::config("the store keeps no order, which an operation with `ordered_by` needs")))
}

/// Returns the record of a claim that is granted at `now`, and the grant. A claim that has expired is not taken over,
/// because its payload was not compared.
pub(crate) fn claimed(replaced: Option<&Record>, request: &ClaimRequest, now: Timestamp) -> (Record, Grant) {
    let counts = |record: &&Record| record.status != Status::InProgress || !is_expired(record, now);
    let grant = Grant {
        lease_until: now.after(request.lease),
        attempt: replaced.map_or(0, |record| record.attempt).saturating_add(1),
        prior_status: replaced.filter(counts).map(|record| record.status),
        has_merged_doubt: false,
    };
    let Grant { lease_until, attempt, prior_status, .. } = grant;
    let record = Record {
        owner: Some(request.owner),
        attempt,
        prior_status,
        lease_until: Some(lease_until),
        expiration: Some(in_progress_expiration(now, lease_until, request.skew_margin, request.retention)),
        fingerprint: request.fingerprint,
        operation: Some(Arc::clone(&request.operation)),
        label: request.label.clone(),
        sequence: request.order().map(|order| order.sequence),
        claimed_at: Some(now),
        released: replaced.and_then(|record| record.released),
        unknown: replaced.map(|record| record.unknown.clone()).unwrap_or_default(),
        ..Record::new(Status::InProgress)
    };
    (record, grant)
}

/// Applies a settle at `now` to its record. Returns `None` if the record is to be deleted.
pub(crate) fn apply(record: &mut Record, request: &SettleRequest, now: Timestamp) -> Option<Settled> {
    match resolved(&request.settlement, now) {
        Resolved::Record { status, result, expiration, settled_at } => {
            record.status = status;
            record.result = result.clone();
            record.expiration = Some(expiration);
            record.settled_at = Some(settled_at);
        }
        Resolved::Release => return None,
        Resolved::HandBack { settled_at, .. } => {
            record.released = release_after_hand_back(record);
            record.owner = None;
            record.lease_until = Some(Timestamp::EPOCH);
            record.settled_at = Some(settled_at);
        }
        Resolved::Renew(renewal) => {
            let Renewal { lease_until, expiration, .. } = renewal.raised_to(record);
            record.lease_until = Some(lease_until);
            record.expiration = Some(expiration);
            return Some(Settled::Renewed { lease_until });
        }
    }
    Some(Settled::Done { found: None })
}

/// A settlement whose durations are resolved to times.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resolved<'a> {
    Record {
        status: Status,
        result: &'a StoredResult,
        /// In seconds.
        expiration: u64,
        settled_at: Timestamp,
    },
    Release,
    HandBack {
        settled_at: Timestamp,
        /// The recorded attempt, its release, and its release after the hand-back, or `None` if no release is known.
        #[cfg_attr(
            not(feature = "dynamodb"),
            expect(dead_code, reason = "other stores replace the record, or read it themselves")
        )]
        release: Option<(u64, u64, u64)>,
    },
    Renew(Renewal),
}

/// Returns the attempt of the record that is released after its claim is handed back. The claim that a release was
/// meant for passes it on to the next claim. Other claims leave it unchanged.
pub(crate) fn release_after_hand_back(record: &Record) -> Option<u64> {
    record
        .released
        .map(|released| if released.checked_add(1) == Some(record.attempt) { record.attempt } else { released })
}

/// The times of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    pub(crate) lease_until: Timestamp,
    /// In seconds.
    pub(crate) expiration: u64,
    /// The earliest recorded lease that may be renewed. Others may take over an earlier one.
    pub(crate) lapsed: Timestamp,
    skew_margin: Duration,
}

/// Resolves a settlement that a store without a clock applies at `now`.
pub(crate) fn resolved(settlement: &Settlement, now: Timestamp) -> Resolved<'_> {
    match settlement {
        Settlement::Record { outcome, result, retention } => Resolved::Record {
            status: (*outcome).into(),
            result,
            expiration: now.after(*retention).seconds_rounded_up(),
            settled_at: now,
        },
        Settlement::Release => Resolved::Release,
        Settlement::HandBack => Resolved::HandBack { settled_at: now, release: None },
        Settlement::Renew { lease, skew_margin, retention } => {
            let (lease_until, skew_margin) = (now.after(*lease), *skew_margin);
            let expiration = in_progress_expiration(now, lease_until, skew_margin, *retention);
            Resolved::Renew(Renewal { lease_until, expiration, lapsed: now.before(skew_margin), skew_margin })
        }
    }
}

impl Renewal {
    /// Raises the times to those on record, because a copy of an older renewal may arrive after a newer one was
    /// applied.
    pub(crate) fn raised_to(self, record: &Record) -> Self {
        let lease_until = record.lease_until.map_or(self.lease_until, |stored| stored.max(self.lease_until));
        let expiration = self.expiration.max(lapses(lease_until, self.skew_margin).seconds_rounded_up());
        let expiration = record.expiration.map_or(expiration, |stored| stored.max(expiration));
        Self { lease_until, expiration, ..self }
    }
}

/// The meaning of an existing record for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The record may be replaced, because it has expired or is an abandoned claim that may be taken over.
    Free,
    /// The record belongs to this very claim. An earlier request was applied and its response lost.
    Mine(Grant),
    /// The claim is refused.
    Refused(Refusal),
}

/// Judges a claim made at `now` against the record that exists. The first condition that holds decides. A record has *lapsed* if
/// it is INPROGRESS and its lease and the skew margin have both passed: `lease_until + skew_margin < now`, in milliseconds.
///
/// * **C1** The record's expiration has passed: it counts as absent. It passes when its second begins: `expiration <= now`, in
///   seconds, rounded down.
/// * **C2** Both have a fingerprint, the payloads' versions are equal, and the first halves of the two
///   [differ](Fingerprint::differs_from): a mismatch, whatever the status. The [`Mismatch`] is final, in progress, or abandoned if
///   the record has lapsed. Payloads of different versions are not compared.
/// * **C3** COMPLETED: the result is replayed.
/// * **C4** FAILED: the failure is replayed.
/// * **C5** INPROGRESS under the request's own token, and not lapsed or not to be taken over: granted, with the values
///   on record. A lapsed record under its own token is taken over (C7), because the condition of a claim's write does
///   not name the owner.
/// * **C6** INPROGRESS, and not lapsed or without a lease: in progress.
/// * **C7** Lapsed: free if the request allows a takeover, or if an operator has released this attempt
///   ([`released`](Record::released)). Otherwise abandoned.
///
/// # Errors
///
/// [`ErrorKind::Format`], temporary, for a record of a format beyond [`NEWEST_KNOWN_VERSION`].
pub fn judge(record: &Record, request: &ClaimRequest, now: Timestamp) -> Result<Judgement, Error> {
    let ClaimRequest { fingerprint, skew_margin, takeover, result_data, .. } = *request;
    judge_for(record, &Claimant { owner: Some(request.owner), fingerprint, skew_margin, takeover, result_data }, now)
}

/// The properties that the rules need of a claim, made or intended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant {
    /// `None` for a claim that is not made yet.
    pub(crate) owner: Option<Owner>,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) skew_margin: Duration,
    pub(crate) takeover: Takeover,
    pub(crate) result_data: ResultData,
}

/// Decides by the rules listed at [`judge`], which calls it, also for a claim that is not made yet.
pub(crate) fn judge_for(record: &Record, claimant: &Claimant, now: Timestamp) -> Result<Judgement, Error> {
    if is_expired(record, now) {
        return Ok(Judgement::Free);
    }
    check_version(record, "claim")?;
    if let (Some(theirs), Some(ours)) = (record.fingerprint, claimant.fingerprint)
        && ours.differs_from(&theirs)
    {
        let state = mismatch_state(record, claimant.skew_margin, now);
        return Ok(Judgement::Refused(Refusal::Mismatch(Mismatch::new(state, ours.difference(&theirs)))));
    }
    let attempt = record.attempt;
    Ok(match record.status {
        Status::Completed => Judgement::Refused(Refusal::Completed(Box::new(claimant.result_data.copy_of(record)))),
        Status::Failed => Judgement::Refused(Refusal::Failed(Box::new(claimant.result_data.copy_of(record)))),
        Status::InProgress => {
            // Only another library writes no lease, so the token need not be compared.
            let Some(lease_until) = record.lease_until else {
                return Ok(Judgement::Refused(Refusal::InProgress { lease_until: None, attempt }));
            };
            let is_lapsed = has_lapsed(lease_until, claimant.skew_margin, now);
            let is_mine = claimant.owner.is_some() && record.owner == claimant.owner;
            // Without a first attempt there is nothing to release.
            let is_released = attempt > 0 && record.released == Some(attempt);
            match claimant.takeover {
                // C7: an operator's release, or the policy. Both need a lapsed claim, which C5 excludes.
                _ if is_lapsed && is_released => Judgement::Free,
                Takeover::Allowed if is_lapsed => Judgement::Free,
                // C5
                _ if is_mine => {
                    let prior_status = record.prior_status;
                    Judgement::Mine(Grant { lease_until, attempt, prior_status, has_merged_doubt: false })
                }
                Takeover::Refused if is_lapsed => Judgement::Refused(Refusal::Abandoned { attempt }),
                // C6
                _ => Judgement::Refused(Refusal::InProgress { lease_until: Some(lease_until), attempt }),
            }
        }
    })
}

/// Returns the state of the operation that owns the key, for a claim with a different payload.
fn mismatch_state(record: &Record, skew_margin: Duration, now: Timestamp) -> MismatchState {
    let Record { status, lease_until, attempt, .. } = *record;
    match (status, lease_until) {
        (Status::Completed | Status::Failed, _) => MismatchState::Final,
        (Status::InProgress, Some(until)) if has_lapsed(until, skew_margin, now) => {
            MismatchState::Abandoned { attempt }
        }
        (Status::InProgress, lease_until) => MismatchState::InProgress { lease_until, attempt },
    }
}

/// Returns whether the lease and the margin have both passed at `now`.
pub(in crate::store) fn has_lapsed(lease_until: Timestamp, skew_margin: Duration, now: Timestamp) -> bool {
    lease_until < now.before(skew_margin)
}

/// Returns whether the record counts as absent at `now`.
pub(crate) fn is_expired(record: &Record, now: Timestamp) -> bool {
    record.expiration.is_some_and(|expiration| expiration <= now.seconds_rounded_down())
}

/// Returns whether a settle made at `now` may change the record, that is, whether it is in progress under the request's
/// owner.
///
/// * A release that deletes the record also requires that the record shows no earlier claim. Otherwise a late copy of
///   it could arrive after a late copy of its claim has taken over from another, and erase the fact that an outcome was
///   lost.
/// * A renewal also requires that the lease and the margin have not passed, because it would revive a claim whose
///   holder has stopped.
pub(crate) fn may_settle(request: &SettleRequest, record: &Record, now: Timestamp) -> bool {
    let is_allowed = match request.settlement {
        Settlement::Release => record.prior_status != Some(Status::InProgress),
        Settlement::Renew { skew_margin, .. } => record.lease_until >= Some(now.before(skew_margin)),
        _ => true,
    };
    is_allowed && record.status == Status::InProgress && record.owner == Some(request.owner)
}

/// Returns whether a settle whose condition failed had been applied before, so that the record shows the request's
/// owner and the wanted state. A release wants anything but INPROGRESS under its own token.
fn is_settled(request: &SettleRequest, current: Option<&Record>) -> bool {
    let mine = |status| current.is_some_and(|record| record.owner == Some(request.owner) && record.status == status);
    match request.settlement {
        Settlement::Record { outcome, .. } => mine(outcome.into()),
        Settlement::Release | Settlement::HandBack => !mine(Status::InProgress),
        Settlement::Renew { .. } => false,
    }
}

/// Explains a settle whose condition failed, based on the record that was found instead: it had been applied before, or
/// the lease is lost.
///
/// A record that cannot be read ([`ErrorKind::Format`]) is not this owner's, because a newer deployment has claimed the
/// key. So a completion, a failure or a renewal has lost its lease, and a release or a hand-back has nothing left to do.
/// Pass no other error of this kind, such as that of a [`Mark`](crate::order::Mark): it would end a claim that still
/// stands.
///
/// # Errors
///
/// The other errors of `found`.
pub fn explain_settle(request: &SettleRequest, found: Result<Option<Record>, Error>) -> Result<Settled, Error> {
    let current = match found {
        Err(error) if error.kind() == ErrorKind::Format => None,
        found => found?,
    };
    if is_settled(request, current.as_ref()) {
        return Ok(Settled::Done { found: current.map(Box::new) });
    }
    Ok(Settled::LeaseLost { current: current.map(Box::new) })
}

/// Returns the expiration, in seconds, of a record that is claimed or renewed at `now`: after `retention`, but never
/// before the lease and the margin have passed.
pub(crate) fn in_progress_expiration(
    now: Timestamp,
    lease_until: Timestamp,
    skew_margin: Duration,
    retention: Duration,
) -> u64 {
    now.after(retention).max(lapses(lease_until, skew_margin)).seconds_rounded_up()
}

/// Returns the time at which a lease is over for others: the first millisecond after the lease and the clock margin.
pub(crate) fn lapses(lease_until: Timestamp, skew_margin: Duration) -> Timestamp {
    lease_until.after(skew_margin).after(Duration::from_millis(1))
}

/// # Errors
///
/// [`ErrorKind::Format`], temporary, for a record of a format beyond [`NEWEST_KNOWN_VERSION`].
pub(crate) fn check_version(record: &Record, operation: &'static str) -> Result<(), Error> {
    known_version("record", record.version, operation)
}

/// # Errors
///
/// The errors of [`check_version`].
pub(crate) fn known_version(what: &'static str, version: u32, operation: &'static str) -> Result<(), Error> {
    if version <= NEWEST_KNOWN_VERSION {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Format,
        ErrorStatus::Temporary,
        operation,
        format!(
            "the {what} has format version {version}, this library knows versions up to {NEWEST_KNOWN_VERSION}; finish the deployment"
        ),
    ))
}
