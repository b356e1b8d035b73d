//! Tests of single conditions. The conformance suite tests the rules as a whole.

use std::time::Duration;

use super::*;
use crate::{
    error::{ErrorKind, ErrorStatus},
    record::{KeyHash, NEWEST_KNOWN_VERSION, Owner, Status, StoredResult},
    store::{ResultData, Takeover},
};

const LEASE: Duration = Duration::from_secs(30);
const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

fn key(number: u8) -> KeyHash {
    KeyHash::from_bytes([number; 32])
}

/// Returns a mark with `listed` operations in doubt, at 10, 20 and so on, and a lapsed holder behind them.
fn mark(listed: u8) -> Mark {
    let doubt = |number| Doubt { key: Some(key(number)), sequence: (10 * u64::from(number)).into() };
    let holder = Holder {
        owner: Owner::from_bytes([0; 16]),
        key: key(listed + 1),
        sequence: (10 * u64::from(listed + 1)).into(),
        lease_until: NOW.before(LEASE),
    };
    Mark { holder: Some(holder), doubt: (1..=listed).map(doubt).collect(), expiration: u64::MAX, ..Mark::default() }
}

fn request() -> ClaimRequest {
    ClaimRequest {
        key: key(200),
        fingerprint: None,
        owner: Owner::from_bytes([1; 16]),
        lease: LEASE,
        skew_margin: Duration::from_secs(1),
        retention: LEASE,
        takeover: Takeover::Allowed,
        result_data: ResultData::Omit,
        order: Some(Order { sequence: 1_000_u64.into(), retention: LEASE }),
        operation: "ship".into(),
        label: None,
    }
}

/// Returns the completion of the [request].
fn completion() -> SettleRequest {
    let request = request();
    SettleRequest {
        key: request.key,
        owner: request.owner,
        fingerprint: None,
        settlement: Settlement::complete(StoredResult::DROPPED, LEASE),
        order: request.order,
    }
}

fn claimed_after(mark: &Mark) -> Mark {
    let request = request();
    let order = request.order.expect("an order");
    claimed(Some(mark), &request, &order, NOW.after(LEASE), NOW)
}

#[test]
fn a_mark_of_an_unknown_version_is_an_error_until_it_expires() {
    let newer = Mark { version: NEWEST_KNOWN_VERSION + 1, expiration: u64::MAX, ..Mark::default() };
    let request = request();
    let order = request.order.expect("an order");
    let error = judge(None, Some(&newer), &request, &order, NOW).expect_err("a newer mark");
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Format, true));
    let expired = Mark { expiration: 1, ..newer.clone() };
    assert_eq!(judge(None, Some(&expired), &request, &order, NOW).expect("a known mark"), Judgement::Free);
    let next = Mark { version: NEWEST_KNOWN_VERSION, ..newer.clone() };
    assert_eq!(judge(None, Some(&next), &request, &order, NOW).expect("a known mark"), Judgement::Free);

    // The record decides, so that no rule looks at the mark.
    let completed = Record::new(Status::Completed);
    let judged = judge(Some(&completed), Some(&newer), &request, &order, NOW).expect("a record that decides");
    assert_eq!(judged, Judgement::Refused(Refusal::Completed(Box::new(completed))));

    let (_, mark, _) = claim(None, None, &request, NOW).expect("a known mark");
    assert_eq!(mark.expect("a mark").version, RECORD_VERSION);
    let (record, _) = rules::claimed(None, &request, NOW);
    let error = settle(Ok(Some(record)), Some(&newer), &completion(), NOW).expect_err("a newer mark");
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Format, true));
}

