//! The documented losses of a failover.

use lambda_once::{
    ErrorKind, ErrorStatus, RedisStore,
    store::{Claimed, Settled},
};
use redis::aio::MultiplexedConnection;

use super::{command, direct, store};
use crate::support::requests::{RELEASE, claim, claim_one, complete, is_granted, is_replay, rival, settle_one};
use crate::support::servers::Server;

fn port(server: &Server) -> &str {
    server.url().rsplit(':').next().unwrap()
}

/// Starts a primary and its replica, with a store on each and a connection to the replica.
async fn replicated() -> ([Server; 2], [RedisStore; 2], MultiplexedConnection) {
    let servers = [Server::start("valkey", &[]), Server::start("valkey", &["repl-diskless-sync-delay=0"])];
    let mut replica = direct(servers[1].url()).await;
    command::<()>(&mut replica, &["REPLICAOF", "127.0.0.1", port(&servers[0])]).await;
    while !command::<String>(&mut replica, &["INFO", "replication"]).await.contains("master_link_status:up") {
        tokio::task::yield_now().await;
    }
    let stores = [store(servers[0].url()), store(servers[1].url())];
    (servers, stores, replica)
}

/// Waits until the replica has everything that the primary acknowledged.
async fn replicate(primary: &Server) {
    let mut direct = direct(primary.url()).await;
    // WAIT returns once the replica has this connection's last write, and thus all earlier writes of the server.
    command::<()>(&mut direct, &["SET", "last", ""]).await;
    let acknowledged: u32 = command(&mut direct, &["WAIT", "1", "0"]).await;
    assert_eq!(acknowledged, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_loses_only_acknowledged_writes_that_were_not_replicated() {
    let ([mut primary, mut replica], [before, after], mut direct_to_replica) = replicated().await;
    let (replicated_done, replicated_claim) = (claim(), claim());
    assert!(is_granted(&claim_one(&before, &replicated_done).await));
    assert_eq!(settle_one(&before, &replicated_done, complete("1")).await.unwrap(), Settled::Done { found: None });
    assert!(is_granted(&claim_one(&before, &replicated_claim).await));
    let half_done = claim();
    assert!(is_granted(&claim_one(&before, &half_done).await));
    replicate(&primary).await;

    // Writes on their way would still arrive.
    replica.freeze();
    command::<u32>(&mut direct(primary.url()).await, &["CLIENT", "KILL", "TYPE", "replica"]).await;
    let lost = claim();
    assert!(is_granted(&claim_one(&before, &lost).await));
    assert_eq!(settle_one(&before, &half_done, complete("2")).await.unwrap(), Settled::Done { found: None });
    primary.kill();
    replica.resume();
    command::<()>(&mut direct_to_replica, &["REPLICAOF", "NO", "ONE"]).await;

    assert!(is_replay(&claim_one(&after, &rival(&replicated_done)).await, "1"), "a replicated outcome");
    assert!(!is_granted(&claim_one(&after, &rival(&replicated_claim)).await), "a replicated claim");
    // The loss: a second claim is granted beside the first, without any indication.
    let granted = claim_one(&after, &rival(&lost)).await.unwrap();
    assert!(matches!(granted, Claimed::Granted(grant) if grant.prior_status.is_none()), "{granted:?}");
    assert!(matches!(settle_one(&after, &lost, complete("late")).await.unwrap(), Settled::LeaseLost { .. }));
    // A lost outcome leaves its claim, which is taken over when its lease ends.
    assert!(!is_granted(&claim_one(&after, &rival(&half_done)).await), "a lost outcome");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_on_a_replica_gets_temporary_errors_until_promotion() {
    let ([_primary, _replica], [_, store], mut replica) = replicated().await;
    let request = claim();
    let error = claim_one(&store, &request).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{error}");
    // The replica's copy does not show whether there is still a claim to release.
    let error = settle_one(&store, &request, RELEASE).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{error}");
    command::<()>(&mut replica, &["REPLICAOF", "NO", "ONE"]).await;
    assert!(is_granted(&claim_one(&store, &request).await));
}
