//! The rules for amendments (O1–O7).

use super::{Change, check_version, has_lapsed, is_expired, refuse_order};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    record::{Record, Status, StoredResult},
    store::amend::{AmendRequest, Amended, Amendment, AsRead},
};

const AMEND: &str = "amend";

/// Applies an amendment to the record that exists at `now`, and returns the change and the result. The result holds
/// only if the change is applied to that very record. A store that supports orders uses
/// [`ordering::amend`](crate::store::ordering::amend).
///
/// * **O1** The record is the one that was read: its status, owner, attempt and sequence are the same. Otherwise it is
///   left unchanged.
/// * **O2** A record that has expired counts as absent. No amendment creates a record.
/// * **O3** An INPROGRESS record has lapsed: its lease and the skew margin have passed. A live claim is never amended.
///   A record without a lease, which another library has written, can only be forgotten.
/// * **O4** [`Forget`](Amendment::Forget) deletes an INPROGRESS or FAILED record, and a COMPLETED one if the request
///   includes those.
/// * **O5** [`Settle`](Amendment::Settle) gives an INPROGRESS record its outcome and removes the owner, whose own
///   settle is refused from then on (S3). A settle that is sent again finds that outcome and is a success. The mark of
///   an ordered operation changes in the same step (G3).
/// * **O6** [`Redact`](Amendment::Redact) removes the result and the label of a COMPLETED or FAILED record.
/// * **O7** [`Release`](Amendment::Release) marks the attempt of an INPROGRESS record as released (C7).
///
/// # Errors
///
/// * The errors of [`check_amendment`].
/// * [`ErrorKind::Config`], permanent, for the settle of an ordered operation, because these rules do not support
///   orders.
/// * [`ErrorKind::Format`], temporary, for a record of a newer format.
pub fn amend(record: Option<&Record>, request: &AmendRequest, now: Timestamp) -> Result<(Change, Amended), Error> {
    refuse_order(request.order().as_ref())?;
    amend_record(record, request, now)
}

/// Applies [`amend`] for a store that also writes the mark of an ordered operation.
pub(in crate::store) fn amend_record(
    record: Option<&Record>,
    request: &AmendRequest,
    now: Timestamp,
) -> Result<(Change, Amended), Error> {
    check_amendment(request)?;
    let Some(record) = record.filter(|record| !is_expired(record, now)) else {
        return Ok((Change::Keep, Amended::Gone));
    };
    if !may_amend(record, request, now)? {
        return Ok((Change::Keep, explain_amendment(request, Some(record.clone()), now)?));
    }
    let mut amended = record.clone();
    match &request.amendment {
        Amendment::Forget { .. } => return Ok((Change::Delete, Amended::Changed)),
        Amendment::Settle { outcome, result, retention } => {
            amended.status = (*outcome).into();
            amended.owner = None;
            amended.result = result.clone();
            amended.expiration = Some(now.after(*retention).seconds_rounded_up());
            amended.settled_at = Some(now);
        }
        Amendment::Release => amended.released = Some(record.attempt),
        Amendment::Redact => {
            let superseded = amended.result.superseded;
            amended.result = StoredResult { data: None, dropped: !superseded, superseded };
            amended.label = None;
        }
    }
    Ok((Change::Put(Box::new(amended)), Amended::Changed))
}

/// Explains why the condition of an amendment failed, based on the record that was found.
///
/// # Errors
///
/// The errors of [`amend`].
pub fn explain_amendment(request: &AmendRequest, found: Option<Record>, now: Timestamp) -> Result<Amended, Error> {
    let Some(current) = found.filter(|record| !is_expired(record, now)) else { return Ok(Amended::Gone) };
    may_amend(&current, request, now)?;
    // A settle that was sent again after its response was lost.
    if let Amendment::Settle { outcome, result, .. } = &request.amendment
        && current.result == *result
        && current.status == Status::from(*outcome)
        && current.owner.is_none()
        && current.attempt == request.read.attempt
    {
        return Ok(Amended::Changed);
    }
    Ok(Amended::Unchanged { current: Box::new(current) })
}

/// Checks that an amendment applies to the status that was read (O4 to O7), before anything is sent.
///
/// # Errors
///
/// * [`ErrorKind::Request`], permanent, if it does not.
/// * [`ErrorKind::Order`], permanent, for the settle of an ordered operation without the feature `order`.
pub fn check_amendment(request: &AmendRequest) -> Result<(), Error> {
    if !cfg!(feature = "order")
        && request.read.sequence.is_some()
        && matches!(request.amendment, Amendment::Settle { .. })
    {
        let message =
            "the operation is in the order of an entity, whose mark its outcome changes: enable the feature `order`";
        return Err(Error::new(ErrorKind::Order, ErrorStatus::Permanent, AMEND, message));
    }
    let why = match (&request.amendment, request.read.status) {
        (Amendment::Forget { completed: false }, Status::Completed) => {
            "a completed record is forgotten only if the request permits it: its operation could take effect again"
        }
        (Amendment::Settle { .. }, Status::Completed | Status::Failed) => {
            "the operation has an outcome already, and only a lapsed claim is settled by an operator"
        }
        (Amendment::Release, Status::Completed | Status::Failed) => {
            "the operation has an outcome, and only a lapsed claim is released"
        }
        (Amendment::Release, Status::InProgress) if request.read.attempt == 0 => {
            "the record counts no attempts, as one of another library: it can only be forgotten"
        }
        (Amendment::Redact, Status::InProgress) => {
            "a record in progress has no result to redact: settle or forget it first"
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Request, ErrorStatus::Permanent, AMEND, why))
}

/// Returns whether an amendment may change a record that has not expired (O1, O3).
///
/// # Errors
///
/// [`ErrorKind::Format`] for a newer record.
fn may_amend(record: &Record, request: &AmendRequest, now: Timestamp) -> Result<bool, Error> {
    check_version(record, AMEND)?;
    let may_change = match (record.status, record.lease_until) {
        (Status::InProgress, Some(lease_until)) => has_lapsed(lease_until, request.skew_margin, now),
        (Status::InProgress, None) => matches!(request.amendment, Amendment::Forget { .. }),
        (Status::Completed | Status::Failed, _) => true,
    };
    Ok(AsRead::of(record) == request.read && may_change)
}
