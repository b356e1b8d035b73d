//! Commits of a handler's writes with the outcome, as requests to DynamoDB.

use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Delete, Put, Update};
use lambda_once::{
    DynamoDbStore, ErrorKind, ErrorStatus,
    clock::ManualClock,
    record::{KeyHash, StoredResult},
    store::{
        ClaimRequest, Settled, Settlement,
        dynamodb::{Calls, Config, Writes},
        transaction::Transactional,
    },
};
use serde_json::json;

use super::{World, item, text};
use crate::support::{
    FUTURE,
    collector::{Collector, Line},
    requests::{LAPSE, RETENTION, claim, complete, entity, granted, json as stored, ordered, rival, settle_of},
};

/// Adds a write of a row to the world's table.
fn put(world: &World, writes: &Writes) {
    let put = Put::builder().table_name(&world.table).item("id", text("row 1"));
    writes.put(put.build().unwrap()).unwrap();
}

/// Returns a store with a claim, and a transaction that writes a row.
async fn with_a_row(world: &World, clock: &ManualClock) -> (DynamoDbStore, ClaimRequest, Writes) {
    let (store, claim) = (world.store(Calls::Single, clock).await, claim());
    granted(&store, &claim).await;
    let writes = store.open();
    put(world, &writes);
    (store, claim, writes)
}

#[tokio::test]
async fn each_kind_of_write_is_committed_with_the_outcome() {
    let world = World::new().await;
    let store = world.store(Calls::Single, &ManualClock::at(FUTURE)).await;
    let claim = claim();
    granted(&store, &claim).await;
    for id in ["row 2", "row 3"] {
        world.put_item(item([("id", text(id)), ("cents", text("1"))])).await;
    }
    let writes = store.open();
    put(&world, &writes);
    let update = Update::builder().table_name(&world.table).key("id", text("row 2"));
    let update = update.update_expression("SET #cents = :cents").expression_attribute_names("#cents", "cents");
    writes.update(update.expression_attribute_values(":cents", text("2")).build().unwrap()).unwrap();
    let delete = Delete::builder().table_name(&world.table).key("id", text("row 3"));
    writes.delete(delete.build().unwrap()).unwrap();
    let check = ConditionCheck::builder().table_name(&world.table).key("id", text("row 4"));
    writes.check(check.condition_expression("attribute_not_exists(id)").build().unwrap()).unwrap();

    let settled = store.commit(&writes, Some(&settle_of(&claim, complete("1")))).await.unwrap();
    assert_eq!(settled, Settled::Done { found: None });
    assert_eq!(world.read(&claim.key).await["status"], text("COMPLETED"));
    assert!(world.get("row 1".to_owned()).await.is_some());
    assert_eq!(world.get("row 2".to_owned()).await.unwrap()["cents"], text("2"));
    assert_eq!(world.get("row 3".to_owned()).await, None);
}

#[tokio::test]
async fn a_condition_that_does_not_hold_ends_the_transaction_of_its_handler() {
    let world = World::new().await;
    let (store, claim, writes) = with_a_row(&world, &ManualClock::at(FUTURE)).await;
    let check = ConditionCheck::builder().table_name(&world.table).key("id", text("row 4"));
    writes.check(check.condition_expression("attribute_exists(id)").build().unwrap()).unwrap();
    let error = store.commit(&writes, Some(&settle_of(&claim, complete("1")))).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Transaction, ErrorStatus::Temporary), "{error}");
    assert!(error.to_string().contains("write 2 of the handler"), "{error}");
    assert_eq!(world.read(&claim.key).await["status"], text("INPROGRESS"));
    assert_eq!(world.get("row 1".to_owned()).await, None);
}

#[tokio::test]
async fn a_transaction_without_writes_and_without_an_outcome_is_not_sent() {
    let world = World::new().await;
    let store = world.store(Calls::Single, &ManualClock::at(FUTURE)).await;
    assert_eq!(store.commit(&store.open(), None).await.unwrap(), Settled::Done { found: None });
    assert!(world.requests().is_empty(), "{:?}", world.requests());
}

#[tokio::test]
async fn an_outcome_without_writes_takes_no_transaction() {
    let world = World::new().await;
    let store = world.store(Calls::Single, &ManualClock::at(FUTURE)).await;
    let claim = claim();
    granted(&store, &claim).await;
    world.proxy.reset();
    let settled = store.commit(&store.open(), Some(&settle_of(&claim, complete("1")))).await.unwrap();
    assert_eq!(settled, Settled::Done { found: None });
    assert_eq!(world.requests(), ["UpdateItem"]);
}

