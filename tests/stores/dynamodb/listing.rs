//! The index for lists: its records, and the entries that are left behind.

use lambda_once::{
    DynamoDbStore, ErrorKind, Store,
    clock::ManualClock,
    record::KeyHash,
    store::{
        FinalStatus, Settled, Settlement,
        amend::{Amend, AmendRequest, Amended, Amendment},
        dynamodb::{Calls, Config, Powertools},
        listing::{Cursor, List, ListRequest, ListedState},
    },
};
use serde_json::json as body;

use super::{World, in_both_shapes, text};
use crate::support::{
    self,
    requests::{
        HAND_BACK, LAPSE, RELEASE, RETENTION, claim, claims, complete, entity, granted, is_granted, json, ordered,
        read_one, rival, settle_of, settle_one,
    },
    wire::{Protocol, Proxy, host_and_port},
};

/// Returns two stores on one table with the index, of which only the first uses it.
async fn stores(calls: Calls, clock: &ManualClock) -> [DynamoDbStore; 2] {
    let table = support::unique_name("listed");
    let client = support::client(&support::dynamodb_endpoint()).await;
    let store = |enabled| {
        let config = Config::new(&table).calls(calls).listing_index(enabled);
        config.build(client.clone()).unwrap().with_clock(clock.clone())
    };
    let stores = [store(true), store(false)];
    stores[0].create_table().await.unwrap();
    stores
}

/// Returns the number of entries in the index, and of the records that it lists.
async fn listed(store: &DynamoDbStore, state: ListedState) -> (u64, usize) {
    let of_all = store.list(&ListRequest::new(state)).await.unwrap();
    let request = ListRequest { operation: Some("orders".into()), ..ListRequest::new(state) };
    let of_one = store.list(&request).await.unwrap();
    assert_eq!((of_one.read, of_one.records.len()), (of_all.read, of_all.records.len()));
    assert_eq!((of_one.next, of_all.next), (None, None));
    (of_all.read, of_all.records.len())
}

async fn the_index_has_the_records_without_a_success(calls: Calls) {
    let clock = support::future_clock();
    let [store, _] = stores(calls, &clock).await;
    let claims = claims(4);
    assert!(store.claim(&claims).await.iter().all(is_granted));
    assert_eq!(listed(&store, ListedState::InProgress).await, (4, 4));
    let outcomes = [complete("1"), Settlement::fail(json("1"), RETENTION), RELEASE, HAND_BACK];
    let settles: Vec<_> = claims.iter().zip(outcomes).map(|(claim, outcome)| settle_of(claim, outcome)).collect();
    assert!(store.settle(&settles).await.iter().all(|answer| matches!(answer, Ok(Settled::Done { found: None }))));
    assert_eq!(listed(&store, ListedState::InProgress).await, (2, 1), "what failed and what was handed back");
    assert_eq!(listed(&store, ListedState::Failed).await, (2, 1));
    // A claim replaces an expired failure and completes.
    clock.advance(RETENTION + RETENTION);
    let again = rival(&claims[1]);
    granted(&store, &again).await;
    settle_one(&store, &again, complete("1")).await.unwrap();
    assert_eq!(listed(&store, ListedState::Failed).await, (1, 0), "the entry of the claim that was handed back");
    // An operator completes a lapsed claim, unordered and ordered, and fails one.
    for (claim, outcome, expected) in [
        (claim(), FinalStatus::Completed, (1, 0)),
        (ordered(&entity(), 1), FinalStatus::Completed, (1, 0)),
        (claim(), FinalStatus::Failed, (2, 1)),
    ] {
        granted(&store, &claim).await;
        clock.advance(LAPSE);
        let read = read_one(&store, &claim).await.unwrap();
        let settle = Amendment::Settle { outcome, result: json("1"), retention: RETENTION };
        let request = AmendRequest::new(claim.key, &read, settle);
        assert_eq!(store.amend(&[request]).await.remove(0).unwrap(), Amended::Changed);
        assert_eq!(listed(&store, ListedState::Failed).await, expected);
    }
}

async fn an_entry_that_is_left_behind_is_not_listed(calls: Calls) {
    let clock = support::future_clock();
    let [store, without] = stores(calls, &clock).await;
    let claims = claims(3);
    assert!(store.claim(&claims).await.iter().all(is_granted));
    for claim in &claims[..2] {
        settle_one(&without, claim, complete("1")).await.unwrap();
    }
    assert_eq!(listed(&store, ListedState::InProgress).await, (3, 1));
    assert_eq!(listed(&store, ListedState::Failed).await, (3, 0));
}

