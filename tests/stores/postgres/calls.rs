//! The round trips and bytes of each call. The proxy holds back the responses of a round trip until all its statements
//! have arrived, so a call that waits for a response in between never completes.

use lambda_once::store::{
    FinalStatus, Refusal,
    amend::{Amend, AmendRequest, Amended, Amendment},
    postgres::PostgresStore,
};

use super::{proxy::Proxy, *};

/// Returns a store behind a proxy, with its single connection open.
async fn behind_proxy() -> (PostgresStore, Proxy) {
    let proxy = Proxy::start(&support::postgres::connection().await).await;
    let store = support::postgres::config(proxy.connection()).pool_size(1).build().unwrap();
    store.warm_up().await.unwrap();
    (store, proxy)
}

/// Awaits a call that takes exactly these round trips, each with that many statements.
async fn in_round_trips<T>(proxy: &Proxy, sizes: &[usize], call: impl Future<Output = T>) -> T {
    proxy.expect_round_trips(sizes);
    let answer = tokio::time::timeout(Duration::from_secs(30), call).await.expect("the statements are sent together");
    assert_eq!(proxy.statements(), sizes.iter().sum::<usize>());
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_new_operations_takes_two_round_trips() {
    let (store, proxy) = behind_proxy().await;
    for count in [1, 100] {
        let claims = claims(count);
        let granted = in_round_trips(&proxy, &[2], store.claim(&claims)).await;
        assert!(granted.iter().all(|answer| matches!(answer, Ok(Claimed::Granted(_)))));
        let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim, complete("1"))).collect();
        let settled = in_round_trips(&proxy, &[1], store.settle(&settles)).await;
        assert!(settled.iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))));
    }
    assert_eq!(proxy.opened(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_duplicates_takes_one() {
    let (store, proxy) = behind_proxy().await;
    let claims = claims(100);
    store.claim(&claims).await;
    let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim, complete("1"))).collect();
    store.settle(&settles).await;
    let duplicates: Vec<_> = claims.iter().map(rival).collect();
    let refused = in_round_trips(&proxy, &[2], store.claim(&duplicates)).await;
    assert!(refused.iter().all(|answer| matches!(answer, Ok(Claimed::Refused(Refusal::Completed(_))))));
}

