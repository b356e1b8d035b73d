//! Records in the layout of AWS Powertools, against literals. `make powertools` tests them with Powertools itself.

use aws_sdk_dynamodb::types::AttributeValue;
use lambda_once::{
    DynamoDbStore, Error, ErrorKind, Failure, Idempotency, Outcome, Store,
    clock::ManualClock,
    record::{StoredData, StoredResult},
    store::{
        ClaimRequest, ResultData, Settled, Settlement,
        dynamodb::{Calls, Config, Powertools},
        transaction::Transactional,
    },
};
use serde_json::{Value, json};

use super::{World, assert_outcome, in_both_shapes, item, seconds, support, text};
use crate::support::{
    FUTURE,
    collector::Collector,
    requests::{RETENTION, claim, claim_one, complete, entity, granted, ordered, read_one, settle_one},
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

in_both_shapes!(an_item_has_exactly_the_attributes_of_its_language);

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
        world.put_item(item([("id", text(&id)), ("status", text("COMPLETED")), ("expiration", seconds(3600))])).await;
        let key = once.key_hash(PLACE, &1).unwrap();
        let record = store.read(&[key], ResultData::Include).await.remove(0).unwrap().expect("a record");
        assert_eq!(record.result, StoredResult { data, dropped: false, superseded: false });
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
    granted(&store, &mine).await;
    let failed = Settlement::fail(StoredResult::DROPPED, RETENTION);
    let superseded = Settlement::complete(StoredResult::SUPERSEDED, RETENTION);
    for (settlement, says) in [(failed, "no failures"), (superseded, "is superseded")] {
        assert_refused(&settle_one(&store, &mine, settlement).await.unwrap_err(), says);
    }
    assert_eq!(settle_one(&store, &mine, complete("1")).await.unwrap(), Settled::Done { found: None });
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
