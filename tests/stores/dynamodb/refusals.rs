//! Requests that DynamoDB rejects, and the resulting errors.

use std::time::Duration;

use aws_sdk_dynamodb::{Client, config::timeout::TimeoutConfig};
use lambda_once::{
    DynamoDbStore, ErrorKind, ErrorStatus, Failure, Idempotency, Outcome, Store, clock::ManualClock,
    store::dynamodb::Calls,
};

use super::{Purpose, World, assert_outcome, in_both_shapes, support, text};
use crate::support::{FUTURE, wire::Fault};

async fn a_claim_that_was_throttled_is_sent_again(calls: Calls) {
    let world = World::of(calls).await;
    world.on(Purpose::Claim).times(3).throttle();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
}

async fn a_completion_that_was_throttled_is_sent_again(calls: Calls) {
    let world = World::of(calls).await;
    world.on(Purpose::Complete).times(7).throttle();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

async fn a_permanently_throttled_completion_keeps_the_claim(calls: Calls) {
    let world = World::build(calls, |builder| builder.lease(Duration::from_secs(2))).await;
    world.on(Purpose::Complete).times(usize::MAX).throttle();
    assert_outcome!(world.run().await, Ok(Outcome::Unrecorded(1)));
    assert_eq!(world.purposes().iter().filter(|purpose| **purpose == Purpose::Release).count(), 0);
    assert_eq!(world.item().await.unwrap()["status"], text("INPROGRESS"));
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::InProgress { .. }));
    world.lapse();
    assert_outcome!(world.run_elsewhere().await, Ok(Outcome::TookOver(2)));
}

async fn an_error_of_dynamodb_is_overcome(calls: Calls) {
    let world = World::of(calls).await;
    world.on(Purpose::Claim).internal_error();
    world.on(Purpose::Complete).internal_error();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
}

async fn a_claim_that_dynamodb_applied_and_reported_as_failed(calls: Calls) {
    let world = World::of(calls).await;
    world.on(Purpose::Claim).internal_error_after();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert_eq!(world.item().await.unwrap()["attempt"], super::number(1));
}

async fn a_completion_that_dynamodb_applied_and_reported_as_failed(calls: Calls) {
    let world = World::of(calls).await;
    world.on(Purpose::Complete).internal_error_after();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.all_struck();
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
}

#[tokio::test]
async fn a_claim_that_is_not_permitted_is_sent_once_and_nothing_runs() {
    let world = World::new().await;
    world.proxy.on_command("UpdateItem").access_denied();
    let error = world.run().await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::AccessDenied, true));
    assert!(error.to_string().contains("injected by the test"), "{error}");
    assert_eq!((world.runs(), world.requests().len()), (0, 1));
}

/// Only the message about a permission is passed on. It names the caller and the action, while others may contain data.
#[tokio::test]
async fn an_error_has_its_code_and_only_denials_pass_on_a_message() {
    type Refuse = fn(Fault<'_>);
    let world = World::new().await;
    let store = world.store(Calls::Single, &ManualClock::at(FUTURE)).await;
    let refusals: [(Refuse, &str); 3] = [
        (|fault| fault.access_denied(), "DynamoDB returned AccessDeniedException: injected by the test"),
        (|fault| fault.times(2).throttle(), "DynamoDB returned ProvisionedThroughputExceededException"),
        (|fault| fault.validation(), "DynamoDB returned ValidationException"),
    ];
    for (refuse, expected) in refusals {
        refuse(world.proxy.on_command("GetItem"));
        assert_eq!(store.warm_up().await.unwrap_err().message(), expected);
        world.all_struck();
    }
}

/// The listener accepts the connection and never reads from it.
#[tokio::test]
async fn an_endpoint_that_does_not_respond_in_time_is_a_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let patient = support::client(&format!("http://{}", silent.local_addr().unwrap())).await;
    let timeouts = TimeoutConfig::builder().read_timeout(Duration::from_millis(100)).build();
    let client = Client::from_conf(patient.config().to_builder().timeout_config(timeouts).build());
    let error = DynamoDbStore::new(client, "any").warm_up().await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Timeout, ErrorStatus::Ambiguous), "{error}");
}

