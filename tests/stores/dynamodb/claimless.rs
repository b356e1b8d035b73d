//! Transactions without a separate claim. Their commit replaces only a record over which a claim would be granted.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_once::{
    clock::{ManualClock, Timestamp},
    record::{Fingerprint, NEWEST_KNOWN_VERSION},
    store::{ClaimRequest, Claimed, Grant, Settled, Takeover, dynamodb::Config, transaction::Transactional},
};

use super::{Item, World, item, number, support::FUTURE, text};
use crate::support::requests::{MARGIN, claim, complete, rival, settle_of};

/// A claim of another library, which writes no token, version or fingerprint.
fn running(lease_until: Timestamp) -> Item {
    item([("status", text("INPROGRESS")), ("in_progress_expiration", number(lease_until.as_millis()))])
}

fn lapsed_with<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    running(Timestamp::EPOCH).into_iter().chain(item(attributes)).collect()
}

fn of_payload(fingerprint: Fingerprint) -> Item {
    lapsed_with([("validation", text(&fingerprint.to_text()))])
}

fn of_version(version: u32) -> Item {
    lapsed_with([("v", number(version.into()))])
}

fn released(attempt: u64, released: u64) -> Item {
    lapsed_with([("attempt", number(attempt)), ("released", number(released))])
}

// Tests C1, C2, C6, C7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_a_claim_replaces_only_replaceable_records() {
    let world = World::new().await;
    let store = Config::new(&world.table).build(world.direct.clone()).unwrap().with_clock(ManualClock::at(FUTURE));
    let now = FUTURE.seconds_rounded_down();
    let outcome = |status, expiration| item([("status", text(status)), ("expiration", number(expiration))]);
    let at_the_margin = || running(FUTURE.before(MARGIN));
    let past_the_margin = || running(FUTURE.before(MARGIN + Duration::from_millis(1)));
    let failed_with_a_lease = || lapsed_with([("status", text("FAILED"))]);

    let mine = claim();
    let payload = mine.fingerprint.unwrap();
    let other = Fingerprint::from_bytes([9; 32]);
    let without = ClaimRequest { fingerprint: None, ..mine.clone() };
    let refusing = ClaimRequest { takeover: Takeover::Refused, ..mine.clone() };
    let refusing_without = ClaimRequest { fingerprint: None, ..refusing.clone() };
    for (found, request, is_free) in [
        (outcome("COMPLETED", now), &mine, true),
        (outcome("COMPLETED", now + 1), &mine, false),
        (outcome("FAILED", now), &refusing, true),
        (outcome("FAILED", now + 1), &refusing, false),
        (at_the_margin(), &mine, false),
        (past_the_margin(), &mine, true),
        (at_the_margin(), &without, false),
        (past_the_margin(), &without, true),
        (failed_with_a_lease(), &mine, false),
        (failed_with_a_lease(), &without, false),
        (of_version(NEWEST_KNOWN_VERSION), &mine, true),
        (of_version(NEWEST_KNOWN_VERSION), &without, true),
        (of_version(NEWEST_KNOWN_VERSION + 1), &mine, false),
        (of_version(NEWEST_KNOWN_VERSION + 1), &without, false),
        (of_payload(payload), &mine, true),
        (of_payload(other), &mine, false),
        (of_payload(other.with_payload_version(2)), &mine, true),
        (of_payload(other), &without, true),
        (running(Timestamp::EPOCH), &refusing, false),
        (released(2, 2), &refusing, true),
        (released(2, 1), &refusing, false),
        (released(2, 2), &refusing_without, true),
        (released(2, 1), &refusing_without, false),
    ] {
        let request = ClaimRequest { key: claim().key, ..rival(request) };
        world.write(&request.key, found.clone()).await;
        let before = world.read(&request.key).await;
        let transaction = store.open();
        let granted = store.claim_within(&transaction, &request).await.unwrap();
        let lease_until = FUTURE.after(request.lease);
        let grant = Grant { lease_until, attempt: 1, prior_status: None, has_merged_doubt: false };
        assert_eq!(granted, Claimed::Granted(grant), "the commit decides");
        let settled = store.commit(&transaction, Some(&settle_of(&request, complete("1")))).await.unwrap();
        let after = world.read(&request.key).await;
        match settled {
            Settled::Done { found: None } if is_free => {
                assert_eq!((&after["status"], &after["owner"]), (&text("COMPLETED"), &text(&request.owner.to_hex())));
            }
            Settled::LeaseLost { .. } if !is_free => assert_eq!(after, before, "{found:?} {request:?}"),
            settled => panic!("{settled:?}: {found:?} {request:?}"),
        }
    }
}
