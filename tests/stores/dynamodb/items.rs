//! Items in the table, and records that others wrote.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_once::{
    DynamoDbStore, ErrorKind, Failure, Idempotency, Outcome, Store,
    clock::{ManualClock, Timestamp},
    order::Sequence,
    record::{Fingerprint, KeyHash, Owner},
    store::{
        Claimed, FinalStatus, Refusal, ResultData, Settled,
        amend::{Amend, AmendRequest, Amended, Amendment},
        dynamodb::{Calls, Config},
        transaction::Transactional,
    },
};

use super::{
    CHARGE, Item, KEY, LEASE, Purpose, World, assert_outcome, batches, in_both_shapes, number, seconds,
    support::FUTURE, text,
};
use crate::support::requests::{
    self, HAND_BACK, LAPSE, RENEW, complete, granted, read_one, rival, settle_of, settle_one,
};

const RETENTION: Duration = Duration::from_secs(15 * 24 * 60 * 60);

fn names(item: &Item) -> Vec<&str> {
    let mut names: Vec<_> = item.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

async fn an_item_has_exactly_the_documented_attributes(calls: Calls) {
    let world = World::of(calls).await;
    let now = FUTURE.after(Duration::from_millis(1));
    let store =
        Config::new(&world.table).calls(calls).build(world.direct.clone()).unwrap().with_clock(ManualClock::at(now));
    let once = Idempotency::builder(store).clock(ManualClock::at(now)).build().unwrap();

    let outcome = once.operation(CHARGE, KEY).payload("995 cents").run(|| async {
        let item = world.item().await.unwrap();
        assert_eq!(
            names(&item),
            [
                "attempt",
                "claimed_at",
                "expiration",
                "id",
                "in_progress_expiration",
                "operation",
                "owner",
                "prior_status",
                "status",
                "v",
                "validation"
            ]
        );
        assert_eq!(item["status"], text("INPROGRESS"));
        assert_eq!(item["prior_status"], text("NONE"));
        assert_eq!((&item["attempt"], &item["v"]), (&number(1), &number(1)));
        assert_eq!(item["in_progress_expiration"], number(now.after(LEASE).as_millis()));
        assert_eq!((&item["operation"], &item["claimed_at"]), (&text(CHARGE), &number(now.as_millis())));
        assert_eq!(item["expiration"], seconds(RETENTION.as_secs() + 1));
        assert!(Owner::from_hex(item["owner"].as_s().unwrap()).is_some());
        assert!(Fingerprint::from_text(item["validation"].as_s().unwrap()).is_some());
        Ok::<_, Failure>("done".to_owned())
    });
    assert_outcome!(outcome.await, Ok(Outcome::Executed(_)));

    let item = world.item().await.unwrap();
    assert_eq!(item["status"], text("COMPLETED"));
    assert_eq!(item["data"], text("\"done\""));
    assert_eq!(item["expiration"], seconds(RETENTION.as_secs() + 1));
    assert_eq!(item["settled_at"], number(now.as_millis()));
    assert_eq!(item.len(), 13);
}

/// The result may be large.
#[tokio::test]
async fn a_read_without_results_asks_for_all_attributes_but_data() {
    let world = World::new().await;
    let store = world.store(Calls::Single, &ManualClock::at(FUTURE)).await;
    let claim = requests::claim();
    granted(&store, &claim).await;
    settle_one(&store, &claim, complete("7")).await.unwrap();
    world.proxy.reset();
    let record = store.read(&[claim.key], ResultData::Omit).await.remove(0).unwrap().expect("a record");
    assert!(record.result.data.is_none(), "{record:?}");
    assert_eq!(world.requests(), ["GetItem"]);
    let body = world.proxy.requests()[0].body();
    let projection = body["ProjectionExpression"].as_str().expect("a projection");
    let aliases = &body["ExpressionAttributeNames"];
    let mut read: Vec<_> = projection.split(", ").map(|name| aliases[name].as_str().unwrap_or(name)).collect();
    read.sort_unstable();
    let expected = "attempt claimed_at expiration id in_progress_expiration label open operation owner prior_status \
                    released result_dropped sequence settled_at status superseded v validation";
    assert_eq!(read.join(" "), expected);
}

/// Source: <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>
fn size(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(digits) => digits.len().div_ceil(2) + 1,
        AttributeValue::Bool(_) => 1,
        other => panic!("the size of {other:?} is not known"),
    }
}

