//! The number of requests for several keys.

use lambda_once::{
    Idempotency, Store,
    record::{EncodedData, Status, StoredData, StoredResult},
    store::{
        ResultData, Settlement,
        dynamodb::{Calls, Config, Powertools},
    },
};

use super::{Claimed, LEASE, MARGIN, RETENTION, Settled, Stores, batch, claims, complete, complete_with, support};

#[tokio::test]
async fn ten_new_keys_take_one_request_to_claim_and_one_to_settle() {
    let stores = Stores::new().await;
    let claims = claims(0..10);
    stores.grants(&claims).await;
    let settled = stores.settle(&claims, &complete()).await;
    assert!(settled.iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))), "{settled:?}");
    assert_eq!(stores.requests(), [batch(10), batch(10)]);
}

#[tokio::test]
async fn ten_finished_keys_take_two_requests() {
    let stores = Stores::new().await;
    let first = claims(0..10);
    stores.grants(&first).await;
    stores.settle(&first, &complete()).await;
    stores.world.proxy.reset();
    let answers = stores.store.claim(&claims(0..10)).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Claimed::Refused(_)))), "{answers:?}");
    assert_eq!(stores.requests(), [batch(10), batch(10)]);
    let selects = &stores.world.proxy.requests()[1].body()["Statements"];
    assert!(selects.as_array().unwrap().iter().all(|select| select["ConsistentRead"] == true), "{selects}");
}

#[tokio::test]
async fn mixed_keys_take_three_requests_to_claim_and_one_to_settle() {
    let stores = Stores::new().await;
    stores.grants(&claims(0..8)).await;
    stores.world.clock.jump(LEASE + MARGIN);
    let done = claims(8..16);
    stores.grants(&done).await;
    stores.settle(&done, &complete()).await;
    stores.world.proxy.reset();

    let mut mixed = claims(0..25);
    mixed.iter_mut().step_by(2).for_each(|claim| claim.label = Some("order 7".into()));
    let answers = stores.store.claim(&mixed).await;
    let (mut open, mut took_over) = (Vec::new(), 0);
    for (i, (claim, answer)) in mixed.into_iter().zip(answers).enumerate() {
        match answer.unwrap() {
            Claimed::Granted(grant) => {
                assert_eq!(grant.prior_status, (i < 8).then_some(Status::InProgress));
                assert_eq!(grant.attempt, if i < 8 { 2 } else { 1 });
                took_over += usize::from(grant.took_over());
                open.push(claim);
            }
            Claimed::Refused(_) => assert!((8..16).contains(&i)),
        }
    }
    assert_eq!((took_over, open.len()), (8, 17));
    stores.settle(&open, &complete()).await;
    assert_eq!(stores.requests(), [batch(25), batch(16), batch(8), batch(17)]);
    let keys: Vec<_> = open.iter().map(|claim| claim.key).collect();
    for (claim, record) in open.iter().zip(stores.store.read(&keys, ResultData::Omit).await) {
        assert_eq!(record.unwrap().unwrap().label, claim.label);
    }
}

#[tokio::test]
async fn more_than_25_keys_are_divided() {
    let stores = Stores::new().await;
    let claims = claims(0..60);
    assert_eq!(stores.grants(&claims).await.len(), 60);
    let mut requests = stores.requests();
    requests.sort();
    assert_eq!(requests, [batch(10), batch(25), batch(25)]);
    stores.world.proxy.reset();
    let keys: Vec<_> = claims.iter().map(|claim| claim.key).collect();
    let records = stores.store.read(&keys, ResultData::Include).await;
    for (claim, record) in claims.iter().zip(records) {
        assert_eq!(record.unwrap().unwrap().owner, Some(claim.owner), "answers keep the order of their requests");
    }
}

#[tokio::test]
async fn results_that_exceed_a_mebibyte_together_are_divided() {
    // Bytes are sent in Base64, so that each of these takes 400,000 characters.
    for result in [
        StoredData::Json("x".repeat(390_000)),
        StoredData::Deflated(vec![0; 300_000]),
        StoredData::Encoded(EncodedData::new("key-2026", vec![0; 300_000]).unwrap()),
    ] {
        let stores = Stores::new().await;
        let claims = claims(0..4);
        stores.grants(&claims).await;
        stores.world.proxy.reset();
        let settled = stores.settle(&claims, &Settlement::complete(StoredResult::of(result), RETENTION)).await;
        assert!(settled.iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))), "{settled:?}");
        assert_eq!(stores.requests(), [batch(2), batch(2)]);
    }
}

