//! Statements that fail inside a successful response, and requests that DynamoDB rejects.

use lambda_once::{
    Error, ErrorKind, ErrorStatus, Store,
    store::{ResultData, Settlement},
};
use serde_json::json;

use super::{
    Claimed, LEASE, MARGIN, Purpose, Settled, Stores, batch, claim, claims, complete, complete_with, granted, single,
};
use crate::support::collector::Collector;

#[tokio::test]
async fn a_throttled_statement_fails_alone_and_is_not_sent_again() {
    for code in ["ProvisionedThroughputExceeded", "RequestLimitExceeded", "ThrottlingError"] {
        let stores = Stores::new().await;
        stores.world.on(Purpose::Claim).fail_member(1, code);
        let mut claims = claims(0..3);
        let mut answers = stores.store.claim(&claims).await;
        let error = answers.remove(1).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Throttled, ErrorStatus::Temporary));
        answers.into_iter().for_each(|answer| {
            granted(answer);
        });
        claims.remove(1);
        stores.world.on(Purpose::Complete).fail_member(1, code);
        let settled = stores.settle(&claims, &complete()).await;
        assert_eq!(settled[1].as_ref().map_err(Error::kind), Err(ErrorKind::Throttled));
        stores.world.all_struck();
        assert_eq!(stores.requests(), [batch(3), batch(2)]);
    }
}

#[tokio::test]
async fn a_statement_in_conflict_with_a_transaction_is_temporary() {
    let stores = Stores::new().await;
    stores.world.on(Purpose::Claim).fail_member(1, "TransactionConflict");
    let mut answers = stores.store.claim(&claims(0..2)).await;
    let error = answers.remove(1).unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Temporary));
    granted(answers.remove(0));
}

#[tokio::test]
async fn a_statement_that_exceeds_a_limit_of_its_table_is_a_permanent_error() {
    let stores = Stores::new().await;
    stores.world.on(Purpose::Claim).fail_member(1, "ItemCollectionSizeLimitExceeded");
    let mut answers = stores.store.claim(&claims(0..2)).await;
    let error = answers.remove(1).unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Request, ErrorStatus::Permanent));
    granted(answers.remove(0));
}

#[tokio::test]
async fn a_claim_that_failed_inside_dynamodb_is_ambiguous_and_can_be_sent_again() {
    for applied in [true, false] {
        let stores = Stores::new().await;
        let claims = claims(0..3);
        let fault = stores.world.on(Purpose::Claim);
        if applied {
            fault.fail_member_after(1, "InternalServerError");
        } else {
            fault.fail_member(1, "InternalServerError");
        }
        let mut answers = stores.store.claim(&claims).await;
        let error = answers.remove(1).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Ambiguous));
        assert_eq!(stores.requests(), [batch(3)]);
        let grant = stores.grants(&claims[1..2]).await.remove(0);
        assert_eq!((grant.attempt, grant.prior_status), (1, None));
    }
}

#[tokio::test]
async fn a_takeover_that_failed_inside_dynamodb_is_ambiguous_and_repeatable() {
    for applied in [true, false] {
        let stores = Stores::new().await;
        stores.grants(&claims(0..2)).await;
        stores.world.clock.jump(LEASE + MARGIN * 2);
        let fault = stores.world.on(Purpose::Takeover);
        if applied {
            fault.fail_member_after(1, "InternalServerError");
        } else {
            fault.fail_member(1, "InternalServerError");
        }
        let claims = claims(0..2);
        let mut answers = stores.store.claim(&claims).await;
        let error = answers.remove(1).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Ambiguous));
        assert!(granted(answers.remove(0)).took_over());
        stores.world.all_struck();
        let grant = stores.grants(&claims[1..]).await.remove(0);
        assert!(grant.took_over() && grant.attempt == 2, "{grant:?}");
    }
}

#[tokio::test]
async fn a_settle_that_failed_inside_dynamodb_is_ambiguous_and_repeatable() {
    let settlements = [complete(), Settlement::Release, Settlement::HandBack];
    for settlement in settlements {
        let stores = Stores::new().await;
        let claims = claims(0..2);
        stores.grants(&claims).await;
        stores.world.proxy.on(|_| true).fail_member_after(1, "InternalServerError");
        let answers = stores.settle(&claims, &settlement).await;
        assert!(matches!(answers[0], Ok(Settled::Done { .. })), "{answers:?}");
        assert_eq!(answers[1].as_ref().map_err(Error::status), Err(ErrorStatus::Ambiguous));
        let again = stores.settle(&claims, &settlement).await;
        assert!(again.iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))), "{again:?}");
    }
}

