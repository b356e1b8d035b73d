//! The rules for ordered operations, which every store applies.
//!
//! ```
//! use lambda_once::{
//!     Error,
//!     clock::Timestamp,
//!     order::Mark,
//!     record::Record,
//!     store::{ClaimRequest, Claimed, ordering, rules::Change},
//! };
//!
//! /// A claim, for a database that writes a record and a mark in one transaction, if both are still the same.
//! fn claim(found: (Option<&Record>, Option<&Mark>), request: &ClaimRequest, now: Timestamp) -> Result<Option<Claimed>, Error> {
//!     let (change, mark, claimed) = ordering::claim(found.0, found.1, request, now)?;
//!     Ok(write_both(found, change, mark).then_some(claimed)) // `None`: read again, and decide again
//! }
//! # fn write_both(found: (Option<&Record>, Option<&Mark>), change: Change, mark: Option<Mark>) -> bool { true }
//! ```
//!
//! The rules of a mark come after the rules of the [record](super::rules), so a completed operation is replayed even if
//! a newer one exists. Each claim and settle of an ordered operation writes both the record and the mark, or neither.
//!
//! * **G1** A claim at or below the newest completed sequence is superseded and never runs, even if it could take over:
//!   its second run must not overwrite newer data.
//! * **G2** One claim at a time works on an entity. A handler writes between its claim and its completion, and the mark
//!   cannot order the writes of two handlers. A lease that ends without a settle leaves doubt, because its operation
//!   may have taken effect. Operations older than one in doubt wait until that one completes or fails permanently,
//!   until one with its sequence or a greater one completes, or until an operator [resolves](resolve) the doubt. A
//!   permanent failure is the handler's assertion that the operation had no effect. No release ends doubt, because the
//!   record may be gone and its claim without a trace of the lost run. A mark lists up to [`MAX_DOUBT`] operations in
//!   doubt. If another entry is to be added, the two lowest become one entry, which represents all operations up to the
//!   greater sequence. Only a completion at or above that sequence ends it, or an operator.
//! * **G3** A completion raises the newest sequence and never lowers it. A settle frees the entity only if its own claim holds it.
//! * **G4** A mark is kept as long as its newest outcome is replayed. After that it counts as absent.
//!
//! # Writing a store that keeps an order
//!
//! Its [`limits`](super::Store::limits) report the support. It reads the record of each request and the mark of the
//! request's [`Entity`](crate::order::Entity), decides by [`claim`], [`settle`] and [`amend`], and writes the two in
//! one atomic step, if neither has changed since. Requests without an order leave the mark unchanged, so these
//! functions decide them as well. [`resolve`] decides for
//! [`Amend::resolve`](super::amend::Amend::resolve), which writes the mark alone.
//!
//! A [`Mark`] is stored field by field, `version` as `v`. A write removes each of these fields that the new mark lacks,
//! such as `newest`, an empty `doubt` or a `holder`, and leaves fields that only a newer version knows.

use super::{
    ClaimRequest, Claimed, FinalStatus, Grant, Refusal, SettleRequest, Settled, Settlement,
    amend::{AmendRequest, Amended, Amendment},
    rules::{self, Change, Judgement},
};
use crate::{
    clock::Timestamp,
    error::Error,
    order::{Doubt, Holder, Mark, Order},
    record::{KeyHash, Owner, RECORD_VERSION, Record},
};

mod resolving;
#[cfg(all(test, feature = "order"))]
mod tests;

#[cfg(any(feature = "dynamodb", feature = "postgres", feature = "redis"))]
pub(crate) use resolving::check_resolution;
pub use resolving::resolve;

/// The maximum number of entries of a mark for operations in doubt.
pub const MAX_DOUBT: usize = 64;

/// Decides a claim made at `now`, based on the record of its key and the mark of its entity, if they exist. Returns the
/// changes to both, and the result. Without a mark to write, the mark stays unchanged. The result holds only if the
/// changes are applied to that very record and mark.
///
/// # Errors
///
/// The errors of [`rules::judge`].
pub fn claim(
    record: Option<&Record>,
    mark: Option<&Mark>,
    request: &ClaimRequest,
    now: Timestamp,
) -> Result<(Change, Option<Mark>, Claimed), Error> {
    let Some(order) = request.order() else {
        let (change, answer) = rules::claim(record, request, now)?;
        return Ok((change, None, answer));
    };
    Ok(match judge(record, mark, request, order, now)? {
        Judgement::Free => {
            let (record, mut grant) = rules::claimed(record, request, now);
            grant.has_merged_doubt = begins_to_merge(mark, now);
            let mark = claimed(mark, request, order, grant.lease_until, now);
            (Change::Put(Box::new(record)), Some(mark), Claimed::Granted(grant))
        }
        Judgement::Mine(grant) => (Change::Keep, None, Claimed::Granted(grant)),
        Judgement::Refused(refusal) => (Change::Keep, None, Claimed::Refused(refusal)),
    })
}