async fn an_item_of_a_typical_operation_takes_one_write_unit(calls: Calls) {
    let world = World::of(calls).await;
    let once = world.once.named("orders-service-production");
    let operation =
        || once.operation("charge-customer", KEY).payload("995 cents").label("order 3f2504e0-4f89-11d3-9a0c");
    let sized = async || {
        let key = once.key_hash("charge-customer", KEY).unwrap();
        let get = world.direct.get_item().table_name(&world.table).key("id", text(&format!("once#{key}")));
        let item = get.consistent_read(true).send().await.unwrap().item.unwrap();
        let mut sizes: Vec<_> = item.iter().map(|(name, value)| (name.len() + size(value), name.clone())).collect();
        sizes.sort_unstable();
        (sizes.iter().map(|(size, _)| size).sum::<usize>(), sizes)
    };
    let run = operation().run(|| async {
        let (total, sizes) = sized().await;
        assert!(total < 1_024, "{total}: {sizes:?}");
        Err::<(), _>(Failure::unknown("lost"))
    });
    assert_outcome!(run.await, Ok(Outcome::Failed(_)));
    world.lapse();
    assert_outcome!(operation().run(|| async { Ok::<_, Failure>(()) }).await, Ok(Outcome::TookOver(())));
    let (total, sizes) = sized().await;
    assert!(total < 1_024, "{total}: {sizes:?}");
}

async fn an_attribute_that_is_not_known_survives_every_write(calls: Calls) {
    let world = World::of(calls).await;
    let clock = ManualClock::at(FUTURE);
    let store = Config::new(&world.table).calls(calls).build(world.direct.clone()).unwrap().with_clock(clock.clone());
    let claim = requests::claim();
    let id = || text(&format!("once#{}", claim.key));
    granted(&store, &claim).await;
    let plant =
        world.direct.update_item().table_name(&world.table).key("id", id()).update_expression("SET #new = :new");
    let plant = plant.expression_attribute_names("#new", "new").expression_attribute_values(":new", text("kept"));
    plant.send().await.unwrap();
    let is_kept = async || {
        let get = world.direct.get_item().table_name(&world.table).key("id", id()).consistent_read(true);
        get.send().await.unwrap().item.is_some_and(|item| item.get("new") == Some(&text("kept")))
    };
    settle_one(&store, &claim, RENEW).await.unwrap();
    assert!(is_kept().await, "a renewal");
    clock.advance(LAPSE);
    let taker = rival(&claim);
    assert!(granted(&store, &taker).await.took_over());
    assert!(is_kept().await, "a takeover");
    settle_one(&store, &taker, HAND_BACK).await.unwrap();
    assert!(is_kept().await, "a hand-back");
    let next = rival(&claim);
    granted(&store, &next).await;
    settle_one(&store, &next, complete("1")).await.unwrap();
    assert!(is_kept().await, "a completion");
    clock.advance(requests::RETENTION + Duration::from_secs(1));
    let late = rival(&claim);
    granted(&store, &late).await;
    assert!(is_kept().await, "a claim over an outcome that has expired");
    clock.advance(requests::RETENTION + Duration::from_secs(1));
    let writes = store.open();
    let last = rival(&claim);
    assert!(matches!(store.claim_within(&writes, &last).await, Ok(Claimed::Granted(_))));
    let settle = settle_of(&last, complete("2"));
    assert_eq!(store.commit(&writes, Some(&settle)).await.unwrap(), Settled::Done { found: None });
    assert!(is_kept().await, "a commit without a claim");
    let record = read_one(&store, &last).await.unwrap();
    assert_eq!((record.attempt, record.lease_until, record.claimed_at), (1, None, record.settled_at));
}

