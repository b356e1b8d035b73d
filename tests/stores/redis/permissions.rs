//! Permissions of a Redis user.

use futures_util::future::join_all;
use lambda_once::{
    AfterUnknown, Error, ErrorKind, ErrorStatus, Failure, Idempotency, Outcome, RedisStore, Store,
    store::{
        listing::{List, ListRequest, ListedState},
        redis::Config,
    },
};
use redis::{Value, aio::MultiplexedConnection};

use super::{command, direct, orders::ordered, store};
use crate::support::{
    assert_outcome,
    requests::{HAND_BACK, RELEASE, RENEW, claim, claim_one, complete, is_granted, settle_one},
    servers::Server,
};

pub(super) fn denied(error: &Error) -> bool {
    (error.kind(), error.status()) == (ErrorKind::AccessDenied, ErrorStatus::Temporary)
}

/// Returns whether a command in a script was denied. The server keeps the script's earlier writes.
pub(super) fn denied_in_script(error: &Error) -> bool {
    (error.kind(), error.status()) == (ErrorKind::AccessDenied, ErrorStatus::Ambiguous)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_not_reported_as_an_unavailable_server() {
    let server = Server::start("valkey", &["requirepass=secret"]);
    for user in ["", ":wrong@", "nobody:secret@"] {
        let url = server.url().replace("redis://", &format!("redis://{user}"));
        let error = claim_one(&store(&url), &claim()).await.unwrap_err();
        assert!(denied(&error), "{user}: {error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
}

/// The documented permissions on a node, and the additional ones in a cluster.
const RULES: &str = "on >secret ~once:* +evalsha +eval +hmget +hset +hdel +del +pexpireat +time +ping +info +select";
const RULES_OF_A_CLUSTER: &str = "+cluster|slots +asking";

pub(super) async fn allow(server: &mut MultiplexedConnection, rules: &str) {
    let words: Vec<_> = ["ACL", "SETUSER", "once"].into_iter().chain(rules.split(' ')).collect();
    command::<()>(server, &words).await;
}

/// Grants the documented permissions.
pub(super) async fn allow_documented(server: &mut MultiplexedConnection) {
    allow(server, RULES).await;
    // Redis 7.0 rejects a rule with an unknown command.
    let known: Vec<Value> = command(server, &["COMMAND", "INFO", "client|setinfo"]).await;
    if known != [Value::Nil] {
        allow(server, "+client|setinfo").await;
    }
}

pub(super) fn as_user(url: &str) -> String {
    url.replace("redis://", "redis://once:secret@")
}

async fn assert_usable(store: &RedisStore) {
    store.warm_up().await.unwrap();
    for settlement in [complete("1"), RELEASE, HAND_BACK, RENEW] {
        for request in [claim(), ordered(&claim(), 1)] {
            assert!(is_granted(&claim_one(store, &request).await));
            settle_one(store, &request, settlement.clone()).await.unwrap();
            assert!(store.read(&[request.key], request.result_data).await.remove(0).is_ok());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_permissions_allow_the_store_and_no_other_keys() {
    let server = Server::start("valkey", &[]);
    let mut direct = direct(server.url()).await;
    allow_documented(&mut direct).await;
    let url = as_user(server.url());
    for store in [store(&format!("{url}/1")), store(&url)] {
        assert_usable(&store).await;
    }
    let store = store(&url);
    for (rules, status) in [
        ("-hset", ErrorStatus::Ambiguous),
        ("+hset -evalsha", ErrorStatus::Temporary),
        ("+evalsha resetkeys ~other:*", ErrorStatus::Temporary),
    ] {
        allow(&mut direct, rules).await;
        let error = claim_one(&store, &claim()).await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::AccessDenied, status), "{rules}: {error}");
    }
}

/// Without PEXPIREAT the script writes the record and then fails. The record would block its key, and never expire.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_script_was_denied_a_command_is_withdrawn() {
    let server = Server::start("valkey", &[]);
    let mut direct = direct(server.url()).await;
    allow_documented(&mut direct).await;
    let builder = Idempotency::builder(store(&as_user(server.url()))).scope("tests").disabled(false);
    let once = builder.after_unknown(AfterUnknown::Refuse).build().unwrap();
    let run = || once.operation("charge", "order 7").run(|| async { Ok::<_, Failure>(1) });
    let hex = once.key_hash("charge", "order 7").unwrap().to_hex();
    let name = format!("once:{{{}}}{}", &hex[..32], &hex[32..]);

    allow(&mut direct, "-pexpireat").await;
    let error = run().await.unwrap_err();
    assert!(denied_in_script(&error), "{error}");
    assert_eq!(command::<u32>(&mut direct, &["EXISTS", &name]).await, 0, "nothing ran, and the key is free");
    allow(&mut direct, "+pexpireat").await;
    assert_outcome!(run().await, Ok(Outcome::Executed(1)));
    assert_eq!(command::<u32>(&mut direct, &["EXISTS", &name]).await, 1, "the name is the record's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_may_not_read_the_records_fails() {
    let server = Server::start("valkey", &[]);
    let mut direct = direct(server.url()).await;
    allow_documented(&mut direct).await;
    allow(&mut direct, "+scan").await;
    let store = store(&as_user(server.url()));
    assert!(is_granted(&claim_one(&store, &claim()).await));
    // It begins like the name of a record, but is not one.
    let name = format!("once:{{{}}}{}", "ab".repeat(16), "ab".repeat(16));
    command::<()>(&mut direct, &["SET", &name, "x"]).await;
    let request = ListRequest::new(ListedState::InProgress);
    let page = store.list(&request).await.unwrap();
    assert_eq!((page.read, page.records.len()), (2, 1));
    allow(&mut direct, "-hmget").await;
    let error = store.list(&request).await.unwrap_err();
    assert!(denied(&error), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_documented_permissions_can_use_a_cluster() {
    let cluster = Server::start("valkey-cluster", &[]);
    let urls: Vec<&str> = cluster.url().split(',').collect();
    let mut nodes = join_all(urls.iter().map(|url| direct(url))).await;
    for node in &mut nodes {
        allow_documented(node).await;
    }
    let store = Config::cluster(urls.iter().map(|url| as_user(url))).build().unwrap();
    let error = claim_one(&store, &claim()).await.unwrap_err();
    assert!(denied(&error), "a node's permissions are not enough: {error}");
    for node in &mut nodes {
        allow(node, RULES_OF_A_CLUSTER).await;
    }
    assert_usable(&store).await;
}

/// Keys of a slot that is about to move are requested from the node that it moves to.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_documented_permissions_can_claim_while_a_slot_moves() {
    let cluster = Server::start("valkey-cluster", &[]);
    let urls: Vec<&str> = cluster.url().split(',').collect();
    let mut nodes = join_all(urls.iter().map(|url| direct(url))).await;
    for node in &mut nodes {
        allow_documented(node).await;
        allow(node, "+cluster|slots").await;
    }
    let store = Config::cluster(urls.iter().map(|url| as_user(url))).build().unwrap();
    store.warm_up().await.unwrap();
    let request = claim();
    let slot: u32 = command(&mut nodes[0], &["CLUSTER", "KEYSLOT", &request.key.to_hex()[..32]]).await;
    // Each node has a third of the slots.
    let from = (slot / 5_461).min(2) as usize;
    let to = (from + 1) % nodes.len();
    let slot = slot.to_string();
    for (node, other, state) in [(to, from, "IMPORTING"), (from, to, "MIGRATING")] {
        let other: String = command(&mut nodes[other], &["CLUSTER", "MYID"]).await;
        command::<()>(&mut nodes[node], &["CLUSTER", "SETSLOT", &slot, state, &other]).await;
    }
    // The client tries the two nodes in turn.
    assert!(claim_one(&store, &request).await.is_err());
    for node in &mut nodes {
        allow(node, "+asking").await;
    }
    assert!(is_granted(&claim_one(&store, &request).await));
    settle_one(&store, &request, complete("1")).await.unwrap();
}