/// Decides a settle made at `now`, as [`claim`] decides a claim. A record that cannot be read is passed as its error
/// ([`rules::settle`]).
///
/// # Errors
///
/// * The errors of [`rules::explain_settle`].
/// * [`ErrorKind::Format`](crate::ErrorKind::Format), temporary, for a mark of a format beyond
///   [`NEWEST_KNOWN_VERSION`](crate::record::NEWEST_KNOWN_VERSION), if the settle would change it.
pub fn settle(
    found: Result<Option<Record>, Error>,
    mark: Option<&Mark>,
    request: &SettleRequest,
    now: Timestamp,
) -> Result<(Change, Option<Mark>, Settled), Error> {
    let Some(order) = request.order() else {
        let (change, answer) = rules::settle(found, request, now)?;
        return Ok((change, None, answer));
    };
    let record = match found {
        Ok(Some(record)) if rules::may_settle(request, &record, now) && may_settle(mark, request, now) => record,
        found => return Ok((Change::Keep, None, rules::explain_settle(request, found)?)),
    };
    if let Some(mark) = mark.filter(|mark| !is_expired(mark, now)) {
        check_version(mark, request.settlement.as_str())?;
    }
    let (change, answer) = rules::settle(Ok(Some(record)), &SettleRequest { order: None, ..request.clone() }, now)?;
    Ok((change, settled(mark, request, order, now), answer))
}

/// Decides an amendment made at `now`, as [`claim`] decides a claim. The settle of an ordered operation changes the mark as a settle
/// of its holder does (G3). No other amendment changes a mark.
///
/// # Errors
///
/// * The errors of [`rules::amend`], except the one for an order.
/// * [`ErrorKind::Format`](crate::ErrorKind::Format), temporary, for a mark of a newer format.
pub fn amend(
    record: Option<&Record>,
    mark: Option<&Mark>,
    request: &AmendRequest,
    now: Timestamp,
) -> Result<(Change, Option<Mark>, Amended), Error> {
    let (change, answer) = rules::amend_record(record, request, now)?;
    let mark = match change {
        Change::Keep => None,
        Change::Put(_) | Change::Delete => amended(mark, request, now)?,
    };
    Ok((change, mark, answer))
}

/// # Errors
///
/// [`ErrorKind::Format`](crate::ErrorKind::Format), temporary, for a mark of a format beyond
/// [`NEWEST_KNOWN_VERSION`](crate::record::NEWEST_KNOWN_VERSION).
pub(crate) fn check_version(mark: &Mark, operation: &'static str) -> Result<(), Error> {
    known_version(mark.version, operation)
}

/// # Errors
///
/// The errors of [`check_version`].
pub(crate) fn known_version(version: u32, operation: &'static str) -> Result<(), Error> {
    rules::known_version("mark of the operation's entity", version, operation)
}

/// Returns whether the mark counts as absent at `now`.
pub(crate) fn is_expired(mark: &Mark, now: Timestamp) -> bool {
    mark.expiration <= now.seconds_rounded_down()
}

/// Judges an ordered claim made at `now` against the record and the mark that exist. The rules of the record come first
/// ([`rules::judge`]). If they let the claim pass, the first of these conditions that holds decides:
///
/// * **G4** The mark's expiration has passed: it counts as absent.
/// * **G1** Its newest sequence is the claim's or greater: superseded, even if the record would be abandoned.
/// * **G2** Another claim holds the entity, and its lease or the skew margin has not passed: in progress. An operation
///   in doubt, or one whose holder's lease has passed, has a greater sequence: in progress, without a lease.
///
/// # Errors
///
/// The errors of [`rules::judge`], also for a mark that decides.
pub fn judge(
    record: Option<&Record>,
    mark: Option<&Mark>,
    request: &ClaimRequest,
    order: &Order,
    now: Timestamp,
) -> Result<Judgement, Error> {
    let judgement = record.map_or(Ok(Judgement::Free), |record| rules::judge(record, request, now))?;
    let Some(mark) = mark.filter(|mark| !is_expired(mark, now)) else { return Ok(judgement) };
    if matches!(judgement, Judgement::Free | Judgement::Refused(Refusal::Abandoned { .. })) {
        check_version(mark, "claim")?;
    }
    let attempt = record.filter(|record| !rules::is_expired(record, now)).map_or(0, |record| record.attempt);
    let refusal = match judgement {
        Judgement::Free => superseded(mark, order).or_else(|| busy(mark, request, order, attempt, now)),
        Judgement::Refused(Refusal::Abandoned { .. }) => superseded(mark, order),
        // The first response to this claim, which was lost, may have reported the merge.
        Judgement::Mine(grant) => {
            return Ok(Judgement::Mine(Grant { has_merged_doubt: has_merged(mark), ..grant }));
        }
        Judgement::Refused(_) => None,
    };
    Ok(refusal.map_or(judgement, Judgement::Refused))
}

