//! Scripts that the server has forgotten.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lambda_once::{Store, store::Settled};

use super::{command, complete, direct, is_granted, new_claim, settle_request, store};
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
        let claims: Vec<_> = (0..250).map(|_| new_claim()).collect();
        let answers = store.claim(&claims).await;
        assert!(answers.iter().all(is_granted), "{answers:?}");
        let settles: Vec<_> = claims.iter().map(|claim| settle_request(claim, complete("1"))).collect();
        let answers = store.settle(&settles).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Settled::Done))), "{answers:?}");
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(flushes.await.unwrap() > 30);
}
