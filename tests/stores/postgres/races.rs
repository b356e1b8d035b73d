//! Claims and settles of the same keys at once.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures_util::future::join_all;
use lambda_once::{record::Status, store::Refusal};

use super::*;

/// `POSTGRES_ROUNDS` sets another number.
fn rounds() -> usize {
    std::env::var("POSTGRES_ROUNDS").map_or(100, |rounds| rounds.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_late_completion_and_a_takeover_exactly_one_is_applied() {
    let clock = support::future_clock();
    let store = support::postgres::migrated().await.with_clock(clock.clone());
    for round in 0..rounds() {
        let claim = claim();
        granted(&store, &claim).await;
        clock.advance(LEASE + MARGIN + Duration::from_millis(1));
        let taker = rival(&claim);
        let complete = tokio::spawn({
            let (store, claim) = (store.clone(), claim.clone());
            async move { settle_one(&store, &claim, complete("\"late\"")).await.unwrap() }
        });
        let take = tokio::spawn({
            let (store, taker) = (store.clone(), taker.clone());
            async move { claim_one(&store, &taker).await.unwrap() }
        });
        let (completed, taken) = (complete.await.unwrap(), take.await.unwrap());
        let record = read_one(&store, &claim).await.unwrap();
        match (completed, taken) {
            (Settled::Done, Claimed::Refused(Refusal::Completed(_))) => {
                assert_eq!((record.status, record.result), (Status::Completed, json("\"late\"")));
            }
            (Settled::LeaseLost { current: Some(_) }, Claimed::Granted(grant)) => {
                assert!(grant.took_over());
                assert_eq!((record.status, record.owner), (Status::InProgress, Some(taker.owner)));
            }
            both => panic!("round {round}: {both:?}"),
        }
    }
}

/// 16 workers claim the same 100 keys, each in an order of its own, and settle what they were granted, together with
/// renewals and in batches of their own order.
#[tokio::test(flavor = "multi_thread")]
async fn batches_of_the_same_keys_in_any_order_neither_deadlock_nor_share_a_key() {
    const WORKERS: usize = 16;
    let store = support::postgres::config(support::postgres::connection().await).pool_size(WORKERS).build().unwrap();
    let keys: Arc<Vec<ClaimRequest>> = Arc::new(claims(100));
    let held: Arc<HashMap<KeyHash, AtomicBool>> =
        Arc::new(keys.iter().map(|claim| (claim.key, AtomicBool::new(false))).collect());
    let grants = Arc::new(AtomicUsize::new(0));
    let workers = (0..WORKERS).map(|_| {
        let (store, keys, held, grants) = (store.clone(), Arc::clone(&keys), Arc::clone(&held), Arc::clone(&grants));
        tokio::spawn(async move {
            for _ in 0..rounds() / 5 {
                let mut batch: Vec<_> = keys.iter().map(rival).collect();
                fastrand::shuffle(&mut batch);
                let answers = store.claim(&batch).await;
                assert_eq!(answers.len(), batch.len());
                let granted = |(claim, answer): (ClaimRequest, Result<Claimed, Error>)| {
                    matches!(answer.unwrap(), Claimed::Granted(_)).then_some(claim)
                };
                let mut mine: Vec<_> = batch.into_iter().zip(answers).filter_map(granted).collect();
                for claim in &mine {
                    assert!(!held[&claim.key].swap(true, Ordering::SeqCst), "two hold a key");
                }
                grants.fetch_add(mine.len(), Ordering::Relaxed);
                fastrand::shuffle(&mut mine);
                let renew = Settlement::Renew { lease: LEASE, skew_margin: MARGIN, retention: RETENTION };
                let renewals: Vec<_> = mine.iter().map(|claim| settle_of(claim, renew.clone())).collect();
                for answer in store.settle(&renewals).await {
                    assert!(matches!(answer.unwrap(), Settled::Renewed { .. }));
                }
                fastrand::shuffle(&mut mine);
                let releases: Vec<_> = mine.iter().map(|claim| settle_of(claim, RELEASE)).collect();
                mine.iter().for_each(|claim| held[&claim.key].store(false, Ordering::SeqCst));
                for answer in store.settle(&releases).await {
                    assert_eq!(answer.unwrap(), Settled::Done);
                }
            }
        })
    });
    join_all(workers).await.into_iter().for_each(|worker| worker.unwrap());
    assert!(grants.load(Ordering::Relaxed) >= 100);
    let keys: Vec<_> = keys.iter().map(|claim| claim.key).collect();
    assert!(store.read(&keys, ResultData::Omit).await.into_iter().all(|record| record.unwrap().is_none()));
}