/// Judges a claim like [`judge`], with a mark that may be unreadable.
///
/// # Errors
///
/// The errors of [`judge`]. The error of the mark, if the mark decides.
#[cfg(any(feature = "dynamodb", feature = "postgres", feature = "redis"))]
pub(crate) fn judge_found(
    record: Option<&Record>,
    mark: &Result<Option<Mark>, Error>,
    request: &ClaimRequest,
    order: &Order,
    now: Timestamp,
) -> Result<Judgement, Error> {
    let error = match mark {
        Ok(mark) => return judge(record, mark.as_ref(), request, order, now),
        Err(error) => error,
    };
    match judge(record, None, request, order, now)? {
        Judgement::Free | Judgement::Refused(Refusal::Abandoned { .. }) => Err(error.without_source()),
        judgement => Ok(judgement),
    }
}

fn superseded(mark: &Mark, order: &Order) -> Option<Refusal> {
    mark.newest.filter(|newest| *newest >= order.sequence).map(|newest| Refusal::Superseded { newest })
}

/// Returns the refusal of a claim that must wait for the entity's holder or for a newer operation in doubt (G2).
fn busy(mark: &Mark, request: &ClaimRequest, order: &Order, attempt: u64, now: Timestamp) -> Option<Refusal> {
    let in_progress = |lease_until| Refusal::InProgress { lease_until, attempt };
    let is_older = |sequence| order.sequence < sequence;
    if let Some(holder) = &mark.holder {
        let is_other = holder.owner != request.owner;
        if is_other && holder.lease_until >= now.before(request.skew_margin) {
            return Some(in_progress(Some(holder.lease_until)));
        }
        if is_older(holder.sequence) {
            return Some(in_progress(None));
        }
    }
    mark.doubt.iter().any(|doubt| is_older(doubt.sequence)).then(|| in_progress(None))
}

/// Returns whether a claim that is granted at `now` merges operations in doubt while the mark contains no merged entry
/// yet.
pub(crate) fn begins_to_merge(mark: Option<&Mark>, now: Timestamp) -> bool {
    mark.filter(|mark| mark.doubt.len() >= MAX_DOUBT && !is_expired(mark, now))
        .is_some_and(|mark| !has_merged(mark) && mark.holder.is_some_and(|lapsed| adds_doubt(mark, &lapsed)))
}

/// Returns whether the mark has an entry for several operations in doubt.
fn has_merged(mark: &Mark) -> bool {
    mark.doubt.iter().any(|doubt| doubt.key.is_none())
}

/// Returns the mark after a claim made at `now` was granted until `lease_until`.
pub(crate) fn claimed(
    mark: Option<&Mark>,
    request: &ClaimRequest,
    order: &Order,
    lease_until: Timestamp,
    now: Timestamp,
) -> Mark {
    let mut mark = mark.filter(|mark| !is_expired(mark, now)).cloned().unwrap_or_default();
    mark.version = RECORD_VERSION;
    // It was not settled, so it may have taken effect. The same applies to a takeover of the same key, because it may
    // be handed back.
    if let Some(lapsed) = mark.holder.take() {
        let key = Some(lapsed.key);
        if let Some(listed) = mark.doubt.iter_mut().find(|doubt| doubt.key == key) {
            listed.sequence = listed.sequence.max(lapsed.sequence);
        } else if adds_doubt(&mark, &lapsed) {
            // Runs once, unless another version has listed more.
            while mark.doubt.len() >= MAX_DOUBT {
                merge_lowest(&mut mark.doubt);
            }
            mark.doubt.push(Doubt { key, sequence: lapsed.sequence });
        }
    }
    mark.holder = Some(Holder { owner: request.owner, key: request.key, sequence: order.sequence, lease_until });
    let expiration = rules::in_progress_expiration(now, lease_until, request.skew_margin, order.retention);
    mark.expiration = mark.expiration.max(expiration);
    mark
}

/// Returns whether the end of this holder's lease leaves doubt that the mark does not contain yet.
fn adds_doubt(mark: &Mark, lapsed: &Holder) -> bool {
    Some(lapsed.sequence) > mark.newest && !mark.doubt.iter().any(|doubt| doubt.key == Some(lapsed.key))
}

