//! The conditions under which an order mark is written, one attribute at a time. The first try of a claim or a settle
//! assumes the usual state of the mark, and takes one transaction in it. In any other state it is refused, and the
//! second one replaces only the mark that the refusal has shown.

use std::time::Duration;

use lambda_once::{
    DynamoDbStore, Error, ErrorKind,
    clock::{ManualClock, Timestamp},
    order::{Entity, Sequence},
    record::Owner,
    store::{
        ClaimRequest, Claimed, FinalStatus, Refusal, Settled, Settlement,
        amend::{Amend, AmendRequest, Amended, Amendment},
        dynamodb::Calls,
        transaction::Transactional,
    },
};

use aws_sdk_dynamodb::types::AttributeValue;
use tokio::join;

use super::{Item, World, item, number, owner, seconds, text};
use crate::support::{
    FUTURE,
    requests::{
        HAND_BACK, LEASE, RELEASE, RENEW, RETENTION, claim_one, complete, entity, granted, is_granted, is_replay, json,
        ordered, read_one, rival, settle_of, settle_one,
    },
};

const SEQUENCE: u64 = 5;

fn digits(sequence: u64) -> AttributeValue {
    text(&Sequence::from(sequence).to_digits())
}

/// An operation of the same entity, as a mark names it.
fn operation(byte: u8) -> AttributeValue {
    text(&format!("{byte:02x}").repeat(16))
}

fn doubt(sequence: u64) -> AttributeValue {
    text(&format!("{} {}", Sequence::from(sequence).to_digits(), "aa".repeat(16)))
}

/// A mark without a holder, as an operation of `RETENTION` leaves it at [`FUTURE`].
fn free() -> Item {
    item([("expiration", seconds(RETENTION.as_secs())), ("v", number(1))])
}

/// A mark with every attribute, whose holder's lease has ended.
fn lapsed() -> Item {
    let holder = item([
        ("owner", owner(1)),
        ("holder", operation(1)),
        ("sequence", digits(3)),
        ("in_progress_expiration", number(Timestamp::EPOCH.as_millis())),
        ("newest", digits(1)),
        ("doubt", doubt(2)),
    ]);
    free().into_iter().chain(holder).collect()
}

impl World {
    fn mark_id(claim: &ClaimRequest) -> AttributeValue {
        text(&format!("once#{}mark", &claim.key.to_hex()[..32]))
    }

    async fn put_mark(&self, claim: &ClaimRequest, mark: Item) {
        let put = self.direct.put_item().table_name(&self.table).set_item(Some(mark));
        put.item("id", Self::mark_id(claim)).send().await.unwrap();
    }

    async fn mark_of(&self, claim: &ClaimRequest) -> Item {
        let get = self.direct.get_item().table_name(&self.table).key("id", Self::mark_id(claim)).consistent_read(true);
        let mut mark = get.send().await.unwrap().item.expect("a mark");
        mark.remove("id");
        mark
    }

    async fn change_mark(&self, claim: &ClaimRequest, changes: impl IntoIterator<Item = (&str, AttributeValue)>) {
        let changes = changes.into_iter().map(|(name, value)| (name.to_owned(), value));
        let mark = self.mark_of(claim).await.into_iter().chain(changes).collect();
        self.put_mark(claim, mark).await;
    }
}

/// Every kind of mark: with and without a holder whose lease has ended, a newest sequence, doubt and a version.
fn marks() -> [Item; 6] {
    let without = |names: &[&str]| lapsed().into_iter().filter(|(name, _)| !names.contains(&name.as_str())).collect();
    let holder = ["owner", "holder", "sequence", "in_progress_expiration"];
    [
        lapsed(),
        without(&["newest", "doubt"]),
        without(&holder),
        without(&[&holder[..], &["doubt"]].concat()),
        free(),
        without(&["v"]),
    ]
}

