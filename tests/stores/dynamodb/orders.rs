//! Order markers in the table, and ordered operations that conflict with other transactions on an entity.

use std::time::{Duration, Instant};

use lambda_once::{
    DynamoDbStore, Error, ErrorKind, Failure, Outcome,
    clock::{ManualClock, Timestamp},
    order::Entity,
    record::{KeyHash, Status},
    store::{
        ClaimRequest, Claimed, FinalStatus, Refusal, Settled, Takeover,
        amend::{Amend, AmendRequest, Amended, Amendment, Resolution, ResolveRequest},
        dynamodb::{Calls, Config},
    },
};

use aws_sdk_dynamodb::types::AttributeValue;
use tokio::join;

use super::{CHARGE, Item, LEASE, MARGIN, World, assert_outcome, item, number, support, text};
use crate::support::{
    FUTURE,
    requests::{
        LAPSE, RENEW, RETENTION, claim_one, complete, entity, granted, json, ordered, read_one, rival, settle_one,
    },
};

const ENTITY: &str = "account 3";
/// DynamoDB's cancellation reasons for the record and the order marker while another transaction is changing them.
const BUSY: [&[&str]; 3] = [
    &["None", "TransactionConflict"],
    &["TransactionConflict", "None"],
    &["TransactionConflict", "TransactionConflict"],
];

impl World {
    /// Runs the operation with this sequence through the proxy.
    async fn set(&self, sequence: u64) -> Result<Outcome<u32>, Error> {
        self.once.operation(CHARGE, &sequence).ordered_by(ENTITY, sequence).run(|| self.work()).await
    }

    /// Runs the operation with this sequence directly, with work that ends as given.
    async fn set_elsewhere(&self, sequence: u64, end: Result<u32, Failure>) -> Result<Outcome<u32>, Error> {
        let operation = self.elsewhere.operation(CHARGE, &sequence).ordered_by(ENTITY, sequence);
        operation.run(|| async { end }).await
    }

    /// Fails transactions, from this one on.
    fn conflict(&self, from: usize, times: usize, reasons: &[&str]) {
        self.proxy.on_command("TransactWriteItems").nth(from).times(times).cancel(reasons);
    }

    /// Returns the number of transactions sent.
    pub(super) fn transactions(&self) -> usize {
        self.proxy.requests().iter().filter(|request| request.command == "TransactWriteItems").count()
    }

    pub(super) async fn get(&self, id: String) -> Option<Item> {
        let get = self.direct.get_item().table_name(&self.table).key("id", text(&id)).consistent_read(true);
        get.send().await.unwrap().item
    }

    async fn mark(&self) -> Item {
        let entity = self.once.key_hash(CHARGE, ENTITY).unwrap().to_hex();
        self.get(format!("once#{}mark", &entity[..32])).await.expect("a mark")
    }

    fn ordered_key(&self, sequence: u64) -> KeyHash {
        let (entity, operation) = (self.once.key_hash(CHARGE, ENTITY), self.once.key_hash(CHARGE, &sequence));
        KeyHash::ordered(&entity.unwrap(), &operation.unwrap())
    }
}