#[tokio::test]
async fn a_commit_that_is_not_permitted_is_sent_once() {
    let world = World::new().await;
    let (store, claim, writes) = with_a_row(&world, &ManualClock::at(FUTURE)).await;
    world.proxy.reset();
    world.proxy.on_command("TransactWriteItems").access_denied();
    let error = store.commit(&writes, Some(&settle_of(&claim, complete("1")))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
    assert_eq!(world.requests(), ["TransactWriteItems"]);
}

/// With the writes of the handler, or with the item's other attributes, the result may be too large. DynamoDB rejects the
/// request in the first case, and cancels the transaction in the second.
#[tokio::test]
async fn a_rejected_commit_is_sent_once_more_without_its_result() {
    let world = World::new().await;
    let store = world.store(Calls::Single, &ManualClock::at(FUTURE)).await;
    let cases = [false, true].map(|is_cancelled| [(claim(), is_cancelled), (ordered(&entity(), 5), is_cancelled)]);
    for (claim, is_cancelled) in cases.into_iter().flatten() {
        granted(&store, &claim).await;
        let writes = store.open();
        put(&world, &writes);
        world.proxy.reset();
        let (collector, _guard) = Collector::install();
        let commits = world.proxy.on_command("TransactWriteItems");
        if is_cancelled {
            commits.cancel(&["ValidationError", "None", "None"])
        } else {
            commits.validation()
        }
        let settled = store.commit(&writes, Some(&settle_of(&claim, complete("1")))).await.unwrap();
        assert_eq!(settled, Settled::Done { found: None });
        assert_eq!(world.requests(), ["TransactWriteItems", "TransactWriteItems"]);
        let owner = claim.owner.to_hex();
        let token = |place: usize| world.proxy.requests()[place].body()["ClientRequestToken"].clone();
        assert_eq!([token(0), token(1)], [owner.clone(), format!("{owner}d")]);
        let item = world.read(&claim.key).await;
        assert_eq!((&item["status"], item.get("data")), (&text("COMPLETED"), None));
        assert_eq!(item["result_dropped"], AttributeValue::Bool(true));
        assert!(world.get("row 1".to_owned()).await.is_some());
        assert_eq!(reports_of_dropped_results(&collector), [claim.key.to_string()]);
    }
}

/// Returns the keys in the log events about results that were dropped.
fn reports_of_dropped_results(collector: &Collector) -> Vec<String> {
    let is_about_it = |line: &Line| line.get("message").contains("the result is dropped");
    collector.lines().iter().filter(|line| is_about_it(line)).map(|line| line.get("key").to_owned()).collect()
}

/// The log does not claim an outcome that is not recorded.
#[tokio::test]
async fn a_rejected_commit_whose_lease_is_lost_reports_no_dropped_result() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let (store, claim, writes) = with_a_row(&world, &clock).await;
    clock.advance(LAPSE);
    granted(&store, &rival(&claim)).await;
    world.proxy.reset();
    world.proxy.on_command("TransactWriteItems").validation();
    let (collector, _guard) = Collector::install();
    let settled = store.commit(&writes, Some(&settle_of(&claim, complete("1")))).await.unwrap();
    assert!(matches!(settled, Settled::LeaseLost { .. }), "{settled:?}");
    assert_eq!(world.requests(), ["TransactWriteItems", "TransactWriteItems"]);
    assert!(reports_of_dropped_results(&collector).is_empty());
}

/// The record's write is the first one, if there is an outcome.
#[tokio::test]
async fn a_rejected_write_of_the_handler_is_an_error_of_its_transaction() {
    let world = World::new().await;
    let (store, claim, _) = with_a_row(&world, &ManualClock::at(FUTURE)).await;
    let settle = settle_of(&claim, complete("1"));
    for (request, reasons) in [(Some(&settle), &["None", "ValidationError"][..]), (None, &["ValidationError"])] {
        let writes = store.open();
        put(&world, &writes);
        world.proxy.reset();
        world.proxy.on_command("TransactWriteItems").cancel(reasons);
        let error = store.commit(&writes, request).await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Transaction, ErrorStatus::Temporary), "{error}");
        assert!(error.to_string().contains("write 1 of the handler"), "{error}");
        assert_eq!(world.requests(), ["TransactWriteItems"]);
    }
}

