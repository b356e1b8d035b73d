//! Permissions of a Redis user.

use lambda_once::{Error, ErrorKind, ErrorStatus, Store};
use redis::Value;

use super::{command, direct, orders::ordered, store};
use crate::support::requests::{HAND_BACK, RELEASE, RENEW, claim, claim_one, complete, is_granted, settle_one};
use crate::support::servers::Server;

fn denied(error: &Error) -> bool {
    (error.kind(), error.status()) == (ErrorKind::AccessDenied, ErrorStatus::Temporary)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_told_apart_from_a_server_that_is_away() {
    let server = Server::start("valkey", &["requirepass=secret"]);
    for user in ["", ":wrong@", "nobody:secret@"] {
        let url = server.url().replace("redis://", &format!("redis://{user}"));
        let error = claim_one(&store(&url), &claim()).await.unwrap_err();
        assert!(denied(&error), "{user}: {error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
}

/// The permissions that the documentation asks for.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_documented_permissions_can_use_the_store_and_no_other_keys() {
    let server = Server::start("valkey", &[]);
    let mut direct = direct(server.url()).await;
    let rules = "on >secret ~once:* +evalsha +eval +hmget +hset +hdel +del +pexpireat +time +ping +info +select";
    let mut words: Vec<_> = ["ACL", "SETUSER", "once"].into_iter().chain(rules.split(' ')).collect();
    // Redis 7.0 refuses a rule with a command that it does not know.
    let known: Vec<Value> = command(&mut direct, &["COMMAND", "INFO", "client|setinfo"]).await;
    if known != [Value::Nil] {
        words.push("+client|setinfo");
    }
    command::<()>(&mut direct, &words).await;
    let url = server.url().replace("redis://", "redis://once:secret@");
    for store in [store(&format!("{url}/1")), store(&url)] {
        store.warm().await.unwrap();
        for settlement in [complete("1"), RELEASE, HAND_BACK, RENEW] {
            for request in [claim(), ordered(&claim(), 1)] {
                assert!(is_granted(&claim_one(&store, &request).await));
                settle_one(&store, &request, settlement.clone()).await.unwrap();
                assert!(store.read(&[request.key], request.result_data).await.remove(0).is_ok());
            }
        }
    }
    let store = store(&url);
    for rules in [&["-hset"][..], &["+hset", "resetkeys", "~other:*"]] {
        let words: Vec<_> = ["ACL", "SETUSER", "once"].iter().chain(rules).copied().collect();
        command::<()>(&mut direct, &words).await;
        let error = claim_one(&store, &claim()).await.unwrap_err();
        assert!(denied(&error), "{rules:?}: {error}");
    }
}
