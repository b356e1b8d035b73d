//! Tests of single conditions. The conformance suite tests the rules as a whole.

use std::time::Duration;

use super::*;
use crate::{
    record::{KeyHash, StoredData},
    store::{
        FinalStatus,
        amend::{AmendRequest, Amended, Amendment},
    },
};

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(1);
const A_MILLISECOND: Duration = Duration::from_millis(1);
const KEY: KeyHash = KeyHash::from_bytes([7; 32]);
const OWNER: Owner = Owner::from_bytes([1; 16]);

/// Returns a record in progress whose lease ends at this time.
fn running(lease_until: Timestamp) -> Record {
    Record { owner: Some(OWNER), attempt: 1, lease_until: Some(lease_until), ..Record::new(Status::InProgress) }
}

fn lapsed() -> Record {
    running(NOW.before(MARGIN + A_MILLISECOND))
}

fn outcome(status: Status, result: &str) -> Record {
    let result = StoredResult::of(StoredData::Json(result.to_owned()));
    Record { attempt: 1, result, ..Record::new(status) }
}

fn claim_refusing_takeover() -> ClaimRequest {
    ClaimRequest {
        key: KEY,
        fingerprint: None,
        owner: Owner::from_bytes([2; 16]),
        lease: LEASE,
        skew_margin: MARGIN,
        retention: LEASE,
        takeover: Takeover::Refused,
        result_data: ResultData::Omit,
        order: None,
        operation: "ship".into(),
        label: None,
    }
}

fn settle_of_operator(read: &Record) -> AmendRequest {
    let result = outcome(Status::Completed, "1").result;
    AmendRequest::new(KEY, read, Amendment::Settle { outcome: FinalStatus::Completed, result, retention: LEASE })
}

// Tests C7.
#[test]
fn a_release_permits_the_takeover_of_its_attempt_which_is_not_0() {
    for (attempt, released, expected) in [
        (0, Some(0), Judgement::Refused(Refusal::Abandoned { attempt: 0 })),
        (1, Some(0), Judgement::Refused(Refusal::Abandoned { attempt: 1 })),
        (1, None, Judgement::Refused(Refusal::Abandoned { attempt: 1 })),
        (1, Some(1), Judgement::Free),
    ] {
        let record = Record { attempt, released, ..lapsed() };
        assert_eq!(judge(&record, &claim_refusing_takeover(), NOW).unwrap(), expected, "{record:?}");
    }
}

// Tests L5.
#[test]
fn a_renewal_applies_through_the_last_millisecond_of_the_margin() {
    let settlement = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: LEASE };
    let renewal = SettleRequest { key: KEY, owner: OWNER, fingerprint: None, settlement, order: None };
    let (change, settled) = settle(Ok(Some(running(NOW.before(MARGIN)))), &renewal, NOW).unwrap();
    assert!(
        matches!((change, settled), (Change::Put(_), Settled::Renewed { lease_until }) if lease_until == NOW.after(LEASE))
    );
    let (change, settled) = settle(Ok(Some(lapsed())), &renewal, NOW).unwrap();
    assert_eq!((change, settled), (Change::Keep, Settled::LeaseLost { current: Some(Box::new(lapsed())) }));
}

// Tests O5.
#[test]
fn an_operators_settle_that_is_sent_again_finds_its_own_outcome() {
    let request = settle_of_operator(&lapsed());
    let mine = outcome(Status::Completed, "1");
    assert_eq!(explain_amendment(&request, Some(mine.clone()), NOW).unwrap(), Amended::Changed);
    for other in [
        outcome(Status::Failed, "1"),
        outcome(Status::Completed, "2"),
        // The claim's holder has completed it.
        Record { owner: Some(OWNER), ..mine.clone() },
        // Another claim has taken over, and completed it.
        Record { attempt: 2, ..mine },
    ] {
        let unchanged = Amended::Unchanged { current: Box::new(other.clone()) };
        assert_eq!(explain_amendment(&request, Some(other), NOW).unwrap(), unchanged);
    }
}

// Tests O3.
#[test]
fn a_claim_without_a_lease_can_only_be_forgotten() {
    let record = Record { lease_until: None, ..lapsed() };
    let forget = AmendRequest::new(KEY, &record, Amendment::Forget { completed: false });
    assert_eq!(amend(Some(&record), &forget, NOW).unwrap(), (Change::Delete, Amended::Changed));
    let unchanged = Amended::Unchanged { current: Box::new(record.clone()) };
    for request in [settle_of_operator(&record), AmendRequest::new(KEY, &record, Amendment::Release)] {
        assert_eq!(amend(Some(&record), &request, NOW).unwrap(), (Change::Keep, unchanged.clone()), "{request:?}");
    }
}

// Tests O7.
#[test]
fn an_outcome_is_not_released() {
    for status in [Status::Completed, Status::Failed] {
        let record = outcome(status, "1");
        let error = amend(Some(&record), &AmendRequest::new(KEY, &record, Amendment::Release), NOW).unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Request, false), "{status:?}");
    }
}

#[cfg(not(feature = "order"))]
#[test]
fn without_the_feature_an_ordered_operation_is_not_settled() {
    let ordered = Record { sequence: Some(5_u64.into()), ..lapsed() };
    let error = check_amendment(&settle_of_operator(&ordered)).unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Order, ErrorStatus::Permanent));
    assert!(check_amendment(&AmendRequest::new(KEY, &ordered, Amendment::Release)).is_ok());
}

#[cfg(feature = "order")]
#[test]
fn rules_without_an_order_refuse_ordered_requests() {
    let order = Some(Order { sequence: 5_u64.into(), retention: LEASE });
    let claims = ClaimRequest { order, ..claim_refusing_takeover() };
    let settlement = Settlement::Release;
    let settles = SettleRequest { key: KEY, owner: OWNER, fingerprint: None, settlement, order };
    let ordered = Record { sequence: Some(5_u64.into()), ..lapsed() };
    for error in [
        claim(None, &claims, NOW).unwrap_err(),
        settle(Ok(None), &settles, NOW).unwrap_err(),
        amend(Some(&ordered), &settle_of_operator(&ordered), NOW).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false));
    }
}