/// A change of each attribute.
fn changes() -> [(&'static str, AttributeValue); 8] {
    [
        ("expiration", seconds(20 * RETENTION.as_secs())),
        ("owner", owner(9)),
        ("in_progress_expiration", number(1)),
        ("newest", digits(4)),
        ("sequence", digits(4)),
        ("holder", operation(9)),
        ("doubt", doubt(1)),
        ("v", number(3)),
    ]
}

#[derive(Debug, PartialEq, Eq)]
enum ClaimResult {
    Granted,
    Superseded,
    InProgress,
    Unreadable,
}

fn result(claimed: Result<Claimed, Error>) -> ClaimResult {
    match claimed {
        Ok(Claimed::Granted(_)) => ClaimResult::Granted,
        Ok(Claimed::Refused(Refusal::Superseded { .. })) => ClaimResult::Superseded,
        Ok(Claimed::Refused(Refusal::InProgress { .. })) => ClaimResult::InProgress,
        Err(error) if error.kind() == ErrorKind::Format => ClaimResult::Unreadable,
        other => panic!("{other:?}"),
    }
}

// Tests G1, G2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_takes_one_transaction_on_a_free_entity_and_two_on_any_other() {
    let world = World::new().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    let retention = RETENTION.as_secs();
    let live = || {
        let lease = number(FUTURE.after(LEASE).as_millis());
        vec![("owner", owner(1)), ("holder", operation(1)), ("sequence", digits(3)), ("in_progress_expiration", lease)]
    };
    for (changes, expected) in [
        (None, (ClaimResult::Granted, 1)),
        (Some(vec![]), (ClaimResult::Granted, 1)),
        (Some(vec![("newest", digits(4))]), (ClaimResult::Granted, 1)),
        (Some(vec![("newest", digits(5))]), (ClaimResult::Superseded, 1)),
        (Some(vec![("newest", digits(6))]), (ClaimResult::Superseded, 1)),
        (Some(vec![("expiration", seconds(retention + 1))]), (ClaimResult::Granted, 2)),
        (Some(vec![("expiration", seconds(1))]), (ClaimResult::Granted, 1)),
        (Some(vec![("expiration", seconds(0))]), (ClaimResult::Granted, 2)),
        (Some(vec![("expiration", seconds(0)), ("newest", digits(6))]), (ClaimResult::Granted, 2)),
        // A holder without an operation cannot be read.
        (Some(vec![("owner", owner(1))]), (ClaimResult::Unreadable, 1)),
        (Some(vec![("expiration", seconds(0)), ("owner", owner(1))]), (ClaimResult::Granted, 2)),
        // The next version can be read, so that a deployment can be rolled back.
        (Some(vec![("v", number(2))]), (ClaimResult::Granted, 1)),
        (Some(vec![("v", number(3))]), (ClaimResult::Unreadable, 1)),
        (Some(vec![("doubt", doubt(4))]), (ClaimResult::Granted, 2)),
        (Some(live()), (ClaimResult::InProgress, 1)),
    ] {
        let claim = ordered(&entity(), SEQUENCE);
        if let Some(changes) = changes.clone() {
            world.put_mark(&claim, free()).await;
            world.change_mark(&claim, changes).await;
        }
        let before = world.transactions();
        let found = result(claim_one(&store, &claim).await);
        assert_eq!((found, world.transactions() - before), expected, "{changes:?}");
    }
}

/// Settlements that do not show that the operation took effect.
fn failures() -> [Settlement; 3] {
    [Settlement::fail(json("{}"), RETENTION), RELEASE, HAND_BACK]
}

fn settlements() -> impl Iterator<Item = Settlement> {
    failures().into_iter().chain([complete("1"), RENEW])
}

/// Returns a claim that was granted at [`FUTURE`], and its mark with these changes.
async fn granted_with(
    world: &World,
    store: &DynamoDbStore,
    changes: impl IntoIterator<Item = (&str, AttributeValue)>,
) -> (ClaimRequest, Item) {
    let claim = ordered(&entity(), SEQUENCE);
    granted(store, &claim).await;
    world.change_mark(&claim, changes).await;
    let mark = world.mark_of(&claim).await;
    (claim, mark)
}

