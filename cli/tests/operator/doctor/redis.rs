//! A Valkey server of this test.

use redis::{Client, aio::MultiplexedConnection};

use super::{Report, doctor};
use crate::servers::Server;

/// The documented permissions, and that to read the save points.
const RULES: &str =
    "on >secret ~once:* +evalsha +eval +hmget +hset +hdel +del +pexpireat +time +ping +info +config|get";

async fn send(connection: &mut MultiplexedConnection, command: &str) {
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command.query_async::<()>(connection).await.unwrap();
}

async fn check(url: &str, more: &[&str]) -> Report {
    doctor(&[&["--store", url], more].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_redis_is_found() {
    let server = Server::start("valkey", &["appendonly=yes"]);
    let mut connection = Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    check(server.url(), &[]).await.assert(&[], &[]);

    send(&mut connection, "CONFIG SET maxmemory-policy allkeys-lru").await;
    check(server.url(), &[]).await.assert(&["redis-evicts"], &[]);
    send(&mut connection, "CONFIG SET maxmemory-policy noeviction").await;

    send(&mut connection, &format!("ACL SETUSER once {RULES}")).await;
    let as_user = server.url().replace("redis://", "redis://once:secret@");
    check(&as_user, &[]).await.assert(&[], &[]);
    // Its keys are others.
    let report = check(&as_user, &["--prefix", "other:"]).await;
    report.assert(&["redis-acl"], &[]);
    send(&mut connection, "ACL SETUSER once -hset -time").await;
    let report = check(&as_user, &[]).await;
    report.assert(&["redis-acl"], &[]);
    assert!(report.findings[0]["fix"].as_str().unwrap().ends_with(" +hset +time"), "{report:#?}");
    send(&mut connection, "ACL SETUSER once +hset +time -info -config").await;
    check(&as_user, &[]).await.assert(&[], &["eviction", "persistence", "the version", "cluster mode"]);
    send(&mut connection, "ACL SETUSER once -eval").await;
    assert_eq!(check(&as_user, &[]).await.codes(), ["redis-acl"]);

    send(&mut connection, "CONFIG SET appendonly no").await;
    let report = check(server.url(), &[]).await;
    report.assert(&["redis-persistence-off"], &[]);
    assert_eq!(report.findings[0]["severity"], "error");
    send(&mut connection, "REPLICAOF 127.0.0.1 1").await;
    assert_eq!(check(server.url(), &[]).await.codes(), ["redis-persistence-off", "redis-replica"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_node_configured_as_a_single_node_is_reported() {
    let url = crate::support::server("REDIS_CLUSTER_URL");
    let node = url.split(',').next().unwrap();
    assert_eq!(check(node, &[]).await.codes(), ["redis-persistence-off", "redis-cluster-as-node"]);
    let as_cluster = format!("{node}?cluster=true");
    assert_eq!(check(&as_cluster, &[]).await.codes(), ["redis-persistence-off"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_a_cluster_needs_its_commands() {
    let urls = crate::support::server("REDIS_CLUSTER_URL");
    let node = urls.split(',').next().unwrap();
    let mut connection = Client::open(node).unwrap().get_multiplexed_async_connection().await.unwrap();
    let user = crate::support::unique_name();
    send(&mut connection, &format!("ACL SETUSER {user} {RULES}")).await;
    let as_user = node.replace("redis://", &format!("redis://{user}:secret@"));
    let as_cluster = format!("{as_user}?cluster=true");
    let report = check(&as_cluster, &[]).await;
    report.assert(&["redis-persistence-off", "redis-acl"], &[]);
    assert!(report.findings[1]["fix"].as_str().unwrap().ends_with("~once:* +cluster|slots +asking"), "{report:#?}");
    // For one node they are not needed.
    check(&as_user, &[]).await.assert(&["redis-persistence-off", "redis-cluster-as-node"], &[]);
    send(&mut connection, &format!("ACL SETUSER {user} +cluster|slots")).await;
    let report = check(&as_cluster, &[]).await;
    report.assert(&["redis-persistence-off", "redis-acl"], &[]);
    assert!(report.findings[1]["fix"].as_str().unwrap().ends_with("~once:* +asking"), "{report:#?}");
    send(&mut connection, &format!("ACL SETUSER {user} +asking")).await;
    check(&as_cluster, &[]).await.assert(&["redis-persistence-off"], &[]);
    send(&mut connection, &format!("ACL DELUSER {user}")).await;
}
