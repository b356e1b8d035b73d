//! Cluster nodes that stop responding or whose responses are lost, and clusters over TLS.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lambda_once::{
    Error, ErrorKind, ErrorStatus, RedisStore, Store,
    store::{ClaimRequest, Claimed, redis::Config},
};
use tokio::time::timeout;

use super::{PATIENCE, command, direct};
use crate::support::{
    requests::{claim, claim_one, claims, complete, is_granted, is_replay, rival, settle_of, settle_one},
    servers::Server,
    tls::{Certificates, TlsProxy},
    wire::{self, Protocol, host_and_port},
};

const RESPONSE_TIMEOUT: Duration = Duration::from_millis(200);
/// The node that stops responding, with its share of the slots.
const SILENT: usize = 1;
const ITS_SLOTS: std::ops::Range<u16> = 5461..10922;

struct World {
    cluster: Server,
    urls: Vec<String>,
    store: RedisStore,
}

impl World {
    async fn new(response_timeout: Duration) -> Self {
        let cluster = Server::start("valkey-cluster", &[]);
        let urls: Vec<String> = cluster.url().split(',').map(str::to_owned).collect();
        let store =
            Config::cluster(&urls).connect_timeout(PATIENCE).response_timeout(response_timeout).build().unwrap();
        store.warm_up().await.unwrap();
        Self { cluster, urls, store }
    }

    /// Returns a claim on the silent node.
    async fn claim(&self) -> ClaimRequest {
        let mut direct = direct(&self.urls[0]).await;
        loop {
            let request = claim();
            let slot = request.key.to_hex()[..32].to_owned();
            if ITS_SLOTS.contains(&command::<u16>(&mut direct, &["CLUSTER", "KEYSLOT", &slot]).await) {
                return request;
            }
        }
    }

