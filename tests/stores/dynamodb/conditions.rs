//! The conditions under which records are written, one attribute at a time: each write replaces only the record that it
//! was based on, and asks for nothing else.

use std::time::Duration;

use lambda_once::{
    DynamoDbStore, Error, ErrorKind, Store,
    clock::ManualClock,
    order::Sequence,
    record::{Fingerprint, KeyHash, Record, Status, StoredResult},
    store::{
        ClaimRequest, Claimed, FinalStatus, ResultData, Settled, Settlement, Takeover,
        amend::{Amend, AmendRequest, Amended, Amendment},
        dynamodb::{Calls, Config},
    },
};

use aws_sdk_dynamodb::types::AttributeValue;
use tokio::join;

use super::{Item, World, in_both_shapes, item, number, owner, seconds, support, text};
use crate::support::{
    FUTURE,
    requests::{
        HAND_BACK, LEASE, MARGIN, RENEW, RETENTION, claim, claim_one, complete, granted, json, rival, settle_one,
    },
};

/// The latest end of a lease that has lapsed at [`FUTURE`], and the earliest that has not.
fn lapsed() -> AttributeValue {
    number(FUTURE.before(MARGIN).as_millis() - 1)
}

fn not_lapsed() -> AttributeValue {
    number(FUTURE.before(MARGIN).as_millis())
}

impl World {
    /// Returns the only item of the table.
    pub(super) async fn only_item(&self) -> Option<Item> {
        let items =
            self.direct.scan().table_name(&self.table).consistent_read(true).send().await.unwrap().items.unwrap();
        assert!(items.len() < 2, "{items:?}");
        items.into_iter().next()
    }

    pub(super) async fn put_item(&self, item: Item) {
        self.direct.put_item().table_name(&self.table).set_item(Some(item)).send().await.unwrap();
    }

    /// Sets attributes of the only item, or removes those without a value.
    async fn change(&self, changes: &[(&str, Option<AttributeValue>)]) {
        let mut item = self.only_item().await.expect("an item");
        for (name, value) in changes {
            match value {
                Some(value) => drop(item.insert((*name).to_owned(), value.clone())),
                None => drop(item.remove(*name)),
            }
        }
        self.put_item(item).await;
    }

    async fn delete_item(&self) {
        if let Some(item) = self.only_item().await {
            let delete = self.direct.delete_item().table_name(&self.table).key("id", item["id"].clone());
            delete.send().await.unwrap();
        }
    }
}

/// Claims in batches create, read and replace a record. It changes between the last two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batched_claim_replaces_only_the_record_that_it_has_read() {
    let world = World::of(Calls::Batched).await;
    let store = world.store(Calls::Batched, &ManualClock::at(FUTURE)).await;
    let lease = |value| ("in_progress_expiration", Some(value));
    let completed = || ("status", Some(text("COMPLETED")));
    let attempt = |attempt| ("attempt", Some(number(attempt)));
    let other = || ("validation", Some(text(&Fingerprint::from_bytes([9; 32]).to_text())));
    let live = || lease(number(FUTURE.after(LEASE).as_millis()));
    let bare = [lease(lapsed()), ("attempt", None), ("v", None), ("validation", None)];
    let (refused, unreadable) = (true, false);
    for (found, takeover, changes) in [
        (
            &[lease(lapsed())][..],
            Takeover::Allowed,
            vec![
                (completed(), refused),
                (attempt(2), refused),
                (("attempt", None), refused),
                (live(), refused),
                (lease(not_lapsed()), refused),
                (("v", Some(number(2))), refused),
                (("v", Some(number(3))), unreadable),
                (("v", None), refused),
                (other(), refused),
                (("validation", None), refused),
            ],
        ),
        (
            &[lease(lapsed()), ("validation", None)],
            Takeover::Allowed,
            vec![(completed(), refused), (attempt(2), refused), (("v", None), refused), (other(), refused)],
        ),
        (
            &bare,
            Takeover::Allowed,
            vec![
                (completed(), refused),
                (attempt(1), refused),
                (live(), refused),
                (lease(not_lapsed()), refused),
                (("v", Some(number(1))), refused),
                (other(), refused),
            ],
        ),
        (
            &[lease(lapsed()), ("released", Some(number(1)))],
            Takeover::Refused,
            vec![
                (completed(), refused),
                (attempt(2), refused),
                (live(), refused),
                (("released", None), refused),
                (("released", Some(number(2))), refused),
                (("v", Some(number(2))), refused),
            ],
        ),
        (
            &[completed(), ("expiration", Some(seconds(0)))],
            Takeover::Allowed,
            vec![
                (("status", Some(text("FAILED"))), refused),
                (attempt(2), refused),
                (("expiration", Some(seconds(1))), refused),
            ],
        ),
        (
            &[completed(), ("expiration", Some(seconds(0))), ("attempt", None)],
            Takeover::Allowed,
            vec![(attempt(1), refused), (("expiration", Some(seconds(1))), refused)],
        ),
    ] {
        for (change, expected) in changes {
            world.delete_item().await;
            let first = claim();
            granted(&store, &first).await;
            world.change(found).await;
            let before = world.requests().len();
            let mut held = world.proxy.on_command("BatchExecuteStatement").nth(3).hold();
            let claim = ClaimRequest { takeover, ..rival(&first) };
            let (claimed, changed) = join!(claim_one(&store, &claim), async {
                held.arrived().await;
                world.change(std::slice::from_ref(&change)).await;
                let changed = world.only_item().await;
                held.release();
                changed
            });
            match (claimed, expected) {
                (Ok(Claimed::Refused(_)), true) => {}
                (Err(error), false) => assert_eq!(error.kind(), ErrorKind::Format, "{error}"),
                (claimed, _) => panic!("{change:?} of {found:?}: {claimed:?}"),
            }
            assert_eq!(world.requests().len() - before, 3, "{change:?} of {found:?}");
            assert_eq!(world.only_item().await, changed, "{change:?} of {found:?}");
        }
    }
}