#[tokio::test]
async fn doubt_is_stored_as_documented_and_merged_doubt_without_an_operation() {
    let world = World::new().await;
    let lose = async |sequence| {
        let lost = world.set_elsewhere(sequence, Err(Failure::unknown("timed out"))).await;
        assert_outcome!(lost, Ok(Outcome::Failed(_)));
        world.lapse();
    };
    let doubt = async || world.mark().await["doubt"].as_s().unwrap().clone();
    let entry = |sequence| format!("{sequence:064} {}", &world.ordered_key(sequence).to_hex()[32..]);
    for sequence in 1..=3 {
        lose(sequence).await;
    }
    assert_eq!(doubt().await, format!("{},{}", entry(1), entry(2)), "the third is the holder still");
    for sequence in 4..=67 {
        lose(sequence).await;
        assert_eq!(doubt().await.split(',').count() as u64, (sequence - 1).min(64), "{sequence}");
    }
    let merged: Vec<_> = std::iter::once(format!("{:064} ", 3)).chain((4..=66).map(entry)).collect();
    assert_eq!(doubt().await, merged.join(","));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_claim_replaces_only_the_record_that_it_has_read() {
    let world = World::new().await;
    let store = Config::new(&world.table).build(support::client(&world.url).await).unwrap();
    let store = store.with_clock(ManualClock::at(FUTURE));
    let running = |attempt, lease: Timestamp| {
        let attempt = |name| (name, number(attempt));
        let lease = ("in_progress_expiration", number(lease.as_millis()));
        // Released by an operator.
        item([("status", text("INPROGRESS")), attempt("attempt"), attempt("released"), lease])
    };
    let lapsed = |attempt| running(attempt, Timestamp::EPOCH);
    let live = || running(1, FUTURE.after(LEASE));
    let expired = || ("expiration", number(FUTURE.seconds_rounded_down()));
    let completed = || item([("status", text("COMPLETED")), ("attempt", number(1)), expired()]);
    let granted = |attempt, prior_status| Some((attempt, Some(prior_status)));
    for (takeover, fingerprint) in [
        (Takeover::Allowed, None),
        (Takeover::Allowed, ordered(&entity(), 5).fingerprint),
        (Takeover::Refused, None),
        (Takeover::Refused, ordered(&entity(), 5).fingerprint),
    ] {
        for (found, changed, expected) in [
            (Some(lapsed(1)), live(), None),
            (Some(lapsed(1)), lapsed(2), granted(3, Status::InProgress)),
            (Some(lapsed(1)), completed(), granted(2, Status::Completed)),
            (Some(item([("attempt", number(1)), expired()])), lapsed(1), granted(2, Status::InProgress)),
            (None, live(), None),
            (None, lapsed(1), granted(2, Status::InProgress)),
            (None, completed(), granted(2, Status::Completed)),
        ] {
            let claim = ClaimRequest { takeover, fingerprint, ..ordered(&entity(), 5) };
            // The first request expects no record.
            let refused = usize::from(found.is_some());
            if let Some(attributes) = found {
                world.write(&claim.key, attributes).await;
            }
            let mut held = world.proxy.on_command("TransactWriteItems").nth(1 + refused).hold();
            let (answer, ()) = join!(claim_one(&store, &claim), async {
                held.arrived().await;
                world.write(&claim.key, changed.clone()).await;
                held.release();
            });
            let found = match answer.unwrap() {
                Claimed::Granted(grant) => Some((grant.attempt, grant.prior_status)),
                Claimed::Refused(Refusal::InProgress { lease_until: Some(_), attempt: 1 }) => None,
                Claimed::Refused(refusal) => panic!("{refusal:?}"),
            };
            assert_eq!(found, expected, "{takeover:?} {fingerprint:?} {changed:?}");
        }
    }
}

/// Another library may have written it.
#[tokio::test]
async fn an_ordered_claim_replaces_an_expired_record_whatever_its_attempt() {
    let world = World::new().await;
    let store = world.store(Calls::Single, &ManualClock::at(FUTURE)).await;
    let decimal = |digits: &str| AttributeValue::N(digits.to_owned());
    let expired = || ("expiration", number(FUTURE.seconds_rounded_down()));
    let (max, max_digits) = (u64::MAX, "18446744073709551615");
    for (attempt, expected) in [
        (number(3), 4),
        (decimal("1.5"), 2),
        (decimal(max_digits), max),
        (decimal("-3"), 1),
        (text("many"), 1),
        (AttributeValue::Bool(true), 1),
    ] {
        for fingerprint in [None, ordered(&entity(), 5).fingerprint] {
            let claim = ClaimRequest { fingerprint, ..ordered(&entity(), 5) };
            let found = item([("status", text("COMPLETED")), expired(), ("attempt", attempt.clone())]);
            world.write(&claim.key, found).await;
            let grant = granted(&store, &claim).await;
            // Without a number of attempts, nothing of the item counts.
            let prior_status = (expected > 1).then_some(Status::Completed);
            assert_eq!((grant.attempt, grant.prior_status), (expected, prior_status), "{attempt:?}");
            let record = read_one(&store, &claim).await.unwrap();
            assert_eq!((record.attempt, record.owner), (expected, Some(claim.owner)), "{attempt:?}");
        }
    }
}

// Tests S3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_lost_its_entity_and_finds_an_unreadable_record_is_lost() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let store = Config::new(&world.table).build(support::client(&world.url).await).unwrap().with_clock(clock.clone());
    let entity = entity();
    let claim = ordered(&entity, 5);
    granted(&store, &claim).await;
    clock.advance(LAPSE);
    granted(&store, &ordered(&entity, 6)).await;
    // The clock of the first holder is behind.
    clock.set(FUTURE);
    let mut held = world.proxy.on_command("GetItem").hold();
    let (settled, ()) = join!(settle_one(&store, &claim, RENEW), async {
        held.arrived().await;
        world.write(&claim.key, item([("status", text("WAITING"))])).await;
        held.release();
    });
    assert_eq!(settled.unwrap(), Settled::LeaseLost { current: None });
}