/// In the layout of AWS Powertools for TypeScript a list is a list of DynamoDB.
#[tokio::test]
async fn lists_that_exceed_a_mebibyte_together_are_divided() {
    let stores = Stores::new().await;
    let config = Config::new(&stores.world.table).calls(Calls::Batched).powertools(Powertools::typescript("orders"));
    let store = config.build(support::client(&stores.world.url).await).unwrap().with_clock(stores.world.clock.clone());
    let mut claims = claims(0..4);
    let once = Idempotency::new(store.clone());
    for (number, claim) in claims.iter_mut().enumerate() {
        claim.key = once.key_hash("orders", &number).unwrap();
        claim.fingerprint = None;
    }
    let claimed = store.claim(&claims).await;
    assert!(claimed.iter().all(|answer| matches!(answer, Ok(Claimed::Granted(_)))), "{claimed:?}");
    stores.world.proxy.reset();
    let list = format!("[{}]", vec![format!("\"{}\"", "x".repeat(3_900)); 100].join(","));
    let settles: Vec<_> = claims.iter().map(|claim| super::settle(claim, complete_with(list.clone()))).collect();
    let settled = store.settle(&settles).await;
    assert!(settled.iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))), "{settled:?}");
    assert_eq!(stores.requests(), [batch(2), batch(2)]);
}

#[tokio::test]
async fn settles_of_every_kind_share_a_request() {
    let stores = Stores::new().await;
    let claims = claims(0..5);
    stores.grants(&claims).await;
    stores.world.proxy.reset();
    let Settlement::Record { result, retention, .. } = complete() else { unreachable!() };
    let renewal = Settlement::Renew { lease: LEASE * 2, skew_margin: MARGIN, retention };
    let failure = Settlement::fail(result, retention);
    let settlements = [complete(), failure, Settlement::Release, Settlement::HandBack, renewal];
    let settles: Vec<_> =
        claims.iter().zip(settlements).map(|(claim, settlement)| super::settle(claim, settlement)).collect();
    let answers = stores.store.settle(&settles).await;
    assert!(answers[..4].iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))), "{answers:?}");
    assert!(matches!(answers[4], Ok(Settled::Renewed { .. })), "{answers:?}");
    assert_eq!(stores.requests(), [batch(5)]);
    let keys: Vec<_> = claims.iter().map(|claim| claim.key).collect();
    let records: Vec<_> = stores.store.read(&keys, ResultData::Include).await.into_iter().map(Result::unwrap).collect();
    let status = |i: usize| records[i].as_ref().map(|record| (record.status, record.owner.is_some()));
    assert_eq!(status(0), Some((Status::Completed, true)));
    assert_eq!(status(1), Some((Status::Failed, true)));
    assert_eq!(status(2), None);
    assert_eq!(status(3), Some((Status::InProgress, false)));
    assert_eq!(status(4), Some((Status::InProgress, true)));
}

#[tokio::test]
async fn results_that_nobody_decodes_are_not_read() {
    let stores = Stores::new().await;
    let done = claims(0..2);
    stores.grants(&done).await;
    stores.settle(&done, &complete_with("x".repeat(300_000))).await;
    stores.world.proxy.reset();
    let mut again = claims(0..2);
    again.iter_mut().for_each(|claim| claim.result_data = ResultData::Omit);
    let answers = stores.store.claim(&again).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Claimed::Refused(_)))), "{answers:?}");
    stores.store.read(&[done[0].key, done[1].key], ResultData::Omit).await;
    assert_eq!(stores.requests(), [batch(2), batch(2), batch(2)]);
    for request in &stores.world.proxy.requests()[1..] {
        let body = request.body();
        let selects = body["Statements"].as_array().unwrap();
        let reads_data = |text: &str| text.contains('*') || text.contains("\"data\"");
        assert!(selects.iter().all(|select| !reads_data(select["Statement"].as_str().unwrap())), "{selects:?}");
    }
}
