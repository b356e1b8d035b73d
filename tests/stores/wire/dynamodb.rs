//! The proxy in front of DynamoDB, with the real client.

use std::{net::TcpStream, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    config::{retry::RetryConfig, timeout::TimeoutConfig},
    error::{ProvideErrorMetadata, SdkError},
    operation::put_item::{PutItemError, PutItemOutput},
    types::{AttributeValue, BatchStatementRequest, ReturnValuesOnConditionCheckFailure},
};
use lambda_once::DynamoDbStore;
use serde_json::json;

use crate::support::{
    self,
    wire::{Fault, Protocol, Proxy, host_and_port},
};

/// A proxy, a table, and clients that use the proxy or connect directly.
struct World {
    proxy: Proxy,
    table: String,
    /// Makes one attempt per request.
    once: Client,
    /// Makes three attempts per request.
    thrice: Client,
    direct: Client,
}

type Put = Result<PutItemOutput, SdkError<PutItemError>>;

impl World {
    async fn new() -> Self {
        let url = support::dynamodb_endpoint();
        let proxy = Proxy::start(Protocol::DynamoDb, host_and_port(&url)).await;
        let table = support::unique_name("proxy");
        let direct = support::client(&url).await;
        DynamoDbStore::new(direct.clone(), &table).create_table().await.unwrap();
        let url = proxy.in_place_of(&url);
        let (once, thrice) = (client(&url, 1).await, client(&url, 3).await);
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

    /// Returns the owner of the item, read directly.
    async fn owner(&self) -> Option<String> {
        self.owner_of("k").await
    }

    async fn owner_of(&self, id: &str) -> Option<String> {
        let id = AttributeValue::S(id.into());
        let get = self.direct.get_item().table_name(&self.table).key("id", id).consistent_read(true);
        Some(get.send().await.unwrap().item?["owner"].as_s().unwrap().clone())
    }

    /// Creates items with these ids, and owners of the same name, in a batch, and returns the codes of the failures.
    async fn insert(&self, ids: [&str; 3]) -> [Option<String>; 3] {
        let statement = |id: &str| {
            let text = format!(r#"INSERT INTO "{}" VALUE {{'id':?,'owner':?}}"#, self.table);
            let value = AttributeValue::S(id.into());
            BatchStatementRequest::builder()
                .statement(text)
                .parameters(value.clone())
                .parameters(value)
                .build()
                .unwrap()
        };
        let batch = self.once.batch_execute_statement().set_statements(Some(ids.map(statement).into()));
        let answers = batch.send().await.unwrap().responses.unwrap().into_iter();
        let codes = answers.map(|answer| Some(answer.error?.code?.as_str().to_owned()));
        codes.collect::<Vec<_>>().try_into().unwrap()
    }

    /// Returns the number of requests sent.
    fn count(&self) -> usize {
        self.proxy.requests().len()
    }
}

async fn client(url: &str, attempts: u32) -> Client {
    let like = support::client(url).await;
    let retries = RetryConfig::standard().with_max_attempts(attempts).with_initial_backoff(Duration::from_millis(1));
    Client::from_conf(like.config().to_builder().retry_config(retries).build())
}

/// Returns the owner that a failed condition reports.
fn rival(result: Put) -> String {
    match result.unwrap_err().into_service_error() {
        PutItemError::ConditionalCheckFailedException(failure) => {
            failure.item.unwrap()["owner"].as_s().unwrap().clone()
        }
        other => panic!("not a failed condition: {other:?}"),
    }
}

#[tokio::test]
async fn requests_pass_and_are_recorded() {
    let world = World::new().await;
    world.put(&world.once, "a").await.unwrap();
    assert_eq!(rival(world.put(&world.once, "b").await), "a");
    let requests = world.proxy.requests();
    let said: Vec<_> = requests.iter().map(|request| (&*request.command, request.round_trip)).collect();
    assert_eq!(said, [("PutItem", 1), ("PutItem", 2)]);
    assert_eq!(requests[1].body()["Item"]["owner"]["S"], "b");
    world.proxy.reset();
    assert_eq!((world.proxy.requests(), world.proxy.round_trips()), (vec![], 0));
}

#[tokio::test]
async fn after_a_lost_response_the_retry_meets_its_own_item() {
    let world = World::new().await;
    world.proxy.on_command("PutItem").drop_response();
    assert_eq!(world.proxy.pending_faults(), 1);
    assert_eq!(rival(world.put(&world.thrice, "a").await), "a");
    assert_eq!((world.proxy.pending_faults(), world.count()), (0, 2));
}

#[tokio::test]
async fn a_lost_request_is_not_applied_and_sent_again_only_by_retries() {
    let world = World::new().await;
    world.proxy.on_command("PutItem").drop_request();
    let fresh = world.put(&world.once, "a").await.unwrap_err();
    assert_eq!(world.owner().await, None);
    world.put(&world.once, "a").await.unwrap();
    world.proxy.on_command("PutItem").drop_request();
    // A reused connection is no different, because the client's pool does not repeat requests.
    let reused = world.put(&world.once, "b").await.unwrap_err();
    assert_eq!(world.count(), 3);
    assert!([fresh, reused].iter().all(|error| matches!(error, SdkError::DispatchFailure(_))));
    world.proxy.reset();
    world.proxy.on_command("PutItem").times(2).drop_request();
    assert_eq!(rival(world.put(&world.thrice, "b").await), "a");
    assert_eq!(world.count(), 3);
}

#[tokio::test]
async fn a_late_request_lands_after_the_retry() {
    let world = World::new().await;
    let mut late = world.proxy.on_command("PutItem").deliver_late();
    world.put(&world.thrice, "a").await.unwrap();
    assert_eq!(late.arrived().await.body()["Item"]["owner"]["S"], "a");
    let response = late.deliver().await;
    assert_eq!((response.is_applied(), world.count()), (Some(false), 2), "{response:?}");
}

#[tokio::test]
async fn a_hanging_request_times_out_and_lands_later() {
    let world = World::new().await;
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_millis(100)).build();
    let hasty = Client::from_conf(world.once.config().to_builder().timeout_config(timeouts).build());
    let mut late = world.proxy.on_command("PutItem").hang();
    let error = world.put(&hasty, "a").await.unwrap_err();
    assert!(matches!(error, SdkError::TimeoutError(_)), "{error:?}");
    assert_eq!(world.owner().await, None);
    let response = late.deliver().await;
    assert_eq!(response.is_applied(), Some(true), "{response:?}");
    assert_eq!((world.owner().await.as_deref(), world.count()), (Some("a"), 1));
}

#[tokio::test]
async fn a_late_request_that_dynamodb_does_not_take_is_an_error() {
    let world = World::new().await;
    let mut copy = world.proxy.on_command("PutItem").copy();
    world.put(&world.once, "a").await.unwrap();
    world.direct.delete_table().table_name(&world.table).send().await.unwrap();
    let response = copy.deliver().await;
    assert_eq!(response.is_applied(), None, "{response:?}");
}

#[tokio::test]
async fn a_repeated_request_is_applied_twice_before_its_response() {
    let world = World::new().await;
    world.proxy.on_command("UpdateItem").repeat();
    let add = |client: &Client| {
        let update = client.update_item().table_name(&world.table).key("id", AttributeValue::S("counter".into()));
        let update = update.update_expression("ADD n :one").return_values("UPDATED_NEW".into());
        update.expression_attribute_values(":one", AttributeValue::N("1".into())).send()
    };
    let count =
        |answer: Option<std::collections::HashMap<_, AttributeValue>>| answer.unwrap()["n"].as_n().unwrap().clone();
    assert_eq!(count(add(&world.once).await.unwrap().attributes), "1");
    assert_eq!(count(add(&world.direct).await.unwrap().attributes), "3");
}

#[tokio::test]
async fn a_held_request_loses_the_race() {
    let world = World::new().await;
    let mut held = world.proxy.on(|request| request.body()["Item"]["owner"]["S"] == "slow").hold();
    let race = async {
        held.arrived().await;
        world.put(&world.thrice, "fast").await.unwrap();
        held.release();
    };
    let (slow, ()) = tokio::join!(world.put(&world.once, "slow"), race);
    assert_eq!((rival(slow).as_str(), world.count()), ("fast", 2));
}

#[tokio::test]
async fn a_held_request_outlives_its_client() {
    let world = World::new().await;
    let mut held = world.proxy.on_command("PutItem").hold();
    tokio::select! {
        put = world.put(&world.once, "a") => panic!("nothing answers it, but it ended as {put:?}"),
        _ = held.arrived() => {}
    }
    held.release();
    let applied = async { while world.owner().await.is_none() {} };
    tokio::time::timeout(Duration::from_secs(30), applied).await.unwrap();
    assert_eq!((world.owner().await.as_deref(), world.count()), (Some("a"), 1));
}

#[tokio::test]
async fn a_dropped_handle_closes_the_connection() {
    let world = World::new().await;
    drop(world.proxy.on_command("PutItem").hold());
    world.put(&world.thrice, "a").await.unwrap();
    assert_eq!(world.count(), 2);
}

#[tokio::test]
async fn errors_of_dynamodb_carry_their_codes_and_are_retried_as_they_should_be() {
    let world = World::new().await;
    type Refuse = fn(Fault<'_>);
    let refusals: [(&str, usize, Refuse); 6] = [
        ("ProvisionedThroughputExceededException", 3, |fault| fault.throttle()),
        ("InternalServerError", 3, |fault| fault.internal_error()),
        ("AccessDeniedException", 1, |fault| fault.access_denied()),
        ("ValidationException", 1, |fault| fault.validation()),
        ("ConditionalCheckFailedException", 1, |fault| fault.refuse_without_the_item()),
        ("Odd", 3, |fault| fault.respond_json(503, &json!({"__type": "x#Odd"}))),
    ];
    for (code, attempts, refuse) in refusals {
        world.proxy.reset();
        refuse(world.proxy.on_command("PutItem").times(attempts));
        let error = world.put(&world.thrice, "a").await.unwrap_err();
        assert_eq!((error.code(), world.count()), (Some(code), attempts));
    }
    assert_eq!((world.owner().await, world.proxy.pending_faults()), (None, 0));
}

#[tokio::test]
async fn a_write_may_be_applied_although_it_is_reported_as_failed() {
    let world = World::new().await;
    world.proxy.on_command("PutItem").internal_error_after();
    assert_eq!((rival(world.put(&world.thrice, "a").await).as_str(), world.count()), ("a", 2));
}

#[tokio::test]
async fn one_statement_of_a_batch_fails_and_may_be_applied_nevertheless() {
    let failure = || Some("ThrottlingError".to_owned());
    for (place, codes) in
        [[failure(), None, None], [None, failure(), None], [None, None, failure()]].into_iter().enumerate()
    {
        for is_applied in [true, false] {
            let world = World::new().await;
            let fault = world.proxy.on_command("BatchExecuteStatement");
            if is_applied {
                fault.fail_member_after(place, "ThrottlingError");
            } else {
                fault.fail_member(place, "ThrottlingError");
            }
            let ids = ["a", "b", "c"];
            assert_eq!(world.insert(ids).await, codes);
            for (other, id) in ids.into_iter().enumerate() {
                let expected = (is_applied || other != place).then_some(id);
                assert_eq!(world.owner_of(id).await.as_deref(), expected);
            }
            assert_eq!(world.insert(["d", "e", "f"]).await, [None, None, None]);
        }
    }
}

#[tokio::test]
async fn faults_queue_and_count() {
    let world = World::new().await;
    world.proxy.on_command("PutItem").nth(2).throttle();
    world.proxy.on_command("PutItem").nth(2).times(2).internal_error();
    world.proxy.on_command("GetItem").validation();
    let mut codes = Vec::new();
    for _ in 0..5 {
        let put = world.put(&world.once, "a").await;
        codes.push(put.err().map(|error| error.code().unwrap().to_owned()));
    }
    let code = |name: &str| Some(name.to_owned());
    let failed = code("InternalServerError");
    assert_eq!(
        codes,
        [
            None,
            code("ProvisionedThroughputExceededException"),
            failed.clone(),
            failed,
            code("ConditionalCheckFailedException")
        ]
    );
    assert_eq!(world.proxy.pending_faults(), 1);
}

#[tokio::test]
#[should_panic(expected = "a request left to come")]
async fn waiting_for_an_impossible_request_panics() {
    let proxy = World::new().await.proxy;
    let mut held = proxy.on_command("PutItem").hold();
    drop(proxy);
    held.arrived().await;
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_connections_and_its_port() {
    let World { proxy, table, once, .. } = World::new().await;
    let address = proxy.address();
    let mut late = proxy.on_command("PutItem").hang();
    let put = once.put_item().table_name(&table).item("id", AttributeValue::S("k".into())).send();
    let stop = async {
        late.arrived().await;
        drop(proxy);
    };
    let (put, ()) = tokio::join!(put, stop);
    assert!(matches!(put, Err(SdkError::DispatchFailure(_))));
    assert!(TcpStream::connect(address).is_err());
}
