//! The home Region: claims outside it are refused, and `warm_up` warns of a table with replicas.

use std::time::Duration;

use lambda_once::{
    DynamoDbStore, Error, ErrorKind, Failure, Idempotency, Outcome, Store,
    store::{
        ResultData,
        amend::{Amend, AmendRequest, Amendment},
        dynamodb::{Calls, Config},
        transaction::Transactional,
    },
};
use lambda_runtime::Context;
use serde_json::{Value, json};

use super::{CHARGE, KEY, World, deliveries::deliver, support};
use crate::support::{
    assert_outcome,
    collector::Collector,
    requests::{claim, claims},
};

/// The Region of the tests' client.
const HERE: &str = "us-east-1";
const ELSEWHERE: &str = "eu-central-1";

impl World {
    /// Returns a store on the world's table with this home Region, behind the proxy.
    async fn in_home(&self, region: &str) -> DynamoDbStore {
        let config = Config::new(&self.table).home_region(region);
        config.build(support::client(&self.url).await).unwrap().with_clock(self.clock.clone())
    }

    /// Returns the levels and texts of the logs of `warm_up`.
    async fn warnings_of(&self, store: &impl Store) -> Vec<String> {
        let (collector, _guard) = Collector::install();
        store.warm_up().await.unwrap();
        collector.lines().into_iter().map(|line| line.level.to_string() + " " + line.get("message")).collect()
    }
}

fn assert_refused(error: &Error) {
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, true), "{error}");
    for said in ["home Region eu-central-1 alone", "in us-east-1", "make us-east-1 the home Region"] {
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test]
async fn outside_the_home_region_claims_are_refused_before_any_request() {
    let world = World::new().await;
    let store = world.in_home(ELSEWHERE).await;
    for requests in [claims(1), claims(30)] {
        store.claim(&requests).await.into_iter().for_each(|answer| assert_refused(&answer.unwrap_err()));
    }
    assert_refused(&store.claim_within(&store.open(), &claim()).await.unwrap_err());
    let once = Idempotency::builder(store).clock(world.clock.clone()).build().unwrap();
    let work = || async { panic!("nothing was claimed") as Result<u32, Failure> };
    assert_refused(&once.operation(CHARGE, KEY).run(work).await.unwrap_err());
    assert_refused(&once.operation(CHARGE, KEY).ordered_by("order 7", 1_u64).run(work).await.unwrap_err());
    assert_eq!(deliver(&once, 0..3, Ok(()), Context::default()).await, ["m0", "m1", "m2"]);
    assert!(world.requests().is_empty(), "{:?}", world.requests());
}

#[tokio::test]
async fn outside_the_home_region_nothing_is_replayed_and_reads_pass() {
    let world = World::new().await;
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::Executed(1)));
    let store = world.in_home(ELSEWHERE).await;
    let once = Idempotency::builder(store.clone()).clock(world.clock.clone()).build().unwrap();
    assert_refused(&once.operation(CHARGE, KEY).run(|| world.work()).await.unwrap_err());
    let keys = [once.key_hash(CHARGE, KEY).unwrap()];
    assert!(store.read(&keys, ResultData::Omit).await.pop().unwrap().unwrap().is_some());
}

#[tokio::test]
async fn outside_the_home_region_no_record_is_amended() {
    let world = World::new().await;
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    let (store, key) = (world.in_home(ELSEWHERE).await, world.once.key_hash(CHARGE, KEY).unwrap());
    let record = store.read(&[key], ResultData::Omit).await.remove(0).unwrap().unwrap();
    let redact = AmendRequest::new(key, &record, Amendment::Redact);
    assert_refused(&store.amend(&[redact]).await.remove(0).unwrap_err());
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test]
async fn in_the_home_region_claims_take_the_same_requests() {
    let world = World::new().await;
    let once = Idempotency::builder(world.in_home(HERE).await).clock(world.clock.clone()).build().unwrap();
    assert_outcome!(once.operation(CHARGE, KEY).run(|| world.work()).await, Ok(Outcome::Executed(1)));
    assert_outcome!(once.operation(CHARGE, KEY).run(|| world.work()).await, Ok(Outcome::Replayed(1)));
    assert_eq!(world.requests(), ["UpdateItem"; 3]);
}

