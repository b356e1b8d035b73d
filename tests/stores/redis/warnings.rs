//! The warnings of `warm_up`.

use lambda_once::Store;

use super::{command, direct, store};
use crate::support::{collector::Collector, servers::Server};

async fn warned_on(settings: &[&str]) -> String {
    let server = Server::start("valkey", settings);
    let (collector, guard) = Collector::install();
    store(server.url()).warm_up().await.unwrap();
    drop(guard);
    collector.lines().iter().map(|line| format!("{} {}", line.get("message"), line.get("maxmemory_policy"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn warming_warns_of_evictions() {
    let warned = warned_on(&["maxmemory=100mb", "maxmemory-policy=volatile-lru"]).await;
    assert!(warned.contains("noeviction") && warned.contains("volatile-lru"), "{warned}");
    let silent = warned_on(&["maxmemory=100mb", "maxmemory-policy=noeviction"]).await;
    assert_eq!(silent, "");
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
