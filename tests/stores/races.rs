//! Concurrent claims and settles of the same keys.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures_util::future::join_all;
use lambda_once::{
    Failure, Idempotency, OutcomeKind, Store,
    record::{KeyHash, Status},
    store::{ClaimRequest, Claimed, Refusal, ResultData, Settled},
};

use crate::support::{
    cases,
    clock::TokioClock,
    future_clock,
    requests::{
        LAPSE, RELEASE, RENEW, claim, claim_one, claims, complete, granted, is_granted, json, read_one, rival,
        settle_of, settle_one,
    },
    stores::{Backend, Records, on_each_server},
};

/// Returns the number of rounds of each race, which `RACE_ROUNDS` sets.
fn rounds() -> usize {
    cases("RACE_ROUNDS", 20)
}

// Tests S1, P1.
async fn of_a_late_completion_and_a_takeover_exactly_one_is_applied(backend: Backend) {
    let clock = future_clock();
    let store = Records::new(backend, clock.clone()).await.store().await;
    for round in 0..rounds() {
        let claim = claim();
        granted(&store, &claim).await;
        clock.advance(LAPSE);
        let taker = rival(&claim);
        let complete = tokio::spawn({
            let (store, claim) = (Arc::clone(&store), claim.clone());
            async move { settle_one(&store, &claim, complete("\"late\"")).await.unwrap() }
        });
        let take = tokio::spawn({
            let (store, taker) = (Arc::clone(&store), taker.clone());
            async move { claim_one(&store, &taker).await.unwrap() }
        });
        let (completed, taken) = (complete.await.unwrap(), take.await.unwrap());
        let record = read_one(&store, &claim).await.unwrap();
        match (completed, taken) {
            (Settled::Done { .. }, Claimed::Refused(Refusal::Completed(_))) => {
                assert_eq!((record.status, record.result), (Status::Completed, json("\"late\"")));
            }
            (Settled::LeaseLost { current: Some(_) }, Claimed::Granted(grant)) => {
                assert!(grant.took_over());
                assert_eq!((record.status, record.owner), (Status::InProgress, Some(taker.owner)));
            }
            // A DynamoDB batch first reads the record in the way. If it changes before the write, the claim must wait.
            (Settled::Done { .. }, Claimed::Refused(Refusal::InProgress { .. }))
                if matches!(backend, Backend::DynamoDb(_)) =>
            {
                assert_eq!(record.status, Status::Completed);
            }
            both => panic!("round {round}: {both:?}"),
        }
    }
}

/// In each round, 64 rivals claim a new key, and one whose claim has lapsed.
async fn of_64_rivals_one_is_granted(backend: Backend) {
    let clock = future_clock();
    let store = Records::new(backend, clock.clone()).await.store().await;
    let all_claim = async |claims: Vec<ClaimRequest>| {
        let tasks = claims.into_iter().map(|claim| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { claim_one(&store, &claim).await })
        });
        let answers = join_all(tasks.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap);
        answers.inspect(|answer| assert!(answer.is_ok(), "{answer:?}")).filter(is_granted).count()
    };
    for round in 0..rounds().div_ceil(10) {
        let claim = claim();
        let rivals = || (0..64).map(|_| rival(&claim)).collect();
        assert_eq!(all_claim(rivals()).await, 1, "new, round {round}");
        clock.advance(LAPSE);
        assert_eq!(all_claim(rivals()).await, 1, "lapsed, round {round}");
    }
}

// Tests P5.
async fn of_64_concurrent_runs_one_executes(backend: Backend) {
    let clock = TokioClock::new();
    let store = Records::new(backend, clock.clone()).await.store().await;
    let once = Idempotency::builder(store).clock(clock).scope("tests").disabled(false).build().unwrap();
    let executed = &AtomicUsize::new(0);
    for round in 0..rounds().div_ceil(20) {
        let work = || async { Ok::<_, Failure>(executed.fetch_add(1, Ordering::SeqCst)) };
        let runs = (0..64).map(|_| once.operation("charge", &round).run(work));
        let kinds: Vec<_> = join_all(runs).await.into_iter().map(|outcome| outcome.unwrap().kind()).collect();
        let count = |kind| kinds.iter().filter(|one| **one == kind).count();
        let [granted, replayed, refused] =
            [OutcomeKind::Executed, OutcomeKind::Replayed, OutcomeKind::InProgress].map(count);
        assert_eq!((granted, granted + replayed + refused), (1, 64), "{kinds:?}");
        assert_eq!(executed.load(Ordering::SeqCst), round + 1);
    }
}

/// 16 workers claim the same 100 keys, each in a different order, and settle the granted claims in batches of yet
/// another order, together with renewals.
async fn batches_of_the_same_keys_in_any_order_neither_deadlock_nor_share_a_key(backend: Backend) {
    const WORKERS: usize = 16;
    let records = Records::new(backend, future_clock()).await;
    let keys: Arc<Vec<ClaimRequest>> = Arc::new(claims(100));
    let held: Arc<HashMap<KeyHash, AtomicBool>> =
        Arc::new(keys.iter().map(|claim| (claim.key, AtomicBool::new(false))).collect());
    let grants = Arc::new(AtomicUsize::new(0));
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        // Separate connections, as in an execution environment.
        let store = records.store().await;
        let (keys, held, grants) = (Arc::clone(&keys), Arc::clone(&held), Arc::clone(&grants));
        workers.push(tokio::spawn(async move {
            for _ in 0..rounds().div_ceil(20) {
                let mut batch: Vec<_> = keys.iter().map(rival).collect();
                fastrand::shuffle(&mut batch);
                let answers = store.claim(&batch).await;
                assert_eq!(answers.len(), batch.len());
                let answers = batch.into_iter().zip(answers);
                let mut mine: Vec<_> = answers
                    .filter_map(|(claim, answer)| matches!(answer.unwrap(), Claimed::Granted(_)).then_some(claim))
                    .collect();
                for claim in &mine {
                    assert!(!held[&claim.key].swap(true, Ordering::SeqCst), "two hold a key");
                }
                grants.fetch_add(mine.len(), Ordering::Relaxed);
                fastrand::shuffle(&mut mine);
                let renewals: Vec<_> = mine.iter().map(|claim| settle_of(claim, RENEW)).collect();
                for answer in store.settle(&renewals).await {
                    assert!(matches!(answer.unwrap(), Settled::Renewed { .. }));
                }
                fastrand::shuffle(&mut mine);
                let releases: Vec<_> = mine.iter().map(|claim| settle_of(claim, RELEASE)).collect();
                mine.iter().for_each(|claim| held[&claim.key].store(false, Ordering::SeqCst));
                for answer in store.settle(&releases).await {
                    assert_eq!(answer.unwrap(), Settled::Done { found: None });
                }
            }
        }));
    }
    join_all(workers).await.into_iter().for_each(|worker| worker.unwrap());
    assert!(grants.load(Ordering::Relaxed) >= 100);
    let keys: Vec<_> = keys.iter().map(|claim| claim.key).collect();
    let left = records.store().await.read(&keys, ResultData::Omit).await;
    assert!(left.into_iter().all(|record| record.unwrap().is_none()));
}

on_each_server!(
    of_a_late_completion_and_a_takeover_exactly_one_is_applied,
    of_64_rivals_one_is_granted,
    of_64_concurrent_runs_one_executes,
    batches_of_the_same_keys_in_any_order_neither_deadlock_nor_share_a_key,
);