// Tests G2.
#[test]
fn an_entity_is_held_through_the_last_millisecond_of_the_margin() {
    let request = request();
    let order = request.order.expect("an order");
    let held = mark(0);
    let lease_until = held.holder.expect("a holder").lease_until;
    let lapses = lease_until.after(request.skew_margin);
    let lapsed = Record { attempt: 2, lease_until: Some(Timestamp::EPOCH), ..Record::new(Status::InProgress) };
    let expired = Record { expiration: Some(0), ..lapsed.clone() };
    for (record, attempt) in [(None, 0), (Some(&lapsed), 2), (Some(&expired), 0)] {
        let judged = |now| judge(record, Some(&held), &request, &order, now).expect("a known mark");
        let in_progress = Refusal::InProgress { lease_until: Some(lease_until), attempt };
        assert_eq!(judged(lapses), Judgement::Refused(in_progress));
        assert_eq!(judged(lapses.after(Duration::from_millis(1))), Judgement::Free);
    }
}

// Tests G3.
#[test]
fn a_mark_of_an_unknown_version_stops_an_operator_until_it_expires() {
    let lapsed = Record {
        lease_until: Some(NOW.before(LEASE)),
        sequence: Some(5_u64.into()),
        ..Record::new(Status::InProgress)
    };
    let result = StoredResult::DROPPED;
    let settle = Amendment::Settle { outcome: FinalStatus::Completed, result, retention: LEASE };
    let request = AmendRequest::new(key(1), &lapsed, settle);
    let newer = Mark { version: NEWEST_KNOWN_VERSION + 1, expiration: u64::MAX, ..Mark::default() };
    let error = amend(Some(&lapsed), Some(&newer), &request, NOW).expect_err("a newer mark");
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Format, true));
    let expired = Mark { expiration: NOW.seconds_rounded_down(), ..newer };
    let (_, mark, amended) = amend(Some(&lapsed), Some(&expired), &request, NOW).expect("a known mark");
    assert_eq!((mark.expect("a mark").newest, amended), (Some(5_u64.into()), Amended::Changed));
}

// Tests S2, S3.
#[test]
fn a_settle_that_finds_an_unreadable_record_has_lost_its_lease_or_is_done() {
    let lost = Settled::LeaseLost { current: None };
    let done = Settled::Done { found: None };
    let renewal = Settlement::Renew { lease: LEASE, skew_margin: LEASE, retention: LEASE };
    for (settlement, expected) in [
        (completion().settlement, &lost),
        (Settlement::fail(StoredResult::DROPPED, LEASE), &lost),
        (renewal, &lost),
        (Settlement::Release, &done),
        (Settlement::HandBack, &done),
    ] {
        for order in [None, completion().order] {
            let request = SettleRequest { settlement: settlement.clone(), order, ..completion() };
            let failed = |kind| Err(Error::new(kind, ErrorStatus::Temporary, "read", "no record"));
            let (change, mark, settled) = settle(failed(ErrorKind::Format), None, &request, NOW).expect("an answer");
            assert_eq!((change, mark, &settled), (Change::Keep, None, expected), "{request:?}");
            let error = settle(failed(ErrorKind::Timeout), None, &request, NOW).expect_err("an error of the store");
            assert_eq!(error.kind(), ErrorKind::Timeout, "{request:?}");
        }
    }
}

/// Another version may have listed more than this one does.
#[test]
fn a_mark_lists_64_operations_in_doubt_at_most_however_many_it_had() {
    for (listed, merges) in [(62, false), (63, false), (64, true), (65, true), (66, true), (100, true)] {
        let before = mark(listed);
        assert_eq!(begins_to_merge(Some(&before), NOW), merges, "{listed}");
        let after = claimed_after(&before);
        assert_eq!(after.doubt.len(), usize::from(listed + 1).min(MAX_DOUBT), "{listed}");
        // The greatest sequence of the merged operations represents them all.
        let merged = u64::from(listed) + 2 - MAX_DOUBT.min(usize::from(listed) + 1) as u64;
        let expected = if merges { (None, merged) } else { (Some(key(1)), 1) };
        assert_eq!((after.doubt[0].key, after.doubt[0].sequence), (expected.0, (10 * expected.1).into()), "{listed}");
        assert_eq!(after.doubt.last().unwrap().sequence, (10 * u64::from(listed + 1)).into(), "{listed}");
    }
}
