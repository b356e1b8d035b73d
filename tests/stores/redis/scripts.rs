//! Scripts that the server has forgotten.

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
