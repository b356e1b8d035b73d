//! The proxy that the tests of faults rely on, with the real client, against DynamoDB Local.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use crate::support;

use std::{net::TcpStream, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    config::{retry::RetryConfig, timeout::TimeoutConfig},
    error::{ProvideErrorMetadata, SdkError},
    operation::put_item::{PutItemError, PutItemOutput},
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};
use lambda_once::DynamoDbStore;
use support::proxy::{Fault, Proxy};

/// A proxy, a table, and clients that pass it or do not.
struct World {
    proxy: Proxy,
    table: String,
    /// One attempt a request.
    once: Client,
    /// Three attempts a request.
    thrice: Client,
    direct: Client,
}

type Put = Result<PutItemOutput, SdkError<PutItemError>>;

impl World {
    async fn new() -> Self {
        let proxy = Proxy::start(&support::dynamodb_endpoint()).await;
        let table = support::unique_name("proxy");
        let direct = support::client(&support::dynamodb_endpoint()).await;
        DynamoDbStore::new(direct.clone(), &table).create_table().await.unwrap();
        let (once, thrice) = (client(&proxy, 1).await, client(&proxy, 3).await);
        Self { proxy, table, once, thrice, direct }
    }

    /// Writes the item unless it exists.
    async fn put(&self, client: &Client, owner: &str) -> Put {
        client
            .put_item()
            .table_name(&self.table)
            .item("id", AttributeValue::S("k".into()))
            .item("owner", AttributeValue::S(owner.into()))
            .condition_expression("attribute_not_exists(id)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
    }

    /// The owner of the item, read past the proxy.
    async fn owner(&self) -> Option<String> {
        let id = AttributeValue::S("k".into());
        let get = self.direct.get_item().table_name(&self.table).key("id", id).consistent_read(true);
        Some(get.send().await.unwrap().item?["owner"].as_s().unwrap().clone())
    }

    /// What the client and the proxy were answered, request by request.
    fn statuses(&self) -> Vec<(Option<u16>, Option<u16>)> {
        let calls = self.proxy.calls().into_iter();
        calls.map(|call| (call.status.map(|s| s.as_u16()), call.upstream_status.map(|s| s.as_u16()))).collect()
    }
}

async fn client(proxy: &Proxy, attempts: u32) -> Client {
    let like = support::client(proxy.endpoint()).await;
    let retries =
        RetryConfig::standard().with_max_attempts(attempts).with_initial_backoff(std::time::Duration::from_millis(1));
    Client::from_conf(like.config().to_builder().retry_config(retries).build())
}

/// The owner that a failed condition reports.
fn rival(result: Put) -> String {
    match result.unwrap_err().into_service_error() {
        PutItemError::ConditionalCheckFailedException(failure) => {
            failure.item.unwrap()["owner"].as_s().unwrap().clone()
        }
        other => panic!("not a failed condition: {other:?}"),
    }
}

const OK: Option<u16> = Some(200);
const REFUSED: Option<u16> = Some(400);

#[tokio::test]
async fn requests_pass_and_are_recorded() {
    let world = World::new().await;
    world.put(&world.once, "a").await.unwrap();
    assert_eq!(rival(world.put(&world.once, "b").await), "a");
    let calls = world.proxy.calls();
    assert_eq!((calls[0].operation.as_str(), &calls[1].body["Item"]["owner"]["S"]), ("PutItem", &"b".into()));
    assert_eq!(world.statuses(), [(OK, OK), (REFUSED, REFUSED)]);
    assert_eq!((world.proxy.count_of("PutItem"), world.proxy.count_of("GetItem")), (2, 0));
    world.proxy.reset();
    assert_eq!(world.proxy.calls(), []);
}

#[tokio::test]
async fn after_a_lost_answer_the_retry_meets_its_own_item() {
    let world = World::new().await;
    world.proxy.on("PutItem").drop_response();
    assert_eq!(world.proxy.pending_faults(), 1);
    assert_eq!(rival(world.put(&world.thrice, "a").await), "a");
    assert_eq!(world.proxy.pending_faults(), 0);
    assert_eq!(world.statuses(), [(None, OK), (REFUSED, REFUSED)]);
}

#[tokio::test]
async fn a_lost_request_is_not_applied_and_sent_again_only_by_retries() {
    let world = World::new().await;
    world.proxy.on("PutItem").drop_request();
    let fresh = world.put(&world.once, "a").await.unwrap_err();
    assert_eq!(world.owner().await, None);
    world.put(&world.once, "a").await.unwrap();
    world.proxy.on("PutItem").drop_request();
    // A connection that was in use before is no different: the client's pool sends nothing again by itself.
    let reused = world.put(&world.once, "b").await.unwrap_err();
    assert_eq!(world.statuses(), [(None, None), (OK, OK), (None, None)]);
    assert!([fresh, reused].iter().all(|error| matches!(error, SdkError::DispatchFailure(_))));
    world.proxy.reset();
    world.proxy.on("PutItem").times(2).drop_request();
    assert_eq!(rival(world.put(&world.thrice, "b").await), "a");
    assert_eq!(world.statuses(), [(None, None), (None, None), (REFUSED, REFUSED)]);
}

#[tokio::test]
async fn a_late_request_lands_after_the_retry() {
    let world = World::new().await;
    let mut late = world.proxy.on("PutItem").deliver_late();
    world.put(&world.thrice, "a").await.unwrap();
    assert_eq!(late.arrived().await.body["Item"]["owner"]["S"], "a");
    let (status, body) = late.deliver().await;
    assert_eq!(status, 400);
    assert!(String::from_utf8_lossy(&body).contains("ConditionalCheckFailed"), "{body:?}");
    assert_eq!(world.statuses(), [(None, REFUSED), (OK, OK)]);
}

#[tokio::test]
async fn a_hanging_request_times_out_and_lands_later() {
    let world = World::new().await;
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_millis(100)).build();
    let hasty = Client::from_conf(world.once.config().to_builder().timeout_config(timeouts).build());
    let mut late = world.proxy.on("PutItem").hang();
    let error = world.put(&hasty, "a").await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
    assert_eq!(world.owner().await, None);
    assert_eq!(late.deliver().await.0, 200);
    assert_eq!(world.owner().await.as_deref(), Some("a"));
    assert_eq!(world.statuses(), [(None, OK)]);
}