/// The payload of the record changes between the last two steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batched_claim_without_a_payload_replaces_a_record_of_any() {
    let world = World::of(Calls::Batched).await;
    let store = world.store(Calls::Batched, &ManualClock::at(FUTURE)).await;
    let first = claim();
    granted(&store, &first).await;
    world.change(&[("in_progress_expiration", Some(lapsed()))]).await;
    let mut held = world.proxy.on_command("BatchExecuteStatement").nth(3).hold();
    let claim = ClaimRequest { fingerprint: None, ..rival(&first) };
    let (claimed, ()) = join!(claim_one(&store, &claim), async {
        held.arrived().await;
        world.change(&[("validation", Some(text(&Fingerprint::from_bytes([9; 32]).to_text())))]).await;
        held.release();
    });
    assert!(matches!(claimed, Ok(Claimed::Granted(_))), "{claimed:?}");
}

/// No attribute of the earlier operation remains.
async fn a_claim_over_an_expired_record_has_exactly_the_attributes_of_a_new_one(calls: Calls) {
    let world = World::of(calls).await;
    let store = world.store(calls, &ManualClock::at(FUTURE)).await;
    let first = ClaimRequest { fingerprint: None, ..claim() };
    granted(&store, &first).await;
    let fresh = world.only_item().await.unwrap();
    world
        .change(&[
            ("status", Some(text("COMPLETED"))),
            ("expiration", Some(seconds(0))),
            ("data", Some(text("7"))),
            ("result_dropped", Some(AttributeValue::Bool(true))),
            ("superseded", Some(AttributeValue::Bool(true))),
            ("validation", Some(text(&Fingerprint::from_bytes([9; 32]).to_text()))),
            ("label", Some(text("order 7"))),
            ("settled_at", Some(number(1))),
            ("sequence", Some(text(&Sequence::from(7_u64).to_digits()))),
            ("v", None),
            ("operation", None),
        ])
        .await;
    let next = rival(&first);
    granted(&store, &next).await;
    let mut expected = fresh;
    expected.extend(item([
        ("owner", text(&next.owner.to_hex())),
        ("attempt", number(2)),
        ("prior_status", text("COMPLETED")),
    ]));
    assert_eq!(world.only_item().await.unwrap(), expected);
}

async fn a_completion_counts_its_retention_from_its_own_time(calls: Calls) {
    let world = World::of(calls).await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(calls, &clock).await;
    let claim = claim();
    granted(&store, &claim).await;
    clock.advance(Duration::from_secs(7));
    settle_one(&store, &claim, complete("1")).await.unwrap();
    let item = world.only_item().await.unwrap();
    assert_eq!(item["expiration"], seconds(RETENTION.as_secs() + 7));
    assert_eq!(item["settled_at"], number(FUTURE.as_millis() + 7_000));
}

