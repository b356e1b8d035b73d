//! The warnings of `warm_up`.

use lambda_once::{RedisStore, Store};

use super::{command, direct, store};
use crate::support::{collector::Collector, servers::Server};

async fn warned_on(settings: &[&str], query: &str) -> String {
    let server = Server::start("valkey", settings);
    warned_by(&store(&format!("{}{query}", server.url()))).await
}

async fn warned_by(store: &RedisStore) -> String {
    let (collector, guard) = Collector::install();
    store.warm_up().await.unwrap();
    drop(guard);
    collector.lines().iter().map(|line| format!("{} {}", line.get("message"), line.get("maxmemory_policy"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn warming_warns_of_evictions() {
    for query in ["", "?protocol=resp3"] {
        let warned = warned_on(&["maxmemory=100mb", "maxmemory-policy=volatile-lru"], query).await;
        assert!(warned.contains("noeviction") && warned.contains("volatile-lru"), "{warned}");
        let silent = warned_on(&["maxmemory=100mb", "maxmemory-policy=noeviction"], query).await;
        assert_eq!(silent, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_info_is_warned_about_skipped_checks() {
    let server = Server::start("valkey", &[]);
    let rules = ["ACL", "SETUSER", "once", "on", ">secret", "~*", "+@all", "-info"];
    command::<()>(&mut direct(server.url()).await, &rules).await;
    let (collector, guard) = Collector::install();
    store(&server.url().replace("redis://", "redis://once:secret@")).warm_up().await.unwrap();
    drop(guard);
    let warned: String = collector.lines().iter().map(|line| line.get("message").to_string()).collect();
    assert!(warned.contains("noeviction") && warned.contains("INFO"), "{warned}");
}

#[cfg(feature = "redis-cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn warming_a_cluster_warns_of_a_single_node_that_evicts() {
    let cluster = Server::start("valkey-cluster", &[]);
    let urls: Vec<&str> = cluster.url().split(',').collect();
    let config = lambda_once::store::redis::Config::cluster(urls.clone()).connect_timeout(super::PATIENCE);
    let store = config.response_timeout(super::PATIENCE).build().unwrap();
    assert_eq!(warned_by(&store).await, "");
    let evicts = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    command::<()>(&mut direct(urls[1]).await, &evicts).await;
    let warned = warned_by(&store).await;
    assert!(warned.contains("noeviction") && warned.contains("allkeys-lru"), "{warned}");
}

// The proxies need a second local address.
#[cfg(all(feature = "redis-cluster", target_os = "linux"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_responds_to_a_ping_alone_fails_the_warm_up() {
    let cluster = Server::start("valkey-cluster", &[]);
    let (proxies, urls) = crate::support::wire::Proxy::of_cluster(cluster.url()).await;
    let config = lambda_once::store::redis::Config::cluster(urls).connect_timeout(super::PATIENCE);
    let store = config.response_timeout(std::time::Duration::from_secs(2)).build().unwrap();
    store.warm_up().await.unwrap();
    let _silent = proxies[1].on_command("INFO").times(100).hang();
    let error = store.warm_up().await.unwrap_err();
    assert_eq!(error.status(), lambda_once::ErrorStatus::Ambiguous, "{error}");
}