#[tokio::test]
async fn an_entity_that_other_transactions_change_all_the_time_is_in_progress() {
    for reasons in BUSY {
        let world = World::new().await;
        world.conflict(1, usize::MAX, reasons);
        assert_outcome!(world.set(5).await, Ok(Outcome::InProgress { lease_until: None, .. }));
        assert_eq!(world.runs(), 0);
    }
}

/// The pauses are at least half of 25, 50, 100, 200 and 200 ms. The test bypasses the engine, whose call timeout a busy
/// machine may reach.
#[tokio::test]
async fn a_claim_that_meets_other_transactions_pauses_before_each_retry() {
    let world = World::new().await;
    let client = support::client(&world.url).await;
    let store = Config::new(&world.table).build(client).unwrap().with_clock(ManualClock::at(FUTURE));
    world.conflict(1, usize::MAX, BUSY[0]);
    let begun = Instant::now();
    let answer = claim_one(&store, &ordered(&entity(), 5)).await;
    assert!(matches!(answer, Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, .. }))), "{answer:?}");
    assert!(begun.elapsed() >= Duration::from_millis(287), "{:?}", begun.elapsed());
    assert_eq!(world.transactions(), 5);
}

#[tokio::test]
async fn a_claim_does_not_pause_beyond_its_lease_for_other_transactions() {
    let world = World::new().await;
    let client = support::client(&world.url).await;
    let store = Config::new(&world.table).build(client).unwrap().with_clock(world.clock.clone());
    world.conflict(1, usize::MAX, BUSY[0]);
    // Shorter than the first pause.
    let claim = ClaimRequest { lease: Duration::from_millis(10), ..ordered(&entity(), 5) };
    let answer = claim_one(&store, &claim).await;
    assert!(matches!(answer, Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, .. }))), "{answer:?}");
    assert_eq!(world.transactions(), 1);
}

#[tokio::test]
async fn a_claim_that_meets_another_transaction_once_is_granted() {
    for reasons in BUSY {
        let world = World::new().await;
        world.conflict(1, 1, reasons);
        assert_outcome!(world.set(5).await, Ok(Outcome::Executed(1)));
        world.all_struck();
    }
}

#[tokio::test]
async fn a_conflicting_claim_sees_the_result_of_the_other_transaction() {
    let world = World::new().await;
    assert_outcome!(world.set_elsewhere(5, Ok(7)).await, Ok(Outcome::Executed(7)));
    for reasons in BUSY {
        world.conflict(1, 1, reasons);
        assert_outcome!(world.set(4).await, Ok(Outcome::Superseded { newest: Some(_) }));
        world.conflict(1, 1, reasons);
        assert_outcome!(world.set(5).await, Ok(Outcome::Replayed(7)));
        world.all_struck();
    }
    let lost = world.set_elsewhere(6, Err(Failure::unknown("timed out"))).await;
    assert_outcome!(lost, Ok(Outcome::Failed(_)));
    for reasons in BUSY {
        world.conflict(1, 1, reasons);
        assert_outcome!(world.set(8).await, Ok(Outcome::InProgress { lease_until: Some(_), .. }));
    }
    world.clock.jump(LEASE + MARGIN + MARGIN);
    world.conflict(1, 1, BUSY[0]);
    assert_outcome!(world.set(8).await, Ok(Outcome::Executed(1)));
}