#[tokio::test]
async fn a_denied_batch_call_falls_back_to_single_calls_from_then_on() {
    let stores = Stores::new().await;
    stores.world.on(Purpose::Claim).access_denied();
    let claims = claims(0..2);
    stores.grants(&claims).await;
    stores.settle(&claims, &complete()).await;
    assert_eq!(
        stores.requests(),
        [batch(2), single("UpdateItem"), single("UpdateItem"), single("UpdateItem"), single("UpdateItem")]
    );
}

#[tokio::test]
async fn a_statement_that_is_not_permitted_or_not_valid_goes_alone() {
    for code in ["AccessDenied", "ValidationError"] {
        for purpose in [Purpose::Claim, Purpose::Read, Purpose::Takeover, Purpose::Complete] {
            let stores = Stores::new().await;
            let first = claims(0..2);
            stores.grants(&first).await;
            stores.world.clock.jump(LEASE + MARGIN * 2);
            // One more key, so that the first step creates a record.
            let second = claims(0..3);
            stores.world.on(purpose).fail_member(0, code);
            stores.grants(&second).await;
            let settled = stores.settle(&second, &complete()).await;
            assert!(settled.iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))), "{settled:?}");
            stores.world.all_struck();
        }
    }
}

#[tokio::test]
async fn a_request_that_is_not_valid_is_replaced_by_single_ones_that_time_only() {
    let stores = Stores::new().await;
    stores.world.on(Purpose::Claim).validation();
    stores.grants(&claims(0..2)).await;
    stores.grants(&claims(2..4)).await;
    assert_eq!(stores.requests(), [batch(2), single("UpdateItem"), single("UpdateItem"), batch(2)]);
}

/// Sixty claims take three batches at once.
#[tokio::test]
async fn a_refusal_of_batches_is_logged_once_with_its_cause() {
    for (code, says, is_lasting) in [
        ("AccessDeniedException", "the role needs dynamodb:PartiQLInsert", true),
        ("UnknownOperationException", "the endpoint does not support BatchExecuteStatement", true),
        ("ValidationException", "refused statements are sent key by key", false),
    ] {
        let stores = Stores::new().await;
        let (collector, _guard) = Collector::install();
        let refusal = json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "no" });
        stores.world.proxy.on_command("BatchExecuteStatement").times(3).respond_json(400, &refusal);
        stores.grants(&claims(0..60)).await;
        stores.world.all_struck();
        let lines = collector.lines();
        assert!(lines.len() == 1 && lines[0].get("message").contains(says), "{code}: {lines:?}");
        stores.world.proxy.reset();
        stores.grants(&claims(60..62)).await;
        let expected = if is_lasting { vec![single("UpdateItem"); 2] } else { vec![batch(2)] };
        assert_eq!(stores.requests(), expected, "{code}");
    }
}

#[tokio::test]
async fn a_read_that_is_not_permitted_in_batches_goes_one_by_one() {
    let stores = Stores::new().await;
    let claims = claims(0..2);
    stores.grants(&claims).await;
    stores.world.on(Purpose::Read).access_denied();
    let records = stores.store.read(&[claims[0].key, claims[1].key, claim(9).key], ResultData::Include).await;
    let found: Vec<_> = records.into_iter().map(|record| record.unwrap().map(|record| record.owner)).collect();
    assert_eq!(found, [Some(Some(claims[0].owner)), Some(Some(claims[1].owner)), None]);
}

#[tokio::test]
async fn a_result_that_an_item_cannot_hold_fails_alone() {
    let stores = Stores::new().await;
    let claims = claims(0..2);
    stores.grants(&claims).await;
    let settles =
        [super::settle(&claims[0], complete_with("x".repeat(410_000))), super::settle(&claims[1], complete())];
    let answers = stores.store.settle(&settles).await;
    assert_eq!(answers[0].as_ref().map_err(Error::kind), Err(ErrorKind::Request));
    assert!(matches!(answers[1], Ok(Settled::Done { .. })), "{answers:?}");
}

#[tokio::test]
async fn a_response_without_all_statements_is_ambiguous() {
    let stores = Stores::new().await;
    stores.world.on(Purpose::Claim).respond_json(200, &json!({ "Responses": [{}] }));
    let answers = stores.store.claim(&claims(0..2)).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.status() == ErrorStatus::Ambiguous)));
}

#[tokio::test]
async fn a_lost_response_leaves_its_batch_ambiguous_and_claims_recognizable() {
    let stores = Stores::new().await;
    let claims = claims(0..3);
    stores.world.on(Purpose::Claim).times(2).drop_response();
    let answers = stores.store.claim(&claims).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.status() == ErrorStatus::Ambiguous)));
    let grants = stores.grants(&claims).await;
    assert!(grants.iter().all(|grant| grant.attempt == 1 && grant.prior_status.is_none()), "{grants:?}");
    assert!(matches!(stores.claim_elsewhere(&claim(0)).await, Claimed::Refused(_)));
}