#[tokio::test]
async fn a_list_by_the_index_leaves_out_unreadable_records_and_no_failed_read() {
    let (url, table) = (support::dynamodb_endpoint(), support::unique_name("listed"));
    let proxy = Proxy::start(Protocol::DynamoDb, host_and_port(&url)).await;
    let direct = support::client(&url).await;
    let config = Config::new(&table).calls(Calls::Single).listing_index(true);
    config.clone().build(direct.clone()).unwrap().create_table().await.unwrap();
    let client = support::client(&proxy.in_place_of(&url)).await;
    let store = config.build(client).unwrap().with_clock(support::future_clock());
    let claims = claims(2);
    assert!(store.claim(&claims).await.iter().all(is_granted));
    let update = direct.update_item().table_name(&table).key("id", text(&format!("once#{}", claims[0].key)));
    let update = update.update_expression("SET #status = :status").expression_attribute_names("#status", "status");
    update.expression_attribute_values(":status", text("WAITING")).send().await.unwrap();
    assert_eq!(listed(&store, ListedState::InProgress).await, (2, 1));
    proxy.on_command("GetItem").access_denied();
    let error = store.list(&ListRequest::new(ListedState::InProgress)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
}

/// The proxy answers the first query of each page. The table, which a second one would need, does not exist.
#[tokio::test]
async fn a_page_by_the_index_ends_with_its_limit_or_where_a_query_ends() {
    let url = support::dynamodb_endpoint();
    let proxy = Proxy::start(Protocol::DynamoDb, host_and_port(&url)).await;
    let config = Config::new(support::unique_name("listed")).calls(Calls::Single).listing_index(true);
    let client = support::client(&proxy.in_place_of(&url)).await;
    let store = config.build(client).unwrap().with_clock(support::future_clock());
    let request =
        ListRequest { operation: Some("orders".into()), max_reads: 5, ..ListRequest::new(ListedState::Failed) };
    let last = body!({ "id": { "S": "once#00" }, "open": { "S": "once#orders#0" }, "claimed_at": { "N": "1" } });
    for (answer, next) in [
        // The limit is reached with the last entry of the first partition.
        (body!({ "Items": [], "Count": 0, "ScannedCount": 5 }), r#"["1"]"#),
        // A query also ends after a mebibyte.
        (
            body!({ "Items": [], "Count": 0, "ScannedCount": 2, "LastEvaluatedKey": last }),
            r#"["0","once#orders#0","1","once#00"]"#,
        ),
    ] {
        proxy.on_command("Query").respond_json(200, &answer);
        let page = store.list(&request).await.unwrap();
        assert_eq!(page.next.as_ref().map(Cursor::as_str), Some(next));
    }
    assert_eq!(proxy.requests().len(), 2);
}

#[tokio::test]
async fn a_list_without_the_index_is_consistent() {
    let world = World::new().await;
    let store = world.store(Calls::Single, &support::future_clock()).await;
    store.list(&ListRequest::new(ListedState::InProgress)).await.unwrap();
    let table = world.direct.describe_table().table_name(&world.table).send().await.unwrap().table.unwrap();
    assert!(table.global_secondary_indexes().is_empty(), "{table:?}");
    assert_eq!(world.requests(), ["Scan"]);
    assert_eq!(world.proxy.requests()[0].body()["ConsistentRead"], true);
}

#[tokio::test]
async fn a_cursor_of_another_store_is_refused() {
    let clock = support::future_clock();
    let [with_index, without_index] = stores(Calls::Single, &clock).await;
    let id = format!("once#{}", KeyHash::from_bytes([7; 32]));
    for (store, cursor) in [
        (&without_index, format!(r#"["{id}","{id}"]"#)),
        (&without_index, "[]".to_owned()),
        (&without_index, "{".to_owned()),
        (&with_index, format!(r#"["16","once#orders#0","1","{id}"]"#)),
        (&with_index, r#"["16"]"#.to_owned()),
        (&with_index, r#"["0","once#orders#0","1"]"#.to_owned()),
        (&with_index, r#"["0","once#orders#0","soon"]"#.to_owned()),
    ] {
        let request = ListRequest { after: Some(Cursor::new(&*cursor)), ..ListRequest::new(ListedState::InProgress) };
        let error = store.list(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request, "{cursor}: {error}");
        assert!(error.to_string().contains("begin with the first page"), "{cursor}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_powertools_have_no_index() {
    let client = support::client(&support::dynamodb_endpoint()).await;
    let config = Config::new("t").listing_index(true).powertools(Powertools::python("orders"));
    assert_eq!(config.build(client).unwrap_err().kind(), ErrorKind::Config);
}

in_both_shapes!(the_index_has_the_records_without_a_success, an_entry_that_is_left_behind_is_not_listed);