// Tests L5.
async fn a_renewal_raises_lease_and_expiration_and_lowers_neither(calls: Calls) {
    let world = World::of(calls).await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(calls, &clock).await;
    let claim = claim();
    let lease = |millis| number(FUTURE.as_millis() + millis);
    let renew = async || {
        let before = world.requests().len();
        let settled = settle_one(&store, &claim, RENEW).await.unwrap();
        assert!(matches!(settled, Settled::Renewed { .. }), "{settled:?}");
        let item = world.only_item().await.unwrap();
        (world.requests().len() - before, item["in_progress_expiration"].clone(), item["expiration"].clone())
    };
    granted(&store, &claim).await;
    assert_eq!(renew().await, (1, lease(30_000), seconds(3_600)), "at once");
    clock.advance(Duration::from_secs(7));
    assert_eq!(renew().await, (1, lease(37_000), seconds(3_607)), "later");
    world.change(&[("expiration", Some(seconds(100)))]).await;
    assert_eq!(renew().await, (1, lease(37_000), seconds(3_607)), "in the same millisecond");
    let (later, longer) = (lease(38_000), seconds(4_000));
    world.change(&[("in_progress_expiration", Some(later.clone()))]).await;
    assert_eq!(renew().await, (1, later, seconds(3_607)), "by a clock that is behind");
    world.change(&[("in_progress_expiration", Some(lease(37_000))), ("expiration", Some(longer.clone()))]).await;
    assert_eq!(renew().await, (1, lease(37_000), longer), "with a shorter retention");
}

// Tests S1.
async fn a_renewal_changes_only_a_claim_of_its_own_that_stands(calls: Calls) {
    let world = World::of(calls).await;
    let store = world.store(calls, &ManualClock::at(FUTURE)).await;
    for change in [("owner", Some(owner(9))), ("status", Some(text("COMPLETED")))] {
        world.delete_item().await;
        let claim = claim();
        granted(&store, &claim).await;
        world.change(std::slice::from_ref(&change)).await;
        let before = world.only_item().await;
        let settled = settle_one(&store, &claim, RENEW).await.unwrap();
        assert!(matches!(settled, Settled::LeaseLost { .. }), "{change:?}: {settled:?}");
        assert_eq!(world.only_item().await, before, "{change:?}");
    }
}

/// Nobody else may have the key before the next millisecond.
// Tests L5.
async fn a_renewal_may_come_until_the_margin_has_passed(calls: Calls) {
    let world = World::of(calls).await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(calls, &clock).await;
    for (millis, is_renewed) in [(0, true), (1, false)] {
        world.delete_item().await;
        clock.set(FUTURE);
        let claim = claim();
        granted(&store, &claim).await;
        clock.advance(LEASE + MARGIN + Duration::from_millis(millis));
        let (requests, before) = (world.requests().len(), world.only_item().await);
        match settle_one(&store, &claim, RENEW).await.unwrap() {
            Settled::Renewed { .. } if is_renewed => assert_eq!(world.requests().len() - requests, 1),
            Settled::LeaseLost { .. } if !is_renewed => assert_eq!(world.only_item().await, before),
            other => panic!("{other:?}"),
        }
    }
}

/// Powertools records may lack an expiration.
#[tokio::test]
async fn a_renewal_of_a_record_without_an_expiration_takes_one_request() {
    let world = World::of(Calls::Single).await;
    let store = world.store(Calls::Single, &ManualClock::at(FUTURE)).await;
    let claim = claim();
    granted(&store, &claim).await;
    world.change(&[("expiration", None)]).await;
    let before = world.requests().len();
    let settled = settle_one(&store, &claim, RENEW).await.unwrap();
    assert!(matches!(settled, Settled::Renewed { .. }), "{settled:?}");
    assert_eq!(world.requests().len() - before, 1);
}

