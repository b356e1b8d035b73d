//! The round trips and bytes of each call. The proxy holds back the responses of a round trip until all its statements
//! have arrived, so a call that waits for a response in between never completes.

use lambda_once::store::{Refusal, postgres::PostgresStore};

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
    let mut claims = claims(250);
    claims.iter_mut().step_by(2).for_each(|claim| claim.lease = 2 * LEASE);
    // 125 claims with each lease.
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
