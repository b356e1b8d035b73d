//! A server without free memory.

use lambda_once::{
    Error, ErrorKind, ErrorStatus, Store,
    clock::ManualClock,
    store::{Claimed, Refusal, Settled},
};

use super::{command, direct, store};
use crate::support::requests::{
    HAND_BACK, LEASE, MARGIN, RELEASE, RENEW, claim, claim_one, claims, complete, is_granted, is_replay, rival,
    settle_one,
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
    let abandoned = claim();
    assert!(is_granted(&claim_one(&store, &abandoned).await));
    clock.advance(LEASE + 2 * MARGIN);
    let claims = claims(5);
    for request in &claims {
        assert!(is_granted(&claim_one(&store, request).await));
    }
    let taker = claim();
    assert!(is_granted(&claim_one(&store, &taker).await));

    command::<()>(&mut direct(server.url()).await, &["CONFIG", "SET", "maxmemory", "1"]).await;
    assert!(is_throttled(&claim_one(&store, &claim()).await), "a new key");
    let before = store.read(&[abandoned.key], abandoned.result_data).await.remove(0).unwrap();
    assert!(is_throttled(&claim_one(&store, &rival(&abandoned)).await), "a takeover");
    assert_eq!(store.read(&[abandoned.key], abandoned.result_data).await.remove(0).unwrap(), before);

    let large = format!("\"{}\"", "x".repeat(100_000));
    assert_eq!(settle_one(&store, &claims[0], complete(&*large)).await.unwrap(), Settled::Done { found: None });
    assert!(is_replay(&claim_one(&store, &rival(&claims[0])).await, &large));
    assert_eq!(settle_one(&store, &claims[1], HAND_BACK).await.unwrap(), Settled::Done { found: None });
    assert!(matches!(settle_one(&store, &claims[2], RENEW).await.unwrap(), Settled::Renewed { .. }));
    let standing = claim_one(&store, &rival(&claims[2])).await.unwrap();
    assert!(matches!(standing, Claimed::Refused(Refusal::InProgress { .. })), "{standing:?}");
    assert_eq!(settle_one(&store, &claims[3], RELEASE).await.unwrap(), Settled::Done { found: None });
    assert_eq!(store.read(&[claims[3].key], taker.result_data).await.remove(0).unwrap(), None);
}

/// The documentation warns of this policy, which is the default of ElastiCache.
#[tokio::test(flavor = "multi_thread")]
async fn an_evicting_server_loses_live_claims_silently() {
    let server = Server::start("valkey", &["maxmemory-policy=volatile-lru"]);
    let (store, mut direct) = (store(server.url()), direct(server.url()).await);
    let live = claims(500);
    assert!(store.claim(&live).await.iter().all(is_granted));
    let used: String = command(&mut direct, &["INFO", "memory"]).await;
    let used: u64 = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    command::<()>(&mut direct, &["CONFIG", "SET", "maxmemory", &used.to_string()]).await;
    assert!(store.claim(&claims(500)).await.iter().all(is_granted));

    let rivals: Vec<_> = live.iter().map(rival).collect();
    let again = store.claim(&rivals).await;
    let lost =
        again.iter().filter(|answer| matches!(answer, Ok(Claimed::Granted(grant)) if grant.prior_status.is_none()));
    let lost = lost.count();
    println!("{lost} of {} live claims were evicted", live.len());
    assert!(lost > 0);
}