/// The response reports the record's failed condition, and nothing about the mark.
#[tokio::test]
async fn an_abandoned_operation_whose_mark_is_busy_may_be_superseded() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(Calls::Single, &clock).await;
    let entity = entity();
    let lost = ordered(&entity, 5);
    granted(&store, &lost).await;
    clock.advance(LAPSE);
    let claim = ClaimRequest { takeover: Takeover::Refused, ..rival(&lost) };
    let claimed = async || {
        world.conflict(1, 1, &["ConditionalCheckFailed", "TransactionConflict"]);
        claim_one(&store, &claim).await.unwrap()
    };
    assert_eq!(claimed().await, Claimed::Refused(Refusal::Abandoned { attempt: 1 }));
    let newer = ordered(&entity, 6);
    granted(&store, &newer).await;
    settle_one(&store, &newer, complete("1")).await.unwrap();
    assert_eq!(claimed().await, Claimed::Refused(Refusal::Superseded { newest: 6_u64.into() }));
    world.all_struck();
}

/// The SDK repeats a request whose response was lost, and reports the result of the last attempt.
#[tokio::test]
async fn a_claim_that_was_applied_before_a_conflict_is_recognized() {
    for reasons in BUSY {
        let world = World::new().await;
        world.proxy.on_command("TransactWriteItems").drop_response();
        world.conflict(2, 1, reasons);
        assert_outcome!(world.set(5).await, Ok(Outcome::Executed(1)));
        world.all_struck();
        assert_outcome!(world.set(5).await, Ok(Outcome::Replayed(1)));
    }
}

#[tokio::test]
async fn a_completion_that_meets_another_transaction_is_sent_again() {
    for reasons in BUSY {
        let world = World::new().await;
        world.conflict(2, 2, reasons);
        assert_outcome!(world.set(5).await, Ok(Outcome::Executed(1)));
        world.all_struck();
        assert_outcome!(world.set(5).await, Ok(Outcome::Replayed(1)));
    }
}

/// Throttling does not indicate a busy entity. It is a store error.
#[tokio::test]
async fn a_conflict_beside_throttling_is_no_sign_of_a_busy_entity() {
    let world = World::new().await;
    world.conflict(1, usize::MAX, &["TransactionConflict", "ThrottlingError"]);
    let error = world.set(5).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

impl World {
    /// Sets an attribute of the order marker, bypassing the rules.
    async fn plant(&self, name: &str, value: AttributeValue) {
        let update = self.direct.update_item().table_name(&self.table).key("id", self.mark().await["id"].clone());
        let update = update.update_expression("SET #new = :new").expression_attribute_names("#new", name);
        update.expression_attribute_values(":new", value).send().await.unwrap();
    }
}

#[tokio::test]
async fn an_attribute_of_a_mark_that_is_not_known_survives_every_write() {
    let world = World::new().await;
    assert_outcome!(world.set(1).await, Ok(Outcome::Executed(1)));
    world.plant("new", text("kept")).await;
    assert_eq!(world.mark().await["v"], number(1));
    assert_outcome!(world.set(2).await, Ok(Outcome::Executed(2)));
    assert_eq!(world.mark().await["new"], text("kept"), "a claim and a completion of a free entity");
    let lost = world.set_elsewhere(3, Err(Failure::unknown("timed out"))).await;
    assert_outcome!(lost, Ok(Outcome::Failed(_)));
    world.lapse();
    assert_outcome!(world.set(4).await, Ok(Outcome::Executed(3)));
    assert_eq!(world.mark().await["new"], text("kept"), "a claim and a completion after a lapse");
    world.clock.jump(Duration::from_secs(100 * 24 * 60 * 60));
    assert_outcome!(world.set(5).await, Ok(Outcome::Executed(4)));
    assert_eq!(world.mark().await["new"], text("kept"), "a claim over a mark that has expired");
}

#[tokio::test]
async fn a_mark_of_an_unknown_version_is_left_to_newer_deployments() {
    let world = World::new().await;
    assert_outcome!(world.set(1).await, Ok(Outcome::Executed(1)));
    world.plant("v", number(2)).await;
    let work = world.once.operation(CHARGE, &2_u64).ordered_by(ENTITY, 2_u64).run(|| async {
        world.plant("v", number(3)).await;
        world.work().await
    });
    assert_outcome!(work.await, Ok(Outcome::Unrecorded(2)));
    let before = world.mark().await;
    world.lapse();
    let error = world.set(3).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Format, true), "{error}");
    assert_eq!((world.runs(), world.mark().await), (2, before));
}