/// Not the result, but a write of the handler may be invalid.
#[tokio::test]
async fn a_commit_that_is_rejected_without_its_result_is_a_permanent_error() {
    let world = World::new().await;
    let (store, claim) = (world.store(Calls::Single, &ManualClock::at(FUTURE)).await, claim());
    granted(&store, &claim).await;
    let without_result = Settlement::complete(StoredResult::default(), RETENTION);
    for (settlement, requests) in [(complete("1"), 2), (without_result, 1)] {
        let writes = store.open();
        put(&world, &writes);
        world.proxy.on_command("TransactWriteItems").times(requests).validation();
        world.proxy.reset();
        let error = store.commit(&writes, Some(&settle_of(&claim, settlement))).await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Request, ErrorStatus::Permanent), "{error}");
        assert_eq!(world.requests().len(), requests);
        assert_eq!(world.read(&claim.key).await["status"], text("INPROGRESS"));
    }
}

#[tokio::test]
async fn a_commit_that_lost_its_lease_takes_no_read() {
    let world = World::new().await;
    let clock = ManualClock::at(FUTURE);
    let (store, claim, writes) = with_a_row(&world, &clock).await;
    clock.advance(LAPSE);
    let taker = rival(&claim);
    granted(&store, &taker).await;
    world.proxy.reset();
    let settled = store.commit(&writes, Some(&settle_of(&claim, complete("1")))).await.unwrap();
    let Settled::LeaseLost { current: Some(record) } = settled else { panic!("{settled:?}") };
    assert_eq!(record.owner, Some(taker.owner));
    assert_eq!(world.requests(), ["TransactWriteItems"]);
}

#[tokio::test]
async fn a_token_of_another_transaction_is_a_temporary_error() {
    let world = World::new().await;
    let (store, claim, writes) = with_a_row(&world, &ManualClock::at(FUTURE)).await;
    let code = "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException";
    world.proxy.on_command("TransactWriteItems").respond_json(400, &json!({ "__type": code }));
    let error = store.commit(&writes, Some(&settle_of(&claim, complete("1")))).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{error}");
    world.all_struck();
}

/// A different request with the same token would be refused.
#[tokio::test]
async fn an_ordered_commit_that_is_rebuilt_has_a_different_token() {
    let world = World::new().await;
    let store = world.store(Calls::Single, &ManualClock::at(FUTURE)).await;
    let claim = ordered(&entity(), 5);
    granted(&store, &claim).await;
    let writes = store.open();
    put(&world, &writes);
    world.proxy.reset();
    let mark_refused = ["None", "ConditionalCheckFailed", "None"];
    world.proxy.on_command("TransactWriteItems").times(2).cancel(&mark_refused);
    let settled = store.commit(&writes, Some(&settle_of(&claim, complete("1")))).await.unwrap();
    assert_eq!(settled, Settled::Done { found: None });
    let requests = world.proxy.requests().into_iter();
    let commits = requests.filter(|request| request.command == "TransactWriteItems");
    let tokens: Vec<_> = commits.map(|commit| commit.body()["ClientRequestToken"].clone()).collect();
    let owner = claim.owner.to_hex();
    assert_eq!(tokens, [owner.clone(), format!("{owner}1"), format!("{owner}2")]);
}

#[tokio::test]
async fn a_commit_without_a_claim_has_the_attributes_of_its_outcome() {
    let world = World::new().await;
    let config = Config::new(&world.table).listing_index(true);
    let store = config.build(world.direct.clone()).unwrap().with_clock(ManualClock::at(FUTURE));
    let is_true = || AttributeValue::Bool(true);
    let mut key = [0x2f; 32];
    for (settlement, name, value, is_open) in [
        (complete("1"), "data", text("1"), false),
        (Settlement::complete(StoredResult::DROPPED, RETENTION), "result_dropped", is_true(), false),
        (Settlement::complete(StoredResult::SUPERSEDED, RETENTION), "superseded", is_true(), false),
        (Settlement::fail(stored("{}"), RETENTION), "data", text("{}"), true),
    ] {
        key[0] += 1;
        let claim = ClaimRequest { key: KeyHash::from_bytes(key), ..claim() };
        let writes = store.open();
        store.claim_within(&writes, &claim).await.unwrap();
        let settled = store.commit(&writes, Some(&settle_of(&claim, settlement))).await.unwrap();
        assert_eq!(settled, Settled::Done { found: None });
        let item = world.read(&claim.key).await;
        assert_eq!(item[name], value, "{item:?}");
        // The partition of the index ends with the key's last digit.
        let open = is_open.then(|| text("once#orders#f"));
        assert_eq!(item.get("open"), open.as_ref(), "{item:?}");
    }
}