#[tokio::test]
async fn an_error_of_the_connection_names_its_first_cause() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = support::client(&format!("http://{free}")).await;
    let error = Idempotency::new(DynamoDbStore::new(client, "any")).warm_up().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().to_lowercase().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_missing_table_has_its_own_error_kind() {
    let client = support::client(&support::dynamodb_endpoint()).await;
    let once = Idempotency::new(DynamoDbStore::new(client, "no-such-table"));
    let error = once.operation(super::CHARGE, "k").run(|| async { Ok::<_, Failure>(()) }).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Table, true));
    assert_eq!(once.warm_up().await.unwrap_err().kind(), ErrorKind::Table);
}

#[tokio::test]
async fn a_completion_that_dynamodb_refuses_is_recorded_without_its_result() {
    let world = World::new().await;
    world.on(Purpose::Complete).validation();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_outcome!(world.run().await, Ok(Outcome::ReplayedWithoutResult));
}

#[tokio::test]
async fn a_refusal_without_the_item_takes_one_consistent_read() {
    let world = World::new().await;
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    world.proxy.reset();
    world.proxy.on_command("UpdateItem").refuse_without_the_item();
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    assert_eq!(world.requests(), ["UpdateItem", "GetItem"]);
    assert_eq!(world.proxy.requests()[1].body()["ConsistentRead"], true);
}

#[tokio::test]
async fn a_record_that_is_gone_when_it_is_read_is_claimed_once_more() {
    let world = World::new().await;
    world.proxy.on_command("UpdateItem").refuse_without_the_item();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_eq!(world.requests(), ["UpdateItem", "GetItem", "UpdateItem", "UpdateItem"]);
}

#[tokio::test]
async fn a_key_that_is_never_found_free_is_in_progress() {
    let world = World::new().await;
    world.proxy.on_command("UpdateItem").times(2).refuse_without_the_item();
    assert_outcome!(world.run().await, Ok(Outcome::InProgress { lease_until: None, .. }));
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn a_lost_claim_is_recognized_without_the_item() {
    let world = World::new().await;
    world.proxy.on_command("UpdateItem").drop_response();
    world.proxy.on_command("UpdateItem").nth(2).refuse_without_the_item();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_eq!(world.requests(), ["UpdateItem", "UpdateItem", "GetItem", "UpdateItem"]);
}

#[tokio::test]
async fn a_lost_completion_is_recognized_without_the_item() {
    let world = World::new().await;
    world.proxy.on_command("UpdateItem").nth(2).drop_response();
    world.proxy.on_command("UpdateItem").nth(3).refuse_without_the_item();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert_eq!(world.requests(), ["UpdateItem", "UpdateItem", "UpdateItem", "GetItem"]);
}

#[tokio::test]
async fn a_lost_release_is_recognized_without_a_read() {
    let world = World::new().await;
    world.proxy.on_command("DeleteItem").drop_response();
    assert_outcome!(world.run_to(Err(Failure::transient("try again"))).await, Ok(Outcome::Failed(_)));
    assert_eq!(world.requests(), ["UpdateItem", "DeleteItem", "DeleteItem"]);
}

async fn a_holder_has_lost_its_lease_to_a_record_that_it_cannot_read(calls: Calls) {
    let world = World::of(calls).await;
    let outcome = world.once.operation(super::CHARGE, super::KEY).run(|| async {
        world.put([("status", text("WAITING")), ("v", super::number(9))]).await;
        world.work().await
    });
    assert_outcome!(outcome.await, Ok(Outcome::LeaseLost));
}

in_both_shapes!(
    a_claim_that_was_throttled_is_sent_again,
    a_completion_that_was_throttled_is_sent_again,
    a_permanently_throttled_completion_keeps_the_claim,
    an_error_of_dynamodb_is_overcome,
    a_claim_that_dynamodb_applied_and_reported_as_failed,
    a_completion_that_dynamodb_applied_and_reported_as_failed,
    a_holder_has_lost_its_lease_to_a_record_that_it_cannot_read,
);
