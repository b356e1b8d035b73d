//! A server that stops and restarts.

use std::time::Duration;

use lambda_once::{
    ErrorStatus, Store,
    store::{Claimed, Refusal, Settled, redis::Config},
};

use super::store;
use crate::support::requests::{
    claim, claim_one, claims, complete, is_granted, is_replay, rival, settle_of, settle_one,
};
use crate::support::servers::Server;

const DURABLE: [&str; 2] = ["appendonly=yes", "appendfsync=always"];

#[tokio::test(flavor = "multi_thread")]
async fn with_an_append_only_file_a_killed_server_has_all_that_it_acknowledged() {
    let mut server = Server::start("valkey", &DURABLE);
    let store = store(server.url());
    let (done, running) = (claim(), claim());
    assert!(is_granted(&claim_one(&store, &done).await));
    assert!(is_granted(&claim_one(&store, &running).await));
    assert_eq!(settle_one(&store, &done, complete("1")).await.unwrap(), Settled::Done { found: None });
    server.kill();
    server.restart();
    // The store detects its dead connection.
    assert!(is_replay(&claim_one(&store, &rival(&done)).await, "1"));
    let refused = claim_one(&store, &rival(&running)).await.unwrap();
    assert!(matches!(refused, Claimed::Refused(Refusal::InProgress { attempt: 1, .. })), "{refused:?}");
    assert_eq!(settle_one(&store, &running, complete("2")).await.unwrap(), Settled::Done { found: None });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_interrupted_by_a_restart_ends_as_if_it_had_not_been() {
    let mut server = Server::start("valkey", &DURABLE);
    // A thousand keys, each written through to a disk that may be busy.
    let store = Config::new(server.url()).response_timeout(Duration::from_secs(20)).build().unwrap();
    for _ in 0..5 {
        let claims = claims(1000);
        let first = tokio::spawn({
            let (store, claims) = (store.clone(), claims.clone());
            async move { store.claim(&claims).await }
        });
        server.kill();
        for error in first.await.unwrap().into_iter().filter_map(Result::err) {
            assert_ne!(error.status(), ErrorStatus::Permanent, "{error:?}");
        }
        server.restart();
        // The owners are the same. Applied claims are recognized, and the rest is granted now.
        let again = store.claim(&claims).await;
        assert!(again.iter().all(|answer| matches!(answer, Ok(Claimed::Granted(grant)) if grant.attempt == 1)));
        let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim, complete("1"))).collect();
        assert!(store.settle(&settles).await.iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))));
    }
}