async fn a_remembered_failure_has_its_own_status(calls: Calls) {
    let world = World::of(calls).await;
    assert_outcome!(world.run_to(Err(Failure::permanent("no such card"))).await, Ok(Outcome::Failed(_)));
    let item = world.item().await.unwrap();
    assert_eq!(item["status"], text("FAILED"));
    assert_eq!(item["data"], text(r#"{"error":"no such card"}"#));
}

async fn a_new_claim_removes_the_expired_result(calls: Calls) {
    let world = World::of(calls).await;
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.clock.jump(RETENTION + Duration::from_secs(1));
    let again = world.once.operation(CHARGE, KEY).run(|| async {
        let item = world.item().await.unwrap();
        assert_eq!((item.get("data"), &item["prior_status"]), (None, &text("COMPLETED")));
        world.work().await
    });
    assert_outcome!(again.await, Ok(Outcome::Executed(2)));
}

async fn a_large_result_that_compresses_is_stored_as_bytes_and_comes_back_whole(calls: Calls) {
    let world = World::of(calls).await;
    let result = || "{\"line\": 7}, ".repeat(300_000 / 13);
    let run = || async { Ok::<_, Failure>(result()) };
    assert_outcome!(world.once.operation(CHARGE, KEY).run(run).await, Ok(Outcome::Executed(_)));
    assert!(world.item().await.unwrap()["data"].as_b().unwrap().as_ref().len() < 30_000);
    assert_outcome!(world.once.operation(CHARGE, KEY).run(run).await, Ok(Outcome::Replayed(text)) if text == result());
}

async fn a_result_too_large_for_an_item_is_dropped_before_it_is_sent(calls: Calls) {
    let world = World::of(calls).await;
    let mut random = fastrand::Rng::with_seed(7);
    let text: String = std::iter::repeat_with(|| random.alphanumeric()).take(5_000_000).collect();
    let run = || async { Ok::<_, Failure>(text.clone()) };
    assert_outcome!(world.once.operation(CHARGE, KEY).run(run).await, Ok(Outcome::Executed(_)));
    assert_eq!(world.purposes(), [Purpose::Claim, Purpose::Complete]);
    let item = world.item().await.unwrap();
    assert_eq!((item.get("data"), &item["result_dropped"]), (None, &AttributeValue::Bool(true)));
    assert_outcome!(world.once.operation(CHARGE, KEY).run(run).await, Ok(Outcome::ReplayedWithoutResult));
}

async fn a_completed_record_of_powertools_is_replayed(calls: Calls) {
    let world = World::of(calls).await;
    world.put([("status", text("COMPLETED")), ("expiration", seconds(3600)), ("data", text("7"))]).await;
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(7)));
}

async fn a_running_record_of_powertools_is_taken_over_after_its_lease(calls: Calls) {
    let world = World::of(calls).await;
    let lease = number(FUTURE.after(LEASE).as_millis());
    let expiration = ("expiration", seconds(3600));
    world.put([("status", text("INPROGRESS")), expiration, ("in_progress_expiration", lease)]).await;
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { attempt: 0, .. }));
    world.lapse();
    assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
}

async fn a_claim_is_free_after_the_end_of_its_lease_and_margin_and_not_at_it(calls: Calls) {
    let world = World::of(calls).await;
    let clock = ManualClock::at(FUTURE);
    let store = Config::new(&world.table).calls(calls).build(world.direct.clone()).unwrap().with_clock(clock.clone());
    let request = batches::claim(1);
    let claimed = store.claim(std::slice::from_ref(&request)).await.remove(0).unwrap();
    let Claimed::Granted(grant) = claimed else { panic!("a new key is granted, got {claimed:?}") };
    clock.set(grant.lease_until.after(request.skew_margin));
    let answer = store.claim(&[batches::claim(1)]).await.remove(0).unwrap();
    let in_progress = Refusal::InProgress { lease_until: Some(grant.lease_until), attempt: 1 };
    assert_eq!(answer, Claimed::Refused(in_progress));
    clock.advance(Duration::from_millis(1));
    let answer = store.claim(&[batches::claim(1)]).await.remove(0).unwrap();
    assert!(matches!(answer, Claimed::Granted(grant) if grant.took_over()), "{answer:?}");
}

async fn a_running_record_without_a_lease_is_live_until_it_expires(calls: Calls) {
    let world = World::of(calls).await;
    world.put([("status", text("INPROGRESS")), ("expiration", seconds(3600))]).await;
    world.clock.jump(Duration::from_secs(3500));
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { lease_until: None, .. }));
    world.clock.jump(Duration::from_secs(100));
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
}

async fn a_running_record_with_neither_lease_nor_expiration_stays_live(calls: Calls) {
    let world = World::of(calls).await;
    world.put([("status", text("INPROGRESS"))]).await;
    world.clock.jump(100 * RETENTION);
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { lease_until: None, .. }));
}

