//! Scripts that the server no longer has, or that it is too old for.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lambda_once::{Store, store::Settled};

use super::{command, direct, orders::ordered, store};
use crate::support::requests::{claim, claims, complete, is_granted, settle_of};
use crate::support::servers::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed_in_mid_batch_are_sent_again() {
    let server = Server::start("valkey", &[]);
    let store = store(server.url());
    let is_over = Arc::new(AtomicBool::new(false));
    let flushes = tokio::spawn({
        let (mut connection, is_over) = (direct(server.url()).await, Arc::clone(&is_over));
        async move {
            let mut flushes = 0;
            while !is_over.load(Ordering::Relaxed) {
                command::<()>(&mut connection, &["SCRIPT", "FLUSH"]).await;
                flushes += 1;
            }
            flushes
        }
    });
    for _ in 0..30 {
        let mut claims = claims(250);
        claims.extend((0..50).map(|_| ordered(&claim(), 1)));
        let answers = store.claim(&claims).await;
        assert!(answers.iter().all(is_granted), "{answers:?}");
        let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim, complete("1"))).collect();
        let answers = store.settle(&settles).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Settled::Done { .. }))), "{answers:?}");
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(flushes.await.unwrap() > 30);
}

/// The scripts find no server version in `redis`, as before Redis 7.0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_could_not_settle_refuses_claims() {
    const CLAIM: &str = concat!(
        include_str!("../../../src/store/redis/common.lua"),
        include_str!("../../../src/store/redis/claim.lua")
    );
    let server = Server::start("valkey", &[]);
    let mut connection = direct(server.url()).await;
    for (before, refused) in
        [("", false), ("local redis = {call = redis.call, error_reply = redis.error_reply}\n", true)]
    {
        let mut claim = redis::cmd("EVAL");
        claim.arg(format!("{before}{CLAIM}")).arg(1).arg(format!("record{refused}"));
        claim.arg("owner").arg("").arg("30000 1000 60000 1 1 1 0 ").arg("orders").arg("");
        let answer = claim.query_async::<redis::Value>(&mut connection).await;
        let code = answer.as_ref().err().and_then(redis::RedisError::code);
        assert_eq!(code, refused.then_some("UNSUPPORTED"), "{answer:?}");
    }
    assert_eq!(command::<Vec<String>>(&mut connection, &["KEYS", "*"]).await, ["recordfalse"], "nothing is claimed");
}
