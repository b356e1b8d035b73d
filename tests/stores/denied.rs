//! A role without delete permission. Claims and outcomes are recorded, and no response waits for a release.

use std::time::Duration;

use lambda_once::{
    Failure, Idempotency, Key, OutcomeKind, Store, Verdict,
    store::{dynamodb, redis as redis_store},
    testing::{self, sqs},
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    self, client, dynamodb_endpoint,
    stores::Backend,
    unique_name,
    wire::{Protocol, Proxy, Request, host_and_port},
};

/// The time left in the invocation, for which the claims would be held.
const TIME_LEFT: Duration = Duration::from_secs(30);
/// A limit that gives a busy machine time for a few calls.
const SOON: Duration = Duration::from_secs(15);

/// Runs a batch with transient failures twice.
async fn assert_no_response_waits(store: impl Store) {
    let once = Idempotency::builder(store).scope("tests").disabled(false).build().unwrap();
    let handle =
        |order: Value| async move { if order["fails"] == true { Err(Failure::transient("closed")) } else { Ok(()) } };
    let service = once.sqs(Key::pointer("/id"), handle);
    let messages = (0..6).map(|id| testing::record(&json!({ "id": id, "fails": id % 2 == 1 })));
    let batch = sqs::batch(messages);
    let transient = OutcomeKind::Failed(Verdict::Transient);
    for (delivery, done, failed) in
        [(1, OutcomeKind::Executed, transient), (2, OutcomeKind::Replayed, OutcomeKind::InProgress)]
    {
        let begun = Instant::now();
        let event = LambdaEvent::new(testing::Redeliver::delivery(&batch, delivery), testing::context(TIME_LEFT));
        let processed = service.process(event).await;
        let outcomes: Vec<OutcomeKind> = processed.outcomes().into_iter().map(Result::unwrap).collect();
        assert_eq!(outcomes, [done, failed, done, failed, done, failed], "the claim ends with its lease");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
}

/// DynamoDB Local checks no permissions, so the proxy denies the deletes.
async fn on_dynamodb(calls: dynamodb::Calls) {
    let (url, table) = (dynamodb_endpoint(), unique_name("denied"));
    let proxy = Proxy::start(Protocol::DynamoDb, host_and_port(&url)).await;
    let config = dynamodb::Config::new(&table).calls(calls);
    config.clone().build(client(&url).await).unwrap().create_table().await.unwrap();
    // A release may share a call with completions.
    let deletes = |request: &Request| match request.command.as_str() {
        "BatchExecuteStatement" => request.body().to_string().contains("DELETE FROM"),
        command => command == "DeleteItem",
    };
    proxy.on(deletes).times(usize::MAX).access_denied();
    assert_no_response_waits(config.build(client(&proxy.in_place_of(&url)).await).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_delete_item_no_response_waits_for_a_release() {
    on_dynamodb(dynamodb::Calls::Single).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_partiql_delete_no_response_waits_for_a_release() {
    on_dynamodb(dynamodb::Calls::Batched).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_del_no_response_waits_for_a_release() {
    let (_, url) = Backend::Redis.wire();
    let user = unique_name("user");
    let mut admin = redis::Client::open(&*url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let rules = ["SETUSER", &*user, "on", ">secret", "~*", "+@all", "-del"];
    redis::cmd("ACL").arg(&rules).exec_async(&mut admin).await.unwrap();
    let config = redis_store::Config::new(url.replace("redis://", &format!("redis://{user}:secret@")));
    let store = config.key_prefix(unique_name("denied")).connect_timeout(SOON).response_timeout(SOON).build().unwrap();
    assert_no_response_waits(store).await;
    redis::cmd("ACL").arg(&["DELUSER", &*user]).exec_async(&mut admin).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_delete_no_response_waits_for_a_release() {
    let (connection, table) = (support::postgres::connection().await, unique_name("denied"));
    support::postgres::config(connection.clone()).table(&table).build().unwrap().migrate().await.unwrap();
    let role = support::postgres::role(&[]).await;
    let grant = format!("GRANT SELECT, INSERT, UPDATE ON \"{table}\" TO \"{}\"", role.get_user().unwrap());
    support::postgres::client(&connection).await.batch_execute(&grant).await.unwrap();
    assert_no_response_waits(support::postgres::config(role).table(&table).build().unwrap()).await;
}
