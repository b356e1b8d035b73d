//! Records in the layout of AWS Powertools, against literals. `make powertools` tests them with Powertools itself.

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_once::{
    CachedStore, DynamoDbStore, Error, ErrorKind, Failure, Idempotency, Outcome, OutcomeKind, Store, Verdict,
    clock::ManualClock,
    order::Entity,
    record::{StoredData, StoredResult},
    store::{
        ClaimRequest, Claimed, FinalStatus, Refusal, ResultData, Settled, Settlement, Takeover,
        amend::{Amend, AmendRequest, Amendment},
        dynamodb::{Calls, Config, Powertools},
        fault::FaultStore,
        listing::{List, ListRequest, ListedState},
        transaction::Transactional,
    },
};
use serde_json::{Value, json};
use tracing::Level;

use super::{World, assert_outcome, in_both_shapes, item, seconds, support, text};
use crate::support::{
    FUTURE,
    collector::Collector,
    requests::{
        HAND_BACK, LAPSE, RETENTION, claim, claim_one, complete, entity, granted, ordered, read_one, rival, settle_of,
        settle_one,
    },
};

const PLACE: &str = "place";
/// The MD5 of `1`, as each language writes it.
const IN_PYTHON: &str = "c4ca4238a0b923820dcc509a6f75849b";
const IN_TYPESCRIPT: &str = "xMpCOKC5I4INzFCab3WEmw==";

/// Returns a store on the world's table that shares the records of this function, and its engine.
fn shared(world: &World, calls: Calls, function: Powertools) -> (DynamoDbStore, Idempotency) {
    let clock = ManualClock::at(FUTURE);
    let config = Config::new(&world.table).calls(calls).powertools(function);
    let store = config.build(world.direct.clone()).unwrap().with_clock(clock.clone());
    (store.clone(), Idempotency::builder(store).clock(clock).build().unwrap())
}

fn result() -> Value {
    json!({ "lines": [null, true] })
}