#[tokio::test]
async fn a_home_region_needs_a_name_and_a_client_with_a_region() {
    let client = support::client(&support::dynamodb_endpoint()).await;
    let error = Config::new("t").home_region("").build(client.clone()).unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("such as `eu-central-1`"), "{error}");
    let nowhere = aws_sdk_dynamodb::Config::builder().behavior_version_latest().build();
    let nowhere = aws_sdk_dynamodb::Client::from_conf(nowhere);
    let error = Config::new("t").home_region(HERE).build(nowhere.clone()).unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("set AWS_REGION"), "{error}");
    assert!(Config::new("t").build(nowhere).is_ok(), "no home Region, nothing to compare");
}

/// Returns DynamoDB's description of a global table.
fn described(replicas: &[&str], consistency: Option<&str>) -> Value {
    let replicas: Vec<Value> =
        replicas.iter().map(|region| json!({ "RegionName": region, "ReplicaStatus": "ACTIVE" })).collect();
    json!({ "Table": {
        "TableName": "records", "TableStatus": "ACTIVE", "ItemCount": 7, "GlobalTableVersion": "2019.11.21",
        "BillingModeSummary": { "BillingMode": "PAY_PER_REQUEST" }, "KeySchema": [{ "AttributeName": "id", "KeyType": "HASH" }],
        "Replicas": replicas, "MultiRegionConsistency": consistency,
    } })
}

#[tokio::test]
async fn a_global_table_without_a_home_region_is_warned_of() {
    let cases = [
        (described(&[ELSEWHERE, "us-west-2"], None), true),
        (described(&[ELSEWHERE], Some("EVENTUAL")), true),
        (described(&[ELSEWHERE], Some("STRONG")), false),
        (described(&[], None), false),
        (json!({ "Table": {} }), false),
        (json!("no table"), false),
    ];
    let world = World::new().await;
    let store = Config::new(&world.table).calls(Calls::Single).build(support::client(&world.url).await).unwrap();
    for (description, is_warned) in cases {
        world.proxy.on_command("DescribeTable").respond_json(200, &description);
        let warnings = world.warnings_of(&store).await;
        assert_eq!(warnings.len(), usize::from(is_warned), "{warnings:?}");
        assert!(warnings.iter().all(|line| line.starts_with("WARN") && line.contains("set `Config::home_region`")));
        world.all_struck();
    }
}

#[tokio::test]
async fn a_table_is_described_as_dynamodb_takes_it_if_that_is_permitted() {
    let world = World::new().await;
    let store = Config::new(&world.table).build(support::client(&world.url).await).unwrap();
    assert!(world.warnings_of(&store).await.is_empty());
    let requests = world.proxy.requests();
    let describes: Vec<_> = requests.iter().filter(|request| request.command == "DescribeTable").collect();
    assert!(describes.len() == 1 && requests.len() == 2, "{:?}", world.requests());
    assert_eq!(describes[0].body(), json!({ "TableName": world.table }));
    let direct = world.direct.describe_table().table_name(&world.table).send().await.unwrap();
    assert!(direct.table.unwrap().replicas.is_none(), "DynamoDB Local has no global tables");
    world.proxy.on_command("DescribeTable").access_denied();
    assert!(world.warnings_of(&store).await.is_empty());
    world.proxy.on_command("DescribeTable").times(2).drop_response();
    assert!(world.warnings_of(&store).await.is_empty());
    world.all_struck();
}

#[tokio::test]
async fn a_description_that_does_not_come_delays_the_start_by_half_a_second() {
    let world = World::new().await;
    let store = Config::new(&world.table).build(support::client(&world.url).await).unwrap();
    store.warm_up().await.unwrap();
    let _late = world.proxy.on_command("DescribeTable").hang();
    let begun = std::time::Instant::now();
    assert!(world.warnings_of(&store).await.is_empty());
    assert!(begun.elapsed() < Duration::from_secs(5), "an attempt of the client takes 20 s");
}

#[tokio::test]
async fn with_a_home_region_no_table_is_described_and_a_passive_one_warns() {
    let world = World::new().await;
    assert!(world.warnings_of(&world.in_home(HERE).await).await.is_empty());
    let warnings = world.warnings_of(&world.in_home(ELSEWHERE).await).await;
    assert!(warnings.len() == 1 && warnings[0].starts_with("WARN claims are made in the home Region"), "{warnings:?}");
    assert_eq!(world.requests(), ["GetItem"; 2]);
}