// Tests G3, G4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_takes_a_second_transaction_only_for_an_unusual_mark() {
    let world = World::new().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    let longer = || seconds(RETENTION.as_secs() + 1);
    for settlement in settlements() {
        let of_completion = if settlement == complete("1") { 2 } else { 1 };
        for (changes, expected) in [
            (vec![], 1),
            (vec![("newest", digits(4))], 1),
            (vec![("newest", digits(5))], of_completion),
            (vec![("newest", digits(6))], of_completion),
            (vec![("expiration", longer())], 2),
            (vec![("expiration", seconds(1))], 1),
            (vec![("doubt", doubt(4))], 2),
            (vec![("v", number(2))], 1),
        ] {
            let (claim, _) = granted_with(&world, &store, changes.clone()).await;
            let before = world.transactions();
            match settle_one(&store, &claim, settlement.clone()).await.unwrap() {
                Settled::Renewed { .. } => assert_eq!(settlement, RENEW),
                Settled::Done { found: None } => assert_ne!(settlement, RENEW),
                other => panic!("{settlement:?} {changes:?}: {other:?}"),
            }
            assert_eq!(world.transactions() - before, expected, "{settlement:?} {changes:?}");
            let mark = world.mark_of(&claim).await;
            match &*changes {
                [("expiration", value)] if *value == longer() => assert_eq!(mark["expiration"], longer()),
                [("newest", value)] => {
                    let is_raised = settlement == complete("1") && *value == digits(4);
                    assert_eq!(mark["newest"], if is_raised { digits(5) } else { value.clone() }, "{settlement:?}");
                }
                _ => {}
            }
        }
    }
}

/// For example after an operator's settle, and a claim of the next delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_of_another_owners_record_takes_one_transaction() {
    let world = World::new().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    for settlement in settlements() {
        let (claim, mark) = granted_with(&world, &store, []).await;
        let mut record = world.read(&claim.key).await;
        record.insert("owner".to_owned(), owner(9));
        world.write(&claim.key, record).await;
        let before = world.transactions();
        let settled = settle_one(&store, &claim, settlement.clone()).await.unwrap();
        let (Settled::LeaseLost { current: Some(record) } | Settled::Done { found: Some(record) }) = settled else {
            panic!("{settlement:?}: {settled:?}")
        };
        assert_eq!(record.owner, Some(Owner::from_bytes([9; 16])));
        assert_eq!(world.transactions() - before, 1, "{settlement:?}");
        assert_eq!(world.mark_of(&claim).await, mark);
    }
}

// Tests G3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_leaves_the_entity_to_another_holder() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(Calls::Auto, &clock).await;
    for settlement in settlements() {
        clock.set(FUTURE);
        let (claim, mut expected) = granted_with(&world, &store, [("owner", owner(9))]).await;
        clock.advance(Duration::from_secs(10));
        let settled = settle_one(&store, &claim, settlement.clone()).await.unwrap();
        if settlement == RENEW {
            assert!(matches!(settled, Settled::LeaseLost { .. }), "{settled:?}");
        } else {
            assert_eq!(settled, Settled::Done { found: None }, "{settlement:?}");
            // Each write keeps the mark for the retention of outcomes.
            expected.insert("expiration".to_owned(), seconds(RETENTION.as_secs() + 10));
        }
        if settlement == complete("1") {
            // It took effect, so that older operations are superseded.
            expected.insert("newest".to_owned(), digits(SEQUENCE));
        }
        assert_eq!(world.mark_of(&claim).await, expected, "{settlement:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_leaves_the_mark_of_a_newer_version() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(Calls::Auto, &clock).await;
    for settlement in settlements() {
        clock.set(FUTURE);
        let (claim, before) = granted_with(&world, &store, [("v", number(3))]).await;
        clock.advance(Duration::from_secs(10));
        let error = settle_one(&store, &claim, settlement.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Format, true), "{settlement:?}");
        assert_eq!(world.mark_of(&claim).await, before, "{settlement:?}");
    }
}

// Tests G4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_mark_counts_as_absent_in_a_settle() {
    let world = World::new().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    let done = || Settled::Done { found: None };
    let [failed, release, hand_back] = failures();
    for (settlement, expected) in [
        (complete("1"), Some((done(), 2))),
        (failed, Some((done(), 2))),
        (release, Some((done(), 2))),
        (hand_back, Some((done(), 2))),
        // Nobody holds the entity.
        (RENEW, None),
    ] {
        let (claim, expired) = granted_with(&world, &store, [("expiration", seconds(0))]).await;
        let before = world.transactions();
        let settled = settle_one(&store, &claim, settlement.clone()).await.unwrap();
        let transactions = world.transactions() - before;
        match expected {
            Some(expected) => assert_eq!((settled, transactions), expected, "{settlement:?}"),
            None => assert!(matches!(settled, Settled::LeaseLost { .. }), "{settled:?}"),
        }
        let fresh = || free().into_iter().chain(item([("newest", digits(SEQUENCE))])).collect();
        let left = if settlement == complete("1") { fresh() } else { expired };
        assert_eq!(world.mark_of(&claim).await, left, "{settlement:?}");
    }
}