#[tokio::test]
async fn a_held_request_loses_the_race() {
    let world = World::new().await;
    let mut held = world.proxy.on_matching(|call| call.body["Item"]["owner"]["S"] == "slow").hold();
    let race = async {
        held.arrived().await;
        world.put(&world.thrice, "fast").await.unwrap();
        held.release();
    };
    let (slow, ()) = tokio::join!(world.put(&world.once, "slow"), race);
    assert_eq!(rival(slow), "fast");
    assert_eq!(world.statuses(), [(REFUSED, REFUSED), (OK, OK)]);
}

#[tokio::test]
async fn a_held_request_outlives_its_client() {
    let world = World::new().await;
    let mut held = world.proxy.on("PutItem").hold();
    tokio::select! {
        put = world.put(&world.once, "a") => panic!("nothing answers it, but it ended as {put:?}"),
        _ = held.arrived() => {}
    }
    held.release();
    let applied = async {
        while world.statuses() != [(None, OK)] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), applied).await.unwrap();
    assert_eq!(world.owner().await.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_dropped_handle_closes_the_connection() {
    let world = World::new().await;
    drop(world.proxy.on("PutItem").hold());
    world.put(&world.thrice, "a").await.unwrap();
    assert_eq!(world.statuses(), [(None, None), (OK, OK)]);
}

#[tokio::test]
async fn errors_of_dynamodb_carry_their_codes_and_are_retried_as_they_should_be() {
    let world = World::new().await;
    type Refuse = fn(Fault<'_>);
    let refusals: [(&str, usize, Refuse); 5] = [
        ("ProvisionedThroughputExceededException", 3, |fault| fault.throttle()),
        ("InternalServerError", 3, |fault| fault.internal_error()),
        ("AccessDeniedException", 1, |fault| fault.access_denied()),
        ("ValidationException", 1, |fault| fault.validation()),
        ("Odd", 3, |fault| fault.respond(503, serde_json::json!({"__type": "x#Odd"}))),
    ];
    for (code, attempts, refuse) in refusals {
        world.proxy.reset();
        refuse(world.proxy.on("PutItem").times(attempts));
        let error = world.put(&world.thrice, "a").await.unwrap_err();
        assert_eq!((error.code(), world.statuses().len()), (Some(code), attempts));
    }
    assert_eq!((world.owner().await, world.proxy.pending_faults()), (None, 0));
}

#[tokio::test]
async fn a_write_may_be_applied_although_it_is_reported_as_failed() {
    let world = World::new().await;
    world.proxy.on("PutItem").internal_error_after();
    assert_eq!(rival(world.put(&world.thrice, "a").await), "a");
    assert_eq!(world.statuses(), [(Some(500), OK), (REFUSED, REFUSED)]);
}

#[tokio::test]
async fn faults_queue_and_count() {
    let world = World::new().await;
    world.proxy.on("PutItem").nth(2).throttle();
    world.proxy.on("PutItem").nth(2).times(2).internal_error();
    world.proxy.on("GetItem").validation();
    for _ in 0..5 {
        let _ = world.put(&world.once, "a").await;
    }
    let failed = (Some(500), None);
    assert_eq!(world.statuses(), [(OK, OK), (REFUSED, None), failed, failed, (REFUSED, REFUSED)]);
    assert_eq!(world.proxy.pending_faults(), 1);
}

#[tokio::test]
#[should_panic(expected = "a request left to come")]
async fn waiting_for_what_cannot_come_panics() {
    let proxy = Proxy::start(&support::dynamodb_endpoint()).await;
    let mut held = proxy.on("PutItem").hold();
    drop(proxy);
    held.arrived().await;
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_connections_and_its_port() {
    let World { proxy, table, once, thrice, direct } = World::new().await;
    let address = proxy.endpoint().strip_prefix("http://").unwrap().to_owned();
    let mut late = proxy.on("PutItem").hang();
    let put = once.put_item().table_name(&table).item("id", AttributeValue::S("k".into())).send();
    let stop = async {
        late.arrived().await;
        drop(proxy);
    };
    let (put, ()) = tokio::join!(put, stop);
    assert!(matches!(put, Err(SdkError::DispatchFailure(_))));
    assert!(TcpStream::connect(address).is_err());
    drop((thrice, direct));
}