#[tokio::test(flavor = "multi_thread")]
async fn settles_of_all_kinds_share_one_round_trip_and_refusals_take_another() {
    let (store, proxy) = behind_proxy().await;
    let claims = claims(5);
    store.claim(&claims).await;
    let renew = Settlement::Renew { lease: 2 * LEASE, skew_margin: MARGIN, retention: RETENTION };
    let fail = Settlement::fail(json("2"), RETENTION);
    let settlements = [complete("1"), fail, renew, HAND_BACK, RELEASE];
    let settles: Vec<_> =
        claims.iter().zip(settlements).map(|(claim, settlement)| settle_of(claim, settlement)).collect();
    let settled = in_round_trips(&proxy, &[2], store.settle(&settles)).await;
    let settled: Vec<_> = settled.into_iter().map(Result::unwrap).collect();
    assert!(matches!(
        settled[..],
        [
            Settled::Done { .. },
            Settled::Done { .. },
            Settled::Renewed { .. },
            Settled::Done { .. },
            Settled::Done { .. }
        ]
    ));
    // Settled again, all but the renewal have nothing left to change, and are found done.
    let again = in_round_trips(&proxy, &[2, 1], store.settle(&settles)).await;
    let again: Vec<_> = again.into_iter().map(Result::unwrap).collect();
    assert!(matches!(
        again[..],
        [
            Settled::Done { .. },
            Settled::Done { .. },
            Settled::Renewed { .. },
            Settled::Done { .. },
            Settled::Done { .. }
        ]
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_different_terms_and_large_calls_share_a_round_trip() {
    let (store, proxy) = behind_proxy().await;
    let mut claims = claims(202);
    claims.iter_mut().step_by(2).for_each(|claim| claim.lease = 2 * LEASE);
    // 101 claims with each lease, of which a statement takes 100.
    let answers = in_round_trips(&proxy, &[8], store.claim(&claims)).await;
    for (claim, answer) in claims.iter().zip(answers) {
        let Ok(Claimed::Granted(grant)) = answer else { panic!("expected a grant, got {answer:?}") };
        assert_eq!(Some(grant.lease_until), read_one(&store, claim).await.unwrap().lease_until);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_nobody_wants_stay_in_the_database() {
    let (store, proxy) = behind_proxy().await;
    let claim = claim();
    granted(&store, &claim).await;
    let large = format!("\"{}\"", (0..200_000).map(|_| fastrand::alphanumeric()).collect::<String>());
    settle_one(&store, &claim, complete(&large)).await.unwrap();
    let without = ClaimRequest { result_data: ResultData::Omit, ..rival(&claim) };
    in_round_trips(&proxy, &[2], claim_one(&store, &without)).await.unwrap();
    in_round_trips(&proxy, &[1], store.read(&[claim.key], ResultData::Omit)).await.remove(0).unwrap();
    assert!(proxy.bytes() < 2_000, "{} bytes", proxy.bytes());
    in_round_trips(&proxy, &[1], read_one(&store, &claim)).await.unwrap();
    assert!(proxy.bytes() > 200_000, "{} bytes", proxy.bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settle_that_needs_no_result_is_refused_without_it() {
    let (store, proxy) = behind_proxy().await;
    let large = format!("\"{}\"", (0..200_000).map(|_| fastrand::alphanumeric()).collect::<String>());
    for claim in [claim(), ordered(&entity(), 1)] {
        granted(&store, &claim).await;
        settle_one(&store, &claim, complete(&large)).await.unwrap();
        proxy.expect_round_trips(&[]);
        let released = settle_one(&store, &claim, RELEASE).await;
        assert!(matches!(released, Ok(Settled::Done { found: Some(_) })), "{released:?}");
        assert!(proxy.bytes() < 10_000, "{} bytes", proxy.bytes());
        let overtaken = settle_one(&store, &rival(&claim), complete("1")).await.unwrap();
        assert!(matches!(overtaken, Settled::LeaseLost { current: Some(record) } if record.result == json(&*large)));
        assert!(proxy.bytes() > 200_000, "{} bytes", proxy.bytes());
    }
}

/// A larger result has a separate statement. An amendment that was applied is not followed by a read.
#[tokio::test(flavor = "multi_thread")]
async fn the_results_in_one_statement_have_at_most_a_mebibyte() {
    let (store, proxy) = behind_proxy().await;
    let clock = support::future_clock();
    let store = store.with_clock(clock.clone());
    // The first, then the second with the third, and the last.
    let results = [1_100_000, 600_000, 400_000, 600_000].map(|bytes| json(format!("\"{}\"", "x".repeat(bytes))));
    let (running, lapsed) = (claims(4), claims(4));
    assert!(store.claim(&lapsed).await.iter().all(is_granted));
    clock.advance(LAPSE);
    assert!(store.claim(&running).await.iter().all(is_granted));

    let settlements = results.clone().map(|result| Settlement::complete(result, RETENTION));
    let settles: Vec<_> =
        running.iter().zip(settlements).map(|(claim, settlement)| settle_of(claim, settlement)).collect();
    proxy.expect_round_trips(&[]);
    let settled = store.settle(&settles).await;
    assert!(settled.iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))), "{settled:?}");
    assert_eq!(proxy.statements(), 3);

    let mut amendments = Vec::new();
    for (claim, result) in lapsed.iter().zip(results) {
        let record = read_one(&store, claim).await.unwrap();
        let settle = Amendment::Settle { outcome: FinalStatus::Completed, result, retention: RETENTION };
        let request = AmendRequest::new(claim.key, &record, settle);
        amendments.push(AmendRequest { skew_margin: MARGIN, ..request });
    }
    proxy.expect_round_trips(&[]);
    let amended = store.amend(&amendments).await;
    assert!(amended.iter().all(|answer| matches!(answer, Ok(Amended::Changed))), "{amended:?}");
    assert_eq!(proxy.statements(), 3);
}