    /// Claims as soon as the cluster accepts it, which may have missed the silent node for too long.
    async fn claim_once_up(&self, request: &ClaimRequest) -> Result<Claimed, Error> {
        loop {
            match claim_one(&self.store, request).await {
                Err(error) if error.status() == ErrorStatus::Temporary => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
    }

    /// Returns the number of connections that a responding node has accepted, including the one for this request.
    async fn connections(&self) -> u32 {
        let mut direct = direct(&self.urls[0]).await;
        let stats: String = command(&mut direct, &["INFO", "stats"]).await;
        let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_is_a_timeout_and_its_connections_are_opened_anew() {
    let mut world = World::new(RESPONSE_TIMEOUT).await;
    let request = world.claim().await;
    let before = world.connections().await;
    world.cluster.freeze_node(SILENT);
    let begun = Instant::now();
    let error = claim_one(&world.store, &request).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Timeout, ErrorStatus::Ambiguous), "{error}");
    // The client may retry twice.
    assert!(begun.elapsed() < RESPONSE_TIMEOUT * 10, "{:?}", begun.elapsed());
    world.cluster.resume_node(SILENT);
    assert!(is_granted(&world.claim_once_up(&request).await), "the same claim, applied or not");
    assert!(world.store.claim(&claims(50)).await.iter().all(is_granted));
    // One more than the connection for this request.
    assert!(world.connections().await > before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_whose_calls_are_dropped_has_its_connections_opened_anew() {
    let mut world = World::new(PATIENCE).await;
    let request = world.claim().await;
    let before = world.connections().await;
    world.cluster.freeze_node(SILENT);
    timeout(RESPONSE_TIMEOUT, claim_one(&world.store, &request)).await.expect_err("it is silent");
    world.cluster.resume_node(SILENT);
    assert!(is_granted(&world.claim_once_up(&request).await), "the same claim, applied or not");
    assert!(world.connections().await > before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_no_node_has_costs_no_connection() {
    let world = World::new(PATIENCE).await;
    let before = world.connections().await;
    assert!(world.store.claim(&claims(50)).await.iter().all(is_granted));
    assert_eq!(world.connections().await, before + 1, "the one for this request");
}

// The proxies need a second local address.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_settle_whose_response_a_node_loses_is_sent_again_and_done() {
    let world = World::new(PATIENCE).await;
    let (proxies, urls) = wire::Proxy::of_cluster(world.cluster.url()).await;
    let store = Config::cluster(urls).connect_timeout(PATIENCE).response_timeout(PATIENCE).build().unwrap();
    let scripts = || proxies.iter().map(|proxy| proxy.requests().iter().filter(|it| it.command == "EVALSHA").count());
    let (before, claims) = (claims(50), claims(50));
    assert!(store.claim(&[&before[..], &claims].concat()).await.iter().all(is_granted));
    // Each node has the script then.
    let settles: Vec<_> = before.iter().map(|claim| settle_of(claim, complete("1"))).collect();
    assert!(store.settle(&settles).await.iter().all(Result::is_ok));
    assert!(scripts().all(|count| count > 0), "each node is reached through its proxy");

    for proxy in &proxies {
        proxy.reset();
        proxy.on_command("EVALSHA").drop_response();
    }
    for claim in &claims {
        let settled = match settle_one(&store, claim, complete("1")).await {
            Err(error) if error.status() == ErrorStatus::Ambiguous => settle_one(&store, claim, complete("1")).await,
            settled => settled,
        };
        assert!(matches!(settled, Ok(lambda_once::store::Settled::Done { .. })), "{settled:?}");
    }
    assert!(proxies.iter().all(|proxy| proxy.pending_faults() == 0), "each node has lost a response");
    // A command that is sent before its node is reached again may go to a different node first.
    assert!(scripts().sum::<usize>() >= claims.len() + proxies.len(), "at least one of each node is sent again");
    let rivals: Vec<_> = claims.iter().map(rival).collect();
    assert!(store.claim(&rivals).await.iter().all(|answer| is_replay(answer, "1")));
}

/// Starts each node behind TLS, and announces the TLS proxy to clients.
async fn behind_tls(urls: &[String], certificates: &Certificates) -> Vec<TlsProxy> {
    let start = |url: &String| {
        let server = host_and_port(url).to_owned();
        async move { TlsProxy::start(certificates, Protocol::Resp, &server).await }
    };
    let proxies = join_all(urls.iter().map(start)).await;
    for (url, proxy) in urls.iter().zip(&proxies) {
        let port = proxy.address.port().to_string();
        command::<()>(&mut direct(url).await, &["CONFIG", "SET", "cluster-announce-port", &port]).await;
    }
    for url in urls {
        let mut direct = direct(url).await;
        let is_known = |nodes: &str| proxies.iter().all(|proxy| nodes.contains(&format!("{}@", proxy.address)));
        while !is_known(&command::<String>(&mut direct, &["CLUSTER", "NODES"]).await) {
            tokio::task::yield_now().await;
        }
    }
    proxies
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_of_a_cluster_is_reached_over_tls() {
    let world = World::new(PATIENCE).await;
    let certificates = Certificates::new();
    let proxies = behind_tls(&world.urls, &certificates).await;
    let config = |authority| {
        let urls = proxies.iter().map(|proxy| format!("rediss://{}", proxy.address));
        Config::cluster(urls).connect_timeout(PATIENCE).response_timeout(PATIENCE).root_certificates(authority)
    };
    let store = config(certificates.authority.clone()).build().unwrap();
    let claims = claims(50);
    assert!(store.claim(&claims).await.iter().all(is_granted));
    let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim, complete("1"))).collect();
    assert!(store.settle(&settles).await.iter().all(Result::is_ok));
    let rivals: Vec<_> = claims.iter().map(rival).collect();
    assert!(store.claim(&rivals).await.iter().all(|answer| is_replay(answer, "1")));

    let distrusting = config(Certificates::new().authority).build().unwrap();
    let error = claim_one(&distrusting, &claim()).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{error}");
    assert!(error.to_string().contains("`root_certificates`"), "{error}");
}