/// A hand-back passes a release on. The record changes between its first write, which is refused, and the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_back_passes_on_only_the_release_that_it_has_read() {
    let world = World::of(Calls::Single).await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(Calls::Single, &clock).await;
    let with_release = async || {
        world.delete_item().await;
        let claim = claim();
        granted(&store, &claim).await;
        world.change(&[("attempt", Some(number(2))), ("released", Some(number(1)))]).await;
        claim
    };
    for change in [
        ("attempt", Some(number(3))),
        ("released", Some(number(2))),
        ("released", None),
        ("owner", Some(owner(9))),
        ("status", Some(text("COMPLETED"))),
    ] {
        let claim = with_release().await;
        let mut held = world.proxy.on_command("UpdateItem").nth(2).hold();
        let (settled, expected) = join!(settle_one(&store, &claim, HAND_BACK), async {
            held.arrived().await;
            world.change(std::slice::from_ref(&change)).await;
            let changed = world.only_item().await;
            held.release();
            changed
        });
        assert!(settled.unwrap_err().is_retryable(), "{change:?}");
        assert_eq!(world.only_item().await, expected, "{change:?}");
    }
    let claim = with_release().await;
    clock.advance(Duration::from_secs(7));
    settle_one(&store, &claim, HAND_BACK).await.unwrap();
    let item = world.only_item().await.unwrap();
    let handed_back = (item.get("owner"), &item["released"], &item["in_progress_expiration"], &item["settled_at"]);
    assert_eq!(handed_back, (None, &number(2), &number(0), &number(FUTURE.as_millis() + 7_000)));
}

/// Returns a record whose claim has lapsed and the store, both at [`FUTURE`].
async fn amendable(world: &World) -> (DynamoDbStore, KeyHash) {
    world.delete_item().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    let claim = claim();
    granted(&store, &claim).await;
    world.change(&[("in_progress_expiration", Some(lapsed()))]).await;
    (store, claim.key)
}

async fn read(store: &DynamoDbStore, key: KeyHash) -> Record {
    store.read(&[key], ResultData::Omit).await.remove(0).unwrap().expect("a record")
}

fn settle(outcome: FinalStatus) -> Amendment {
    Amendment::Settle { outcome, result: json("7"), retention: RETENTION }
}

async fn amend(store: &DynamoDbStore, request: &AmendRequest) -> Result<Amended, Error> {
    store.amend(std::slice::from_ref(request)).await.remove(0)
}

// Tests O1, O2, O3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_changes_only_the_record_that_was_read() {
    let world = World::new().await;
    let forget = Amendment::Forget { completed: true };
    let completed = || ("status", Some(text("COMPLETED")));
    let ordered = || ("sequence", Some(text(&Sequence::from(7_u64).to_digits())));
    let few = || vec![("owner", None), ("attempt", None), ("v", None), ("expiration", None)];
    for (amendment, base) in [
        (settle(FinalStatus::Completed), vec![]),
        (settle(FinalStatus::Completed), few()),
        (Amendment::Release, vec![]),
        (Amendment::Release, vec![ordered()]),
        (forget.clone(), vec![ordered()]),
        (Amendment::Redact, vec![completed()]),
        (Amendment::Redact, vec![completed(), ordered()]),
    ] {
        let prepared = async || {
            let (store, key) = amendable(&world).await;
            world.change(&base).await;
            let request = AmendRequest::new(key, &read(&store, key).await, amendment.clone());
            (store, request)
        };
        let has = |name| !base.contains(&(name, None));
        let is_in_progress = !base.contains(&completed());
        for (change, is_possible) in [
            (("status", Some(text("FAILED"))), true),
            (("owner", Some(owner(9))), true),
            (("owner", None), has("owner")),
            (("attempt", Some(number(2))), true),
            (("attempt", None), has("attempt")),
            (("sequence", Some(text(&Sequence::from(8_u64).to_digits()))), true),
            (("expiration", Some(seconds(0))), true),
            (("v", Some(number(3))), true),
            (("in_progress_expiration", Some(not_lapsed())), is_in_progress),
        ] {
            if !is_possible {
                continue;
            }
            let (store, request) = prepared().await;
            world.change(std::slice::from_ref(&change)).await;
            let before = world.only_item().await;
            match (amend(&store, &request).await, &change) {
                (Ok(Amended::Gone), ("expiration", _)) => {}
                (Err(error), ("v", _)) => assert_eq!(error.kind(), ErrorKind::Format, "{error}"),
                (Ok(Amended::Unchanged { .. }), (name, _)) if !["expiration", "v"].contains(name) => {}
                (amended, _) => panic!("{amendment:?} {change:?}: {amended:?}"),
            }
            assert_eq!(world.only_item().await, before, "{amendment:?} {change:?}");
        }
        for change in [
            ("expiration", Some(seconds(1))),
            ("expiration", None),
            // The next version can be read, so that a deployment can be rolled back.
            ("v", Some(number(2))),
            ("v", None),
            ("in_progress_expiration", Some(lapsed())),
        ] {
            let (store, request) = prepared().await;
            world.change(std::slice::from_ref(&change)).await;
            assert_eq!(amend(&store, &request).await.unwrap(), Amended::Changed, "{amendment:?} {change:?}");
        }
    }
}