// Tests L5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_raises_lease_and_expiration_of_the_mark_and_lowers_neither() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(Calls::Auto, &clock).await;
    let claim = ordered(&entity(), SEQUENCE);
    granted(&store, &claim).await;
    clock.advance(Duration::from_secs(7));
    settle_one(&store, &claim, RENEW).await.unwrap();
    let mark = world.mark_of(&claim).await;
    let lease = FUTURE.after(LEASE).as_millis() + 7_000;
    let renewed = (&mark["in_progress_expiration"], &mark["expiration"]);
    assert_eq!(renewed, (&number(lease), &seconds(RETENTION.as_secs() + 7)));
    let later = number(lease + 1);
    world.change_mark(&claim, [("in_progress_expiration", later.clone())]).await;
    settle_one(&store, &claim, RENEW).await.unwrap();
    assert_eq!(world.mark_of(&claim).await["in_progress_expiration"], later);
}

// Tests G1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_replaces_only_the_mark_that_it_has_read() {
    let world = World::new().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    for mut found in marks() {
        // The first try does not assume that a mark outlives the claim's.
        found.insert("expiration".to_owned(), seconds(10 * RETENTION.as_secs()));
        for (name, value) in changes() {
            let claim = ordered(&entity(), SEQUENCE);
            world.put_mark(&claim, found.clone()).await;
            let before = world.transactions();
            let mut held = world.proxy.on_command("TransactWriteItems").nth(2).hold();
            let (claimed, ()) = join!(claim_one(&store, &claim), async {
                held.arrived().await;
                world.change_mark(&claim, [(name, value.clone())]).await;
                held.release();
            });
            // A newer version, or a holder without an operation.
            let is_unreadable = name == "v" || name == "owner" && !found.contains_key("owner");
            let expected = if is_unreadable { (ClaimResult::Unreadable, 2) } else { (ClaimResult::Granted, 3) };
            assert_eq!((result(claimed), world.transactions() - before), expected, "{name} of {found:?}");
            if ["newest", "expiration"].contains(&name) {
                assert_eq!(world.mark_of(&claim).await[name], value, "{name} of {found:?}");
            }
        }
    }
}

// Tests G3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_that_leaves_a_mark_as_it_is_has_read_it() {
    let world = World::new().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    for mut found in marks() {
        found.insert("expiration".to_owned(), seconds(0));
        for change in changes().into_iter().map(Some).chain([None]) {
            let claim = ordered(&entity(), SEQUENCE);
            granted(&store, &claim).await;
            world.put_mark(&claim, found.clone()).await;
            let before = world.transactions();
            let mut held = world.proxy.on_command("TransactWriteItems").nth(2).hold();
            let (settled, ()) = join!(settle_one(&store, &claim, Settlement::fail(json("{}"), RETENTION)), async {
                held.arrived().await;
                world.change_mark(&claim, change.clone()).await;
                held.release();
            });
            let expected = if change.is_some() { 3 } else { 2 };
            let transactions = world.transactions() - before;
            let mut mark = found.clone();
            mark.extend(change.clone().map(|(name, value)| (name.to_owned(), value)));
            if matches!(change, Some(("expiration", _))) {
                // Written as it is, but for a missing version. The others were not written.
                mark.entry("v".to_owned()).or_insert(number(0));
            }
            assert_eq!(world.mark_of(&claim).await, mark);
            // A holder without an operation cannot be read, but the mark has expired.
            let settled = (settled.unwrap(), transactions);
            assert_eq!(settled, (Settled::Done { found: None }, expected), "{change:?} of {found:?}");
        }
    }
}