/// TypeScript removes spaces around a prefix. The payload is `0`.
async fn an_item_has_exactly_the_attributes_of_its_language(calls: Calls) {
    let lines = AttributeValue::L(vec![AttributeValue::Null(true), AttributeValue::Bool(true)]);
    for (function, id, validation, data) in [
        (
            Powertools::python(" orders "),
            format!(" orders #{IN_PYTHON}"),
            "cfcd208495d565ef66e7dff9f98764da",
            text(r#"{"lines":[null,true]}"#),
        ),
        (
            Powertools::typescript(" orders "),
            format!("orders#{IN_TYPESCRIPT}"),
            "z80ghJXVZe9m59/5+Ydk2g==",
            AttributeValue::M(item([("lines", lines)])),
        ),
    ] {
        for is_claimed in [true, false] {
            let world = World::new().await;
            let (store, once) = shared(&world, calls, function.clone());
            let operation = |payload: u32| once.operation(PLACE, &1).payload(&payload).label("order 7");
            let outcome = if is_claimed {
                operation(0).run(async || Ok::<_, Failure>(result())).await
            } else {
                let operation = operation(0).in_transaction(&store).without_claim();
                operation.run(async |_| Ok::<_, Failure>(result())).await
            };
            assert_outcome!(outcome, Ok(Outcome::Executed(_)));

            let mut found = world.only_item().await.unwrap();
            assert_eq!(found.remove("in_progress_expiration").is_some(), is_claimed);
            for name in ["attempt", "expiration", "owner", "prior_status", "v"] {
                assert!(found.remove(name).is_some(), "{name}");
            }
            let expected = item([
                ("id", text(&id)),
                ("status", text("COMPLETED")),
                ("validation", text(validation)),
                ("data", data.clone()),
            ]);
            assert_eq!(found, expected);

            let again = operation(0).run(async || Ok::<_, Failure>(Value::Null)).await;
            assert_outcome!(again, Ok(Outcome::Replayed(replayed)) if replayed == result());
            let other = operation(1).run(async || Ok::<_, Failure>(Value::Null)).await;
            assert_outcome!(other, Ok(Outcome::Mismatch(_)));
        }
    }
}

/// AWS Powertools may use the names of other attributes with a different meaning.
async fn attributes_of_others_in_powertools_items_are_left_alone(calls: Calls) {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let config = Config::new(&world.table).calls(calls).powertools(Powertools::python("orders"));
    let store = config.build(support::client(&world.url).await).unwrap().with_clock(clock.clone());
    let once = Idempotency::builder(store.clone()).build().unwrap();
    let claim = ClaimRequest { key: once.key_hash(PLACE, &1).unwrap(), label: Some("order 7".into()), ..claim() };
    granted(&store, &claim).await;
    let others = ["operation", "label", "sequence", "claimed_at", "settled_at", "released", "open"];
    let are_kept = async || {
        let found = world.only_item().await.unwrap();
        others.iter().all(|name| found.get(*name) == Some(&text("kept")))
    };
    let mut found = world.only_item().await.unwrap();
    found.extend(others.map(|name| (name.to_owned(), text("kept"))));
    world.put_item(found).await;

    clock.advance(LAPSE);
    let taker = rival(&claim);
    assert!(granted(&store, &taker).await.took_over());
    assert!(are_kept().await, "a takeover");
    settle_one(&store, &taker, HAND_BACK).await.unwrap();
    assert!(are_kept().await, "a hand-back");
    let next = rival(&claim);
    assert!(granted(&store, &next).await.took_over());
    settle_one(&store, &next, complete("1")).await.unwrap();
    assert!(are_kept().await, "a completion");
    clock.advance(RETENTION * 2);
    let last = rival(&claim);
    granted(&store, &last).await;
    assert!(are_kept().await, "a claim over an outcome that has expired");

    // In batches a claim takes one request if the key is new, and three if the record is replaced.
    let requests = world.requests();
    match calls {
        Calls::Batched => assert_eq!(requests, ["BatchExecuteStatement"; 12]),
        _ => assert_eq!(requests, ["UpdateItem"; 6]),
    }
    assert_eq!(read_one(&store, &last).await.unwrap().owner, Some(last.owner));

    settle_one(&store, &last, complete("1")).await.unwrap();
    clock.advance(RETENTION * 2);
    let (transaction, committing) = (store.open(), rival(&claim));
    store.claim_within(&transaction, &committing).await.unwrap();
    let settled = store.commit(&transaction, Some(&settle_of(&committing, complete("1")))).await.unwrap();
    assert!(matches!(settled, Settled::Done { .. }), "{settled:?}");
    assert!(are_kept().await, "a commit without a claim");
}

/// In other records this attribute is an operator's release of an attempt.
async fn a_number_named_released_in_a_powertools_item_releases_nothing(calls: Calls) {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let config = Config::new(&world.table).calls(calls).powertools(Powertools::python("orders"));
    let store = config.build(support::client(&world.url).await).unwrap().with_clock(clock.clone());
    let once = Idempotency::builder(store.clone()).build().unwrap();
    let key = once.key_hash(PLACE, &1).unwrap();
    let claim = ClaimRequest { key, takeover: Takeover::Refused, ..claim() };
    granted(&store, &claim).await;
    let mut found = world.only_item().await.unwrap();
    found.extend(item([("released", AttributeValue::N("1".to_owned()))]));
    assert_eq!(found["attempt"], AttributeValue::N("1".to_owned()));
    world.put_item(found).await;

    clock.advance(LAPSE);
    let refused = claim_one(&store, &rival(&claim)).await.unwrap();
    assert!(matches!(refused, Claimed::Refused(Refusal::Abandoned { .. })), "{refused:?}");
    let (transaction, committing) = (store.open(), rival(&claim));
    store.claim_within(&transaction, &committing).await.unwrap();
    let settled = store.commit(&transaction, Some(&settle_of(&committing, complete("1")))).await.unwrap();
    let Settled::LeaseLost { current: Some(record) } = settled else { panic!("{settled:?}") };
    assert_eq!(record.owner, Some(claim.owner));
}

in_both_shapes!(
    an_item_has_exactly_the_attributes_of_its_language,
    attributes_of_others_in_powertools_items_are_left_alone,
    a_number_named_released_in_a_powertools_item_releases_nothing,
);

#[tokio::test]
async fn with_a_sort_key_the_partition_key_has_its_constant() {
    let client = support::client(&support::dynamodb_endpoint()).await;
    let table = support::unique_name("sorted");
    let config = Config::new(&table).sort_key("sk", "idempotency#orders").powertools(Powertools::python("orders"));
    let store = config.build(client.clone()).unwrap().with_clock(ManualClock::at(FUTURE));
    store.create_table().await.unwrap();
    let once = Idempotency::builder(store).clock(ManualClock::at(FUTURE)).build().unwrap();
    let outcome = once.operation(PLACE, &1).run(async || Ok::<_, Failure>(())).await;
    assert_outcome!(outcome, Ok(Outcome::Executed(())));
    let items = client.scan().table_name(&table).consistent_read(true).send().await.unwrap().items.unwrap();
    let hash = text(&format!("orders#{IN_PYTHON}"));
    assert_eq!((&items[0]["id"], &items[0]["sk"]), (&text("idempotency#orders"), &hash));
}

#[tokio::test]
async fn a_wrapped_store_has_the_keys_of_powertools() {
    let world = World::new().await;
    let (store, _) = shared(&world, Calls::Single, Powertools::python("orders"));
    let wrapped: [Box<dyn Store>; 3] = [
        Box::new(std::sync::Arc::new(store.clone())),
        Box::new(FaultStore::new(store.clone(), 1)),
        Box::new(CachedStore::new(store).with_clock(ManualClock::at(FUTURE))),
    ];
    let expected = [OutcomeKind::Executed, OutcomeKind::Replayed, OutcomeKind::Replayed];
    for (store, expected) in wrapped.into_iter().zip(expected) {
        let once = Idempotency::builder(store).clock(ManualClock::at(FUTURE)).build().unwrap();
        let outcome = once.operation(PLACE, &1).run(async || Ok::<_, Failure>(7)).await;
        assert_eq!(outcome.unwrap().kind(), expected);
        assert_eq!(world.only_item().await.unwrap()["id"], text(&format!("orders#{IN_PYTHON}")));
    }
}

/// A function in TypeScript that returns `undefined` stores no result. In Python there always is one.
#[tokio::test]
async fn a_completed_record_without_a_result_has_null_in_typescript_alone() {
    for (function, id, data) in [
        (Powertools::python("orders"), format!("orders#{IN_PYTHON}"), None),
        (
            Powertools::typescript("orders"),
            format!("orders#{IN_TYPESCRIPT}"),
            Some(StoredData::Json("null".to_owned())),
        ),
    ] {
        let world = World::new().await;
        let (store, once) = shared(&world, Calls::Single, function);
        let key = once.key_hash(PLACE, &1).unwrap();
        for (status, dropped, data) in
            [("COMPLETED", false, data), ("COMPLETED", true, None), ("INPROGRESS", false, None)]
        {
            let record = [("id", text(&id)), ("status", text(status)), ("expiration", seconds(3600))];
            let dropped_result = ("result_dropped", AttributeValue::Bool(dropped));
            world.put_item(item(record).into_iter().chain(item([dropped_result])).collect()).await;
            let record = store.read(&[key], ResultData::Include).await.remove(0).unwrap().expect("a record");
            assert_eq!(record.result, StoredResult { data, dropped, superseded: false }, "{status}");
            let record = store.read(&[key], ResultData::Omit).await.remove(0).unwrap().expect("a record");
            assert_eq!(record.result, StoredResult { data: None, dropped, superseded: false }, "{status}");
        }
    }
}

/// Powertools could not read it otherwise.
#[tokio::test]
async fn a_large_result_is_not_compressed() {
    let world = World::new().await;
    let (_, once) = shared(&world, Calls::Single, Powertools::python("orders"));
    let large = "lorem ipsum ".repeat(1_000);
    let outcome = once.operation(PLACE, &1).run(async || Ok::<_, Failure>(large.clone())).await;
    assert_outcome!(outcome, Ok(Outcome::Executed(_)));
    assert_eq!(world.only_item().await.unwrap()["data"], text(&format!("\"{large}\"")));
}

/// The records have no failures, so the operation may run again.
#[tokio::test]
async fn a_permanent_failure_leaves_no_record_and_no_error_in_the_log() {
    for is_claimed in [true, false] {
        let world = World::new().await;
        let (store, once) = shared(&world, Calls::Single, Powertools::python("orders"));
        let operation = once.operation(PLACE, &1);
        let fails = || Err::<(), _>(Failure::permanent("no such dish"));
        let (collector, guard) = Collector::install();
        let outcome = if is_claimed {
            operation.run(async || fails()).await
        } else {
            operation.in_transaction(&store).without_claim().run(async |_| fails()).await
        };
        drop(guard);
        assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Permanent);
        assert_eq!(world.only_item().await, None, "{is_claimed}");
        let lines = collector.lines();
        assert!(lines.iter().all(|line| line.level > Level::ERROR), "{is_claimed}: {lines:?}");
    }
}

