//! Handlers that are called directly.

use std::time::Duration;

use lambda_once::{
    Claim, Failure, RecordContext,
    batch::RecordInfo,
    clock::Clock,
    testing::{self, TIME_LEFT, TokioClock},
};

/// Returns parts of the handler's context.
async fn handle(_: (), context: RecordContext) -> Result<(String, bool, Duration), Failure> {
    let left = context.handler_deadline().since(TokioClock.now());
    Ok((context.record().message_id().to_owned(), context.took_over(), left))
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_be_called_without_a_service() {
    let context = testing::record_context(RecordInfo::new("m-7").with_receive_count(3));
    assert_eq!(context.record().receive_count(), 3);
    assert_eq!(context.lambda().deadline, TokioClock.now().after(TIME_LEFT).as_millis());
    assert_eq!(context.claim().map(Claim::attempt), Some(1));
    assert_eq!(context.claim().unwrap().handler_deadline(), context.handler_deadline());
    assert_eq!(handle((), context).await.unwrap(), ("m-7".to_owned(), false, Duration::from_secs(58)));
}

#[tokio::test(start_paused = true)]
async fn a_claim_can_have_been_taken_over() {
    let context = testing::record_context(RecordInfo::new("m-7"));
    let context = context.with_claim(testing::claim("order 7").with_takeover());
    assert_eq!(context.claim().map(Claim::attempt), Some(2));
    assert!(handle((), context).await.unwrap().1);
}

#[tokio::test(start_paused = true)]
async fn a_context_takes_its_handler_deadline_from_its_claim() {
    let soon = TokioClock.now().after(Duration::from_secs(3));
    let claim = testing::claim("order 7").with_handler_deadline(soon);
    let context = testing::record_context(RecordInfo::new("m-7")).with_claim(claim);
    assert_eq!(context.handler_deadline(), soon);
    assert_eq!(handle((), context).await.unwrap().2, Duration::from_secs(3));
}

#[test]
fn a_handler_can_be_called_unprotected_and_in_another_invocation() {
    let mut lambda = testing::context(Duration::from_secs(3));
    lambda.tenant_id = Some("a".to_owned());
    let context = testing::record_context(RecordInfo::new("m-7")).with_claim(None).with_lambda(lambda);
    assert!(context.claim().is_none() && !context.took_over());
    assert_eq!(context.lambda().tenant_id.as_deref(), Some("a"));
}

#[test]
fn equal_keys_give_equal_claims_and_each_invocation_has_its_own_id() {
    assert_eq!(testing::claim("order 7").key(), testing::claim("order 7").key());
    assert_ne!(testing::claim("order 7").key(), testing::claim("order 8").key());
    let id = || testing::context(TIME_LEFT).request_id;
    assert_ne!(id(), id());
}