/// Returns an amendment each of two lapsed operations of one entity.
async fn amendments(amendment: &Amendment) -> (World, DynamoDbStore, Vec<AmendRequest>) {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(Calls::Single, &clock).await;
    let (entity, mut requests) = (entity(), Vec::new());
    for sequence in [5, 6] {
        let claim = ordered(&entity, sequence);
        granted(&store, &claim).await;
        clock.advance(LAPSE);
        let read = read_one(&store, &claim).await.unwrap();
        requests.push(AmendRequest::new(claim.key, &read, amendment.clone()));
    }
    world.proxy.reset();
    (world, store, requests)
}

/// Their transactions would conflict.
#[tokio::test]
async fn amendments_of_one_entity_are_sent_one_after_another() {
    let settle = Amendment::Settle { outcome: FinalStatus::Completed, result: json("7"), retention: RETENTION };
    let (world, store, requests) = amendments(&settle).await;
    for amended in store.amend(&requests).await {
        assert_eq!(amended.unwrap(), Amended::Changed);
    }
    assert_eq!(world.requests(), ["GetItem", "TransactWriteItems", "GetItem", "TransactWriteItems"]);
}

/// Only a settle changes the mark.
#[tokio::test]
async fn amendments_that_leave_the_mark_alone_are_sent_side_by_side() {
    let (world, store, requests) = amendments(&Amendment::Release).await;
    let mut held = world.proxy.on_command("UpdateItem").times(2).hold();
    let (answers, ()) = join!(store.amend(&requests), async {
        let [first, second] = [held.arrived().await, held.arrived().await];
        // The client may send a held request again.
        assert_ne!(first.body()["Key"], second.body()["Key"]);
        held.release();
        held.release();
    });
    for amended in answers {
        assert_eq!(amended.unwrap(), Amended::Changed);
    }
}

#[tokio::test]
async fn a_mark_is_read_consistently() {
    let world = World::new().await;
    let store = world.store(Calls::Single, &ManualClock::at(FUTURE)).await;
    let claim = ordered(&entity(), 5);
    granted(&store, &claim).await;
    world.proxy.reset();
    assert!(store.marks(&[Entity::of(&claim.key)]).await.remove(0).unwrap().is_some());
    // The claim that is sent again reads the mark and the record.
    world.conflict(1, 1, BUSY[0]);
    granted(&store, &claim).await;
    assert_eq!(world.requests(), ["GetItem", "TransactWriteItems", "GetItem", "GetItem"]);
    let reads = world.proxy.requests().into_iter().filter(|request| request.command == "GetItem");
    let are_consistent: Vec<_> = reads.map(|read| read.body()["ConsistentRead"].clone()).collect();
    assert_eq!(are_consistent, [true; 3]);
}

#[tokio::test]
async fn a_resolution_that_is_not_permitted_is_an_error_and_changes_nothing() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let store = world.store(Calls::Single, &clock).await;
    let lost = ordered(&entity(), 5);
    granted(&store, &lost).await;
    clock.advance(LAPSE);
    let of_mark = Entity::of(&lost.key);
    let mark = async || store.marks(&[of_mark]).await.remove(0).unwrap().expect("a mark");
    let resolution = Resolution::NoEffect { sequences: vec![5_u64.into()] };
    let (skew_margin, retention) = (MARGIN, RETENTION);
    let request = ResolveRequest { entity: of_mark, read: mark().await, skew_margin, retention, resolution };
    world.proxy.on_command("UpdateItem").access_denied();
    assert_eq!(store.resolve(&request).await.unwrap_err().kind(), ErrorKind::AccessDenied);
    assert_eq!(mark().await, request.read);
    world.proxy.reset();
    assert_eq!(store.resolve(&request).await.unwrap(), Amended::Changed);
    assert_eq!(world.requests(), ["GetItem", "UpdateItem"]);
    assert_eq!(world.proxy.requests()[0].body()["ConsistentRead"], true);
}
