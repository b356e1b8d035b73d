//! The documented losses of a failover.

use lambda_once::{
    ErrorKind, ErrorStatus, RedisStore, Store,
    store::{Claimed, Settled},
};
use redis::aio::MultiplexedConnection;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{command, direct, store};
use crate::support::{
    requests::{RELEASE, claim, claim_one, claims, complete, is_granted, is_replay, rival, settle_one},
    servers::Server,
    wire::host_and_port,
};

fn port(server: &Server) -> &str {
    server.url().rsplit(':').next().unwrap()
}

/// Starts a primary and its replica, with a store on each and a connection to the replica.
async fn replicated() -> ([Server; 2], [RedisStore; 2], MultiplexedConnection) {
    let servers = [Server::start("valkey", &[]), Server::start("valkey", &["repl-diskless-sync-delay=0"])];
    let mut replica = direct(servers[1].url()).await;
    follow(&mut replica, &servers[0]).await;
    let stores = [store(servers[0].url()), store(servers[1].url())];
    (servers, stores, replica)
}

/// Makes a server a replica, and waits until it follows its primary.
async fn follow(replica: &mut MultiplexedConnection, primary: &Server) {
    command::<()>(replica, &["REPLICAOF", "127.0.0.1", port(primary)]).await;
    while !command::<String>(replica, &["INFO", "replication"]).await.contains("master_link_status:up") {
        tokio::task::yield_now().await;
    }
}

/// Returns the URL of an endpoint in front of a server, and the address to which its new connections lead.
async fn endpoint(server: &Server) -> (String, watch::Sender<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (address, current) = watch::channel(host_and_port(server.url()).to_owned());
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let address = current.borrow().clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await; // ends with either side
            });
        }
    });
    (url, address)
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

/// The server that is demoted keeps its connections open.
#[tokio::test(flavor = "multi_thread")]
async fn after_the_error_of_a_demoted_server_a_call_reaches_the_new_primary() {
    let ([before, after], _, mut direct_to_after) = replicated().await;
    let (url, address) = endpoint(&before).await;
    let store = store(&url);
    assert!(is_granted(&claim_one(&store, &claim()).await));

    command::<()>(&mut direct_to_after, &["REPLICAOF", "NO", "ONE"]).await;
    address.send_replace(host_and_port(after.url()).to_owned());
    follow(&mut direct(before.url()).await, &after).await;

    let claims = claims(3);
    for answer in store.claim(&claims).await {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{error}");
    }
    let answers = store.claim(&claims).await;
    assert!(answers.iter().all(is_granted), "{answers:?}");
}