/// Merges the two lowest entries, the first ones if several are equal.
fn merge_lowest(doubt: &mut Vec<Doubt>) {
    let mut take = || {
        let (place, _) = doubt.iter().enumerate().min_by_key(|(_, doubt)| doubt.sequence)?;
        Some(doubt.remove(place).sequence)
    };
    take();
    if let Some(sequence) = take() {
        doubt.insert(0, Doubt { key: None, sequence });
    }
}

/// Returns whether the mark allows a settle that the record allows. A renewal also requires that its claim holds the
/// entity.
pub(crate) fn may_settle(mark: Option<&Mark>, request: &SettleRequest, now: Timestamp) -> bool {
    !matches!(request.settlement, Settlement::Renew { .. }) || is_held(mark, request, now)
}

/// Returns whether the mark allows the outcome to be committed together with the handler's writes, that is, whether the
/// claim holds the entity, and nothing newer was completed. A [`Transactional`](super::transaction::Transactional) store
/// that keeps an order checks it in [`commit`](super::transaction::Transactional::commit), besides the record. If it is
/// false, the lease is lost.
pub fn may_commit(mark: Option<&Mark>, request: &SettleRequest, order: &Order, now: Timestamp) -> bool {
    is_held(mark, request, now) && mark.is_some_and(|mark| superseded(mark, order).is_none())
}

fn is_held(mark: Option<&Mark>, request: &SettleRequest, now: Timestamp) -> bool {
    let mark = mark.filter(|mark| !is_expired(mark, now));
    mark.and_then(|mark| mark.holder).is_some_and(|holder| holder.owner == request.owner)
}

/// Returns the mark after a settle made at `now` was applied to its record, or `None` if there is nothing to write.
pub(crate) fn settled(mark: Option<&Mark>, request: &SettleRequest, order: &Order, now: Timestamp) -> Option<Mark> {
    let owner = Some(request.owner);
    match request.settlement {
        Settlement::Record { outcome, .. } => ended(mark, &request.key, owner, Some(outcome), order, now),
        Settlement::Release | Settlement::HandBack => ended(mark, &request.key, owner, None, order, now),
        Settlement::Renew { lease, skew_margin, .. } => {
            let mut mark = mark.filter(|mark| !is_expired(mark, now)).cloned()?;
            let holder = mark.holder.as_mut().filter(|holder| holder.owner == request.owner)?;
            holder.lease_until = holder.lease_until.max(now.after(lease));
            let until = now.after(order.retention).max(rules::lapses(holder.lease_until, skew_margin));
            mark.expiration = mark.expiration.max(until.seconds_rounded_up());
            Some(mark)
        }
    }
}

/// Returns the mark after an amendment made at `now` was applied to its record, or `None` if there is nothing to write.
///
/// # Errors
///
/// The errors of [`check_version`].
pub(crate) fn amended(mark: Option<&Mark>, request: &AmendRequest, now: Timestamp) -> Result<Option<Mark>, Error> {
    let (Some(order), Amendment::Settle { outcome, .. }) = (request.order(), &request.amendment) else {
        return Ok(None);
    };
    if let Some(mark) = mark.filter(|mark| !is_expired(mark, now)) {
        check_version(mark, "amend")?;
    }
    Ok(ended(mark, &request.key, request.read.owner, Some(*outcome), &order, now))
}

/// Returns the mark after the claim of `owner` has ended with this outcome, or was released without one (G2, G3). Returns
/// `None` if there is nothing to write.
fn ended(
    mark: Option<&Mark>,
    key: &KeyHash,
    owner: Option<Owner>,
    outcome: Option<FinalStatus>,
    order: &Order,
    now: Timestamp,
) -> Option<Mark> {
    let live = mark.filter(|mark| !is_expired(mark, now)).cloned();
    let mut mark = match outcome {
        Some(FinalStatus::Completed) => live.unwrap_or_default(),
        Some(FinalStatus::Failed) | None => live?,
    };
    match outcome {
        Some(FinalStatus::Completed) => {
            mark.newest = mark.newest.max(Some(order.sequence));
            mark.doubt.retain(|doubt| doubt.sequence > order.sequence);
        }
        Some(FinalStatus::Failed) => mark.doubt.retain(|doubt| doubt.key != Some(*key)),
        None => {}
    }
    mark.holder = mark.holder.filter(|holder| Some(holder.owner) != owner);
    mark.expiration = mark.expiration.max(now.after(order.retention).seconds_rounded_up());
    Some(mark)
}