#[tokio::test]
async fn a_result_that_dynamodb_has_no_value_for_is_dropped_and_logged() {
    let world = World::new().await;
    let (store, once) = shared(&world, Calls::Single, Powertools::typescript("orders"));
    for (result, is_dropped) in [("[null,0.5]", false), ("0.01e-129", true)] {
        let claim = ClaimRequest { key: once.key_hash(PLACE, result).unwrap(), ..claim() };
        granted(&store, &claim).await;
        let (collector, _guard) = Collector::install();
        settle_one(&store, &claim, complete(result)).await.unwrap();
        let is_logged = collector.lines().iter().any(|line| line.get("message").contains("so it is dropped"));
        assert_eq!(is_logged, is_dropped, "{result}");
        assert_eq!(read_one(&store, &claim).await.unwrap().result.dropped, is_dropped, "{result}");
    }
}

fn assert_refused(error: &Error, says: &str) {
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test]
async fn requests_that_the_records_cannot_represent_are_refused() {
    let world = World::new().await;
    let (store, once) = shared(&world, Calls::Single, Powertools::python("orders"));
    let mine = ClaimRequest { key: once.key_hash(PLACE, &1).unwrap(), ..claim() };
    let in_order = ClaimRequest { order: ordered(&entity(), 1).order, ..mine.clone() };
    let of_another_store = claim();
    for (claim, says) in [(&in_order, "no order of operations"), (&of_another_store, "was not hashed")] {
        assert_refused(&claim_one(&store, claim).await.unwrap_err(), says);
        assert_refused(&store.claim_within(&store.open(), claim).await.unwrap_err(), says);
        assert_refused(&settle_one(&store, claim, complete("1")).await.unwrap_err(), says);
    }
    let listed = store.list(&ListRequest::new(ListedState::Failed)).await;
    assert_refused(&listed.unwrap_err(), "cannot be listed");
    let marks = store.marks(&[Entity::of(&in_order.key)]).await.remove(0);
    assert_refused(&marks.unwrap_err(), "have no order");
    granted(&store, &mine).await;
    let failed = Settlement::fail(StoredResult::DROPPED, RETENTION);
    let superseded = Settlement::complete(StoredResult::SUPERSEDED, RETENTION);
    for (settlement, says) in [(failed, "no failures"), (superseded, "is superseded")] {
        assert_refused(&settle_one(&store, &mine, settlement).await.unwrap_err(), says);
    }
    assert_eq!(settle_one(&store, &mine, complete("1")).await.unwrap(), Settled::Done { found: None });
}

