//! A server without free memory.

use lambda_once::{
    Error, ErrorKind, ErrorStatus, Store,
    clock::ManualClock,
    store::{Claimed, Refusal, Settled},
};

use super::{
    HAND_BACK, LEASE, MARGIN, RELEASE, RENEW, claim, command, complete, direct, is_granted, is_replay, new_claim,
    rival, settle, store,
};
use crate::support::{FUTURE, servers::Server};

fn is_throttled(answer: &Result<Claimed, Error>) -> bool {
    matches!(answer, Err(error) if (error.kind(), error.status()) == (ErrorKind::Throttled, ErrorStatus::Temporary))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_free_memory_refuses_claims_and_still_records_outcomes() {
    let server = Server::start("valkey", &["maxmemory-policy=noeviction"]);
    let clock = ManualClock::at(FUTURE);
    let store = store(server.url()).with_clock(clock.clone());
    let abandoned = new_claim();
    assert!(is_granted(&claim(&store, &abandoned).await));
    clock.advance(LEASE + 2 * MARGIN);
    let claims: Vec<_> = (0..5).map(|_| new_claim()).collect();
    for request in &claims {
        assert!(is_granted(&claim(&store, request).await));
    }
    let taker = new_claim();
    assert!(is_granted(&claim(&store, &taker).await));

    command::<()>(&mut direct(server.url()).await, &["CONFIG", "SET", "maxmemory", "1"]).await;
    assert!(is_throttled(&claim(&store, &new_claim()).await), "a new key");
    let before = store.read(&[abandoned.key], abandoned.result_data).await.remove(0).unwrap();
    assert!(is_throttled(&claim(&store, &rival(&abandoned)).await), "a takeover");
    assert_eq!(store.read(&[abandoned.key], abandoned.result_data).await.remove(0).unwrap(), before);

    let large = format!("\"{}\"", "x".repeat(100_000));
    assert_eq!(settle(&store, &claims[0], complete(&*large)).await.unwrap(), Settled::Done);
    assert!(is_replay(&claim(&store, &rival(&claims[0])).await, &large));
    assert_eq!(settle(&store, &claims[1], HAND_BACK).await.unwrap(), Settled::Done);
    assert!(matches!(settle(&store, &claims[2], RENEW).await.unwrap(), Settled::Renewed { .. }));
    let standing = claim(&store, &rival(&claims[2])).await.unwrap();
    assert!(matches!(standing, Claimed::Refused(Refusal::InProgress { .. })), "{standing:?}");
    assert_eq!(settle(&store, &claims[3], RELEASE).await.unwrap(), Settled::Done);
    assert_eq!(store.read(&[claims[3].key], taker.result_data).await.remove(0).unwrap(), None);
}

/// What the documentation warns of. The policy is the default of ElastiCache.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_evicts_loses_live_claims_and_nobody_is_told() {
    let server = Server::start("valkey", &["maxmemory-policy=volatile-lru"]);
    let (store, mut direct) = (store(server.url()), direct(server.url()).await);
    let claims: Vec<_> = (0..500).map(|_| new_claim()).collect();
    assert!(store.claim(&claims).await.iter().all(is_granted));
    let used: String = command(&mut direct, &["INFO", "memory"]).await;
    let used: u64 = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    command::<()>(&mut direct, &["CONFIG", "SET", "maxmemory", &used.to_string()]).await;
    assert!(store.claim(&(0..500).map(|_| new_claim()).collect::<Vec<_>>()).await.iter().all(is_granted));

    let rivals: Vec<_> = claims.iter().map(rival).collect();
    let again = store.claim(&rivals).await;
    let lost =
        again.iter().filter(|answer| matches!(answer, Ok(Claimed::Granted(grant)) if grant.prior_status.is_none()));
    let lost = lost.count();
    println!("{lost} of {} live claims were evicted", claims.len());
    assert!(lost > 0);
}