// Tests O5.
#[tokio::test]
async fn a_settle_of_an_operator_is_recorded_as_of_now() {
    let world = World::new().await;
    for (outcome, result, name, value) in [
        (FinalStatus::Completed, json("7"), "data", text("7")),
        (FinalStatus::Failed, json("7"), "data", text("7")),
        (FinalStatus::Completed, StoredResult::DROPPED, "result_dropped", AttributeValue::Bool(true)),
        (FinalStatus::Completed, StoredResult::SUPERSEDED, "superseded", AttributeValue::Bool(true)),
    ] {
        let (store, key) = amendable(&world).await;
        let settle = Amendment::Settle { outcome, result, retention: RETENTION };
        let request = AmendRequest::new(key, &read(&store, key).await, settle);
        world.change(&[("expiration", Some(seconds(1)))]).await;
        assert_eq!(amend(&store, &request).await.unwrap(), Amended::Changed);
        let item = world.only_item().await.unwrap();
        assert_eq!(item["status"], text(Status::from(outcome).as_str()));
        let times = (&item["expiration"], &item["settled_at"]);
        assert_eq!(times, (&seconds(RETENTION.as_secs()), &number(FUTURE.as_millis())));
        assert_eq!((item.get("owner"), &item[name]), (None, &value));
    }
}

// Tests O6.
#[tokio::test]
async fn a_redacted_record_has_neither_result_nor_label() {
    let world = World::new().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    let claim = ClaimRequest { label: Some("order 7".into()), ..claim() };
    granted(&store, &claim).await;
    assert_eq!(world.only_item().await.unwrap()["label"], text("order 7"));
    settle_one(&store, &claim, complete("7")).await.unwrap();
    let request = AmendRequest::new(claim.key, &read(&store, claim.key).await, Amendment::Redact);
    assert_eq!(amend(&store, &request).await.unwrap(), Amended::Changed);
    let item = world.only_item().await.unwrap();
    let left = (item.get("label"), item.get("data"), item.get("result_dropped"));
    assert_eq!(left, (None, None, Some(&AttributeValue::Bool(true))));
}

/// The index for lists has the records that are in progress or failed.
async fn only_open_records_are_in_the_index_for_lists(calls: Calls) {
    let world = World::of(calls).await;
    let clock = ManualClock::at(FUTURE);
    let config = Config::new(&world.table).calls(calls).listing_index(true);
    let store = config.build(support::client(&world.url).await).unwrap().with_clock(clock.clone());
    let is_open = async || world.only_item().await.unwrap().contains_key("open");
    let first = claim();
    granted(&store, &first).await;
    assert!(is_open().await, "a claim");
    settle_one(&store, &first, complete("1")).await.unwrap();
    assert!(!is_open().await, "a completion");
    clock.advance(RETENTION + Duration::from_secs(1));
    let next = rival(&first);
    granted(&store, &next).await;
    assert!(is_open().await, "a claim over an expired completion");
    settle_one(&store, &next, Settlement::fail(json("{}"), RETENTION)).await.unwrap();
    assert!(is_open().await, "a failure");
}

in_both_shapes!(
    a_claim_over_an_expired_record_has_exactly_the_attributes_of_a_new_one,
    a_completion_counts_its_retention_from_its_own_time,
    a_renewal_changes_only_a_claim_of_its_own_that_stands,
    a_renewal_may_come_until_the_margin_has_passed,
    a_renewal_raises_lease_and_expiration_and_lowers_neither,
    only_open_records_are_in_the_index_for_lists,
);