async fn an_expired_record_counts_as_absent_while_it_is_still_visible(calls: Calls) {
    for status in ["COMPLETED", "FAILED", "WAITING"] {
        let world = World::of(calls).await;
        world.put([("status", text(status)), ("expiration", seconds(0)), ("data", text("7"))]).await;
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    }
}

async fn an_expired_record_counts_as_absent_whatever_its_attempt(calls: Calls) {
    let decimal = |digits: &str| AttributeValue::N(digits.to_owned());
    let attempts = [
        (number(3), 4),
        (decimal("1.5"), 2),
        (decimal("0.25"), 1),
        (decimal("-3"), 1),
        (text("many"), 1),
        (AttributeValue::Bool(true), 1),
    ];
    for ((attempt, expected), has_payload) in attempts.iter().flat_map(|case| [(case, false), (case, true)]) {
        let world = World::of(calls).await;
        world.put([("status", text("COMPLETED")), ("expiration", seconds(0)), ("attempt", attempt.clone())]).await;
        let mut operation = world.once.operation(CHARGE, KEY);
        if has_payload {
            operation = operation.payload("995 cents");
        }
        let outcome = operation.run(|| async {
            // The next claim can read the item that this one wrote.
            let found = match world.run_elsewhere().await {
                Ok(Outcome::InProgress { attempt, .. }) => attempt,
                other => panic!("{attempt:?}: expected an operation in progress, got {other:?}"),
            };
            assert_eq!(found, *expected, "{attempt:?}");
            world.work().await
        });
        assert_outcome!(outcome.await, Ok(Outcome::Executed(1)));
    }
}

async fn records_of_a_newer_deployment_are_left_to_it(calls: Calls) {
    let lapsed = || ("in_progress_expiration", number(Timestamp::EPOCH.as_millis()));
    for attributes in [
        vec![("status", text("WAITING")), lapsed()],
        vec![("status", text("INPROGRESS")), ("v", number(9)), lapsed()],
        vec![("status", text("COMPLETED")), ("v", number(9)), ("data", text("7"))],
        vec![("status", text("INPROGRESS")), ("in_progress_expiration", text("soon"))],
        vec![("status", text("INPROGRESS")), ("attempt", text("many")), lapsed()],
    ] {
        let world = World::of(calls).await;
        world.put(attributes.clone()).await;
        let before = world.item().await;
        let error = world.run().await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Format, true), "{attributes:?}");
        assert_eq!((world.runs(), world.item().await), (0, before));
    }
}

async fn a_stored_result_that_no_longer_decodes_is_a_permanent_error(calls: Calls) {
    let world = World::of(calls).await;
    for data in [text("not JSON"), text("\"seven\""), number(7), AttributeValue::Bool(true)] {
        world.put([("status", text("COMPLETED")), ("data", data)]).await;
        let error = world.run().await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::StoredResult, false));
    }
    assert_eq!(world.runs(), 0);
}

async fn an_operator_changes_records_that_have_only_a_status(calls: Calls) {
    let of_status = |status| vec![("status", text(status))];
    let forget = |completed| Amendment::Forget { completed };
    for (attributes, amendment) in [
        (of_status("COMPLETED"), forget(true)),
        (of_status("COMPLETED"), Amendment::Redact),
        (of_status("FAILED"), forget(false)),
        (of_status("INPROGRESS"), forget(false)),
    ] {
        let (world, store, key) = amendable(calls).await;
        world.put(attributes.clone()).await;
        let read = store.read(&[key], ResultData::Omit).await.remove(0).unwrap().unwrap();
        let request = AmendRequest::new(key, &read, amendment);
        let amended = store.amend(std::slice::from_ref(&request)).await.remove(0).unwrap();
        assert_eq!(amended, Amended::Changed, "{request:?}");
        assert_eq!(world.item().await.is_none(), matches!(request.amendment, Amendment::Forget { .. }), "{request:?}");
    }
}