#[tokio::test]
async fn amendments_are_refused_without_a_request() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let config = Config::new(&world.table).powertools(Powertools::python("orders"));
    let store = config.build(support::client(&world.url).await).unwrap().with_clock(clock.clone());
    let once = Idempotency::builder(store.clone()).build().unwrap();
    let claim = ClaimRequest { key: once.key_hash(PLACE, &1).unwrap(), ..claim() };
    let refuses_all = async |amendments: Vec<Amendment>| {
        let read = read_one(&store, &claim).await.unwrap();
        world.proxy.reset();
        for amendment in amendments {
            let request = AmendRequest::new(claim.key, &read, amendment);
            let amended = store.amend(&[request]).await.remove(0);
            assert_refused(&amended.unwrap_err(), "cannot be amended");
        }
        assert!(world.requests().is_empty(), "{:?}", world.requests());
    };
    let settle = |outcome| Amendment::Settle { outcome, result: StoredResult::DROPPED, retention: RETENTION };
    let (completed, failed) = (settle(FinalStatus::Completed), settle(FinalStatus::Failed));
    granted(&store, &claim).await;
    clock.advance(LAPSE);
    refuses_all(vec![Amendment::Forget { completed: false }, completed, failed, Amendment::Release]).await;
    settle_one(&store, &claim, complete("1")).await.unwrap();
    refuses_all(vec![Amendment::Forget { completed: true }, Amendment::Redact]).await;
}

#[tokio::test]
async fn a_prefix_is_not_empty_and_leaves_less_room_for_results() {
    let client = support::client(&support::dynamodb_endpoint()).await;
    let build = |function| Config::new("t").powertools(function).build(client.clone());
    for function in [Powertools::python(""), Powertools::typescript(" ")] {
        assert_refused(&build(function).unwrap_err(), "must not be empty");
    }
    let room = |prefix: &str| build(Powertools::python(prefix)).unwrap().limits().max_result_bytes;
    assert_eq!(room("orders") - room("orders.app.handler"), 12);
}