// Tests G4.
#[tokio::test]
async fn an_expired_mark_that_cannot_be_read_counts_as_absent() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(Calls::Auto, &clock).await;
    // A holder without an operation, as no version of this library writes one.
    let unreadable = item([("expiration", seconds(0)), ("owner", owner(1)), ("newest", digits(9)), ("v", number(1))]);
    let fresh = async || {
        let claim = ordered(&entity(), SEQUENCE);
        world.put_mark(&claim, unreadable.clone()).await;
        claim
    };
    let completed: Item = free().into_iter().chain(item([("newest", digits(SEQUENCE))])).collect();

    let claim = fresh().await;
    assert_eq!(store.marks(&[Entity::of(&claim.key)]).await.remove(0).unwrap(), None);
    granted(&store, &claim).await;
    assert_eq!(world.mark_of(&claim).await.get("newest"), None);
    world.put_mark(&claim, unreadable.clone()).await;
    assert_eq!(settle_one(&store, &claim, complete("1")).await.unwrap(), Settled::Done { found: None });
    assert_eq!(world.mark_of(&claim).await, completed);

    let (claim, writes) = (fresh().await, store.open());
    assert!(is_granted(&store.claim_within(&writes, &claim).await));
    let settle = settle_of(&claim, complete("1"));
    assert_eq!(store.commit(&writes, Some(&settle)).await.unwrap(), Settled::Done { found: None });
    assert_eq!(world.mark_of(&claim).await, completed);

    let claim = fresh().await;
    granted(&store, &claim).await;
    clock.advance(LEASE * 2);
    world.put_mark(&claim, unreadable.clone()).await;
    let record = read_one(&store, &claim).await.unwrap();
    let amendment = Amendment::Settle { outcome: FinalStatus::Completed, result: json("7"), retention: RETENTION };
    let amended = store.amend(&[AmendRequest::new(claim.key, &record, amendment)]).await.remove(0);
    assert_eq!(amended.unwrap(), Amended::Changed);
    assert_eq!(world.mark_of(&claim).await["newest"], digits(SEQUENCE));
}

#[tokio::test]
async fn a_completed_operation_is_replayed_even_if_its_mark_is_unreadable() {
    let world = World::new().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    let entity = entity();
    let (done, next) = (ordered(&entity, SEQUENCE), ordered(&entity, SEQUENCE + 1));
    granted(&store, &done).await;
    settle_one(&store, &done, complete("1")).await.unwrap();
    for change in [("owner", owner(1)), ("v", number(3))] {
        world.change_mark(&done, [change]).await;
        let again = rival(&done);
        for answer in [claim_one(&store, &again).await, store.claim_within(&store.open(), &again).await] {
            assert!(is_replay(&answer, "1"), "{answer:?}");
        }
        for answer in [claim_one(&store, &next).await, store.claim_within(&store.open(), &next).await] {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Format);
        }
    }
}

// Tests G4.
#[tokio::test]
async fn a_commit_without_a_claim_does_not_replace_a_mark_that_it_has_not_read() {
    let world = World::new().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    let (claim, writes) = (ordered(&entity(), SEQUENCE), store.open());
    assert!(is_granted(&store.claim_within(&writes, &claim).await));
    let longer = seconds(2 * RETENTION.as_secs());
    let mark: Item = free().into_iter().chain(item([("expiration", longer.clone()), ("newest", digits(4))])).collect();
    world.put_mark(&claim, mark.clone()).await;
    let settle = settle_of(&claim, Settlement::fail(json("{}"), RETENTION));
    assert_eq!(store.commit(&writes, Some(&settle)).await.unwrap(), Settled::Done { found: None });
    assert_eq!(world.mark_of(&claim).await, mark);
}

/// The writes that replace a mark as a whole leave nothing of the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_mark_has_exactly_the_attributes_of_its_state() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(Calls::Auto, &clock).await;
    let (claim, retention) = (ordered(&entity(), SEQUENCE), RETENTION.as_secs());
    let mut expired = lapsed();
    expired.insert("expiration".to_owned(), seconds(0));
    expired.remove("v");
    world.put_mark(&claim, expired).await;
    granted(&store, &claim).await;
    let holder = item([
        ("owner", text(&claim.owner.to_hex())),
        ("holder", text(&claim.key.to_hex()[32..])),
        ("sequence", digits(SEQUENCE)),
        ("in_progress_expiration", number(FUTURE.after(LEASE).as_millis())),
    ]);
    assert_eq!(world.mark_of(&claim).await, free().into_iter().chain(holder).collect::<Item>());

    clock.advance(Duration::from_secs(10));
    // The first try assumes no doubt, so the second one replaces the mark.
    world.change_mark(&claim, [("doubt", doubt(4))]).await;
    settle_one(&store, &claim, complete("1")).await.unwrap();
    let done = item([("expiration", seconds(retention + 10)), ("newest", digits(SEQUENCE)), ("v", number(1))]);
    assert_eq!(world.mark_of(&claim).await, done);
}