async fn an_operator_changes_no_record_with_attributes_that_were_not_read(calls: Calls) {
    let lapsed = || ("in_progress_expiration", number(Timestamp::EPOCH.as_millis()));
    let handed_back = || vec![("status", text("INPROGRESS")), ("attempt", number(1)), lapsed()];
    let completed = || vec![("status", text("COMPLETED"))];
    let sequence = || ("sequence", text(&Sequence::from(7_u64).to_digits()));
    let owner = || ("owner", text(&Owner::from_bytes([1; 16]).to_hex()));
    let attempt = || ("attempt", number(1));
    for (found, added, amendment) in [
        (handed_back(), sequence(), Amendment::Forget { completed: false }),
        (handed_back(), sequence(), Amendment::Release),
        (handed_back(), owner(), Amendment::Forget { completed: false }),
        (handed_back(), owner(), Amendment::Release),
        (completed(), sequence(), Amendment::Forget { completed: true }),
        (completed(), sequence(), Amendment::Redact),
        (completed(), owner(), Amendment::Forget { completed: true }),
        (completed(), owner(), Amendment::Redact),
        (completed(), attempt(), Amendment::Forget { completed: true }),
        (completed(), attempt(), Amendment::Redact),
    ] {
        let (world, store, key) = amendable(calls).await;
        world.put(found.clone()).await;
        let read = store.read(&[key], ResultData::Omit).await.remove(0).unwrap().unwrap();
        // That record has expired since, and another claim has used the key.
        world.put(found.into_iter().chain([added])).await;
        let before = world.item().await;
        let request = AmendRequest::new(key, &read, amendment);
        let amended = store.amend(std::slice::from_ref(&request)).await.remove(0).unwrap();
        assert!(matches!(amended, Amended::Unchanged { .. }), "{request:?}: {amended:?}");
        assert_eq!(world.item().await, before, "{request:?}");
    }
}

/// Returns a store whose clock is at [`FUTURE`], and the key of the world's operation.
async fn amendable(calls: Calls) -> (World, DynamoDbStore, KeyHash) {
    let world = World::of(calls).await;
    let store = Config::new(&world.table).calls(calls).build(world.direct.clone()).unwrap();
    let key = world.once.key_hash(CHARGE, KEY).unwrap();
    (world, store.with_clock(ManualClock::at(FUTURE)), key)
}

in_both_shapes!(
    an_item_of_a_typical_operation_takes_one_write_unit,
    an_attribute_that_is_not_known_survives_every_write,
    an_item_has_exactly_the_documented_attributes,
    a_remembered_failure_has_its_own_status,
    a_new_claim_removes_the_expired_result,
    a_large_result_that_compresses_is_stored_as_bytes_and_comes_back_whole,
    a_result_too_large_for_an_item_is_dropped_before_it_is_sent,
    a_completed_record_of_powertools_is_replayed,
    a_running_record_of_powertools_is_taken_over_after_its_lease,
    a_claim_is_free_after_the_end_of_its_lease_and_margin_and_not_at_it,
    a_running_record_without_a_lease_is_live_until_it_expires,
    a_running_record_with_neither_lease_nor_expiration_stays_live,
    an_expired_record_counts_as_absent_while_it_is_still_visible,
    an_expired_record_counts_as_absent_whatever_its_attempt,
    records_of_a_newer_deployment_are_left_to_it,
    a_stored_result_that_no_longer_decodes_is_a_permanent_error,
    an_operator_changes_records_that_have_only_a_status,
    an_operator_changes_no_record_with_attributes_that_were_not_read,
);

/// An amendment of a record that was read before it expired.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_item_that_cannot_be_read_is_gone_for_an_amendment() {
    let world = World::new().await;
    let store = world.store(Calls::Auto, &ManualClock::at(FUTURE)).await;
    let (plain, ordered) = (requests::claim(), requests::ordered(&requests::entity(), 5));
    for claim in [&plain, &ordered] {
        granted(&store, claim).await;
    }
    let settle =
        Amendment::Settle { outcome: FinalStatus::Completed, result: requests::json("1"), retention: RETENTION };
    for (claim, amendment) in
        [(&plain, Amendment::Forget { completed: false }), (&plain, Amendment::Release), (&ordered, settle)]
    {
        let record = read_one(&store, claim).await.unwrap();
        let written = world.read(&claim.key).await;
        let unreadable = [("status", text("DONE")), ("expiration", number(FUTURE.seconds_rounded_down()))];
        let changes = unreadable.map(|(name, value)| (name.to_owned(), value));
        world.write(&claim.key, written.clone().into_iter().chain(changes).collect()).await;
        let request = AmendRequest::new(claim.key, &record, amendment);
        let answer = store.amend(std::slice::from_ref(&request)).await.remove(0);
        assert_eq!(answer.unwrap(), Amended::Gone, "{request:?}");
        world.write(&claim.key, written).await;
    }
}
