//! Lost connections, servers that shut down, and statements that the server ends.

use std::sync::Arc;

use futures_util::future::join_all;
use lambda_once::{
    BoxFuture,
    store::{
        Answers,
        postgres::{PostgresStore, tokio_postgres},
    },
};

use super::{proxy::Proxy, sessions::*, *};
use crate::support::servers::Server;

/// Returns a store on a role with these settings, and the role's sessions.
async fn on_role(settings: &[&str]) -> (PostgresStore, Sessions) {
    let role = support::postgres::role(settings).await;
    let sessions = Sessions::of(&role).await;
    (support::postgres::config(role).build().unwrap(), sessions)
}

/// Starts a claim of a key that a transaction holds, and returns when the claim waits for it.
async fn blocked_claim(
    store: &PostgresStore,
    sessions: &Sessions,
) -> (ClaimRequest, Transaction, tokio::task::JoinHandle<Result<Claimed, Error>>) {
    let claim = claim();
    granted(store, &claim).await;
    let transaction = Transaction::holding(&[&claim]).await;
    let waiting = tokio::spawn({
        let (store, claim) = (store.clone(), rival(&claim));
        async move { claim_one(&store, &claim).await }
    });
    sessions.until_waiting(1).await;
    (claim, transaction, waiting)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_result_is_ambiguous_and_the_repeated_claim_is_granted() {
    let proxy = Proxy::start(&support::postgres::connection().await).await;
    let store = support::postgres::config(proxy.connection()).build().unwrap();
    store.warm_up().await.unwrap();
    let claim = claim();
    proxy.hold_responses();
    let call = tokio::spawn({
        let (store, claim) = (store.clone(), claim.clone());
        async move { claim_one(&store, &claim).await }
    });
    proxy.until_statements(2).await;
    proxy.cut();
    assert_eq!(of(&call.await.unwrap().unwrap_err()), AMBIGUOUS);
    proxy.expect_round_trips(&[]);
    // The server may still be processing the first claim, and either claim may be applied first.
    let grant = granted(&store, &claim).await;
    assert_eq!((grant.attempt, grant.prior_status), (1, None));
    assert_eq!(read_one(&store, &claim).await.unwrap().owner, Some(claim.owner));
    assert_eq!(proxy.opened(), 2);

    proxy.hold_responses();
    let call = tokio::spawn({
        let (store, claim) = (store.clone(), claim.clone());
        async move { settle_one(&store, &claim, complete("1")).await }
    });
    proxy.until_statements(1).await;
    proxy.cut();
    assert_eq!(of(&call.await.unwrap().unwrap_err()), AMBIGUOUS);
    proxy.expect_round_trips(&[]);
    assert!(matches!(settle_one(&store, &claim, complete("1")).await, Ok(Settled::Done { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_the_server_ends_was_not_applied() {
    let (store, sessions) = on_role(&[]).await;
    let (claim, transaction, waiting) = blocked_claim(&store, &sessions).await;
    sessions.terminate_waiting().await;
    assert_eq!(of(&waiting.await.unwrap().unwrap_err()), UNAVAILABLE);
    transaction.roll_back().await;
    assert_eq!(settle_one(&store, &claim, complete("1")).await.unwrap(), Settled::Done { found: None });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_takes_too_long_is_a_timeout() {
    let (store, sessions) = on_role(&["statement_timeout = '500ms'"]).await;
    let (claim, transaction, waiting) = blocked_claim(&store, &sessions).await;
    assert_eq!(of(&waiting.await.unwrap().unwrap_err()), TIMEOUT);
    transaction.roll_back().await;
    assert_eq!(settle_one(&store, &claim, complete("1")).await.unwrap(), Settled::Done { found: None });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_fails_costs_no_connection() {
    let proxy = Proxy::start(&support::postgres::connection().await).await;
    let store = support::postgres::config(proxy.connection()).table(support::unique_name("missing")).build().unwrap();
    for _ in 0..3 {
        assert_eq!(of(&claim_one(&store, &claim()).await.unwrap_err()), TABLE);
    }
    assert_eq!(proxy.opened(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_at_a_higher_isolation_level_can_be_tried_again() {
    let (store, sessions) = on_role(&["default_transaction_isolation = serializable"]).await;
    let (claim, transaction, waiting) = blocked_claim(&store, &sessions).await;
    transaction.execute(&format!("UPDATE once_records SET attempt = 7 WHERE key_hash = {}", literal(&claim))).await;
    transaction.commit().await;
    assert_eq!(of(&waiting.await.unwrap().unwrap_err()), UNAVAILABLE);
    assert!(matches!(claim_one(&store, &rival(&claim)).await.unwrap(), Claimed::Refused(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_fail_over_no_connection_to_the_old_primary_is_used_again() {
    let (store, sessions) = on_role(&["default_transaction_read_only = on"]).await;
    // Several idle connections.
    let keys = claims(4);
    let keys = [[keys[0].key], [keys[1].key], [keys[2].key], [keys[3].key]];
    join_all(keys.iter().map(|key| store.read(key, ResultData::Omit))).await;
    let claim = claim();
    assert_eq!(of(&claim_one(&store, &claim).await.unwrap_err()), UNAVAILABLE);
    // Simulates the server that the host name resolves to next.
    sessions.change_role("default_transaction_read_only = off").await;
    let calls = (0..4).map(|_| async { granted(&store, &super::claim()).await });
    join_all(calls).await;
    granted(&store, &claim).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_discards_its_connection_and_its_statement_ends() {
    let (_, sessions) = on_role(&[]).await;
    let role = support::postgres::role(&["client_connection_check_interval = '50ms'"]).await;
    let checked = Sessions::of(&role).await;
    drop(sessions);
    let store = support::postgres::config(role).pool_size(2).build().unwrap();
    let (claim, transaction, waiting) = blocked_claim(&store, &checked).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    // It waited for a lock that is still held.
    checked.until_waiting(0).await;
    for _ in 0..10 {
        let key = rival(&claim);
        let dropped = tokio::spawn({
            let store = store.clone();
            async move { claim_one(&store, &key).await }
        });
        checked.until_waiting(1).await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        checked.until_waiting(0).await;
    }
    // Every place in the pool is free again, and every response belongs to its own call.
    let claims = [self::claim(), self::claim()];
    join_all(claims.iter().map(|claim| granted(&store, claim))).await;
    for claim in &claims {
        assert_eq!(read_one(&store, claim).await.unwrap().owner, Some(claim.owner));
    }
    transaction.roll_back().await;
    assert_eq!(settle_one(&store, &claim, complete("1")).await.unwrap(), Settled::Done { found: None });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_died_while_it_was_idle_is_replaced() {
    let proxy = Proxy::start(&support::postgres::connection().await).await;
    let store = support::postgres::config(proxy.connection()).build().unwrap();
    // As many connections as the pool can hold.
    join_all((0..8).map(|_| async { granted(&store, &claim()).await })).await;
    let opened = proxy.opened();
    proxy.silence();
    // The idle time after which a connection is checked.
    tokio::time::sleep(Duration::from_millis(5_100)).await;
    let begun = std::time::Instant::now();
    let next = claim();
    let call = tokio::time::timeout(Duration::from_secs(30), granted(&store, &next));
    call.await.expect("the dead connection is not waited for");
    // One check for all dead connections. The engine's call timeout is 3 s.
    assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
    assert_eq!(proxy.opened(), opened + 1);
    // The dead ones are closed, even the one whose check has no answer.
    proxy.until_open(1).await;
    proxy.expect_round_trips(&[2]);
    granted(&store, &claim()).await;
    assert_eq!(proxy.statements(), 2, "a connection in use is not checked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_is_unavailable() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = |listener: &tokio::net::TcpListener| listener.local_addr().unwrap().port();
    let store = |port| {
        let mut connection = tokio_postgres::Config::new();
        connection.host("127.0.0.1").port(port).user("once");
        support::postgres::config(connection).connect_timeout(Duration::from_millis(300)).build().unwrap()
    };
    let (to_silent, to_closed) = (store(port(&silent)), store(port(&closed)));
    drop(closed);
    let entity = entity();
    for batch in [claims(3), (1..=3).map(|sequence| ordered(&entity, sequence)).collect()] {
        let errors: Vec<_> = to_closed.claim(&batch).await.into_iter().map(|answer| of(&answer.unwrap_err())).collect();
        assert_eq!(errors, [UNAVAILABLE; 3]);
        let settles: Vec<_> = batch.iter().map(|claim| settle_of(claim, complete("1"))).collect();
        let errors = to_closed.settle(&settles).await.into_iter().map(|answer| of(&answer.unwrap_err()));
        assert_eq!(errors.collect::<Vec<_>>(), [UNAVAILABLE; 3]);
    }
    assert_eq!(of(&claim_one(&to_silent, &claim()).await.unwrap_err()), TIMEOUT);
    assert_eq!(of(&to_silent.warm_up().await.unwrap_err()), TIMEOUT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_finds_every_connection_in_use_for_long_is_throttled() {
    let role = support::postgres::role(&[]).await;
    let sessions = Sessions::of(&role).await;
    let store = support::postgres::config(role).pool_size(1).build().unwrap();
    let (_, transaction, waiting) = blocked_claim(&store, &sessions).await;
    let error = claim_one(&store, &claim()).await.unwrap_err();
    assert_eq!(of(&error), (ErrorKind::Throttled, ErrorStatus::Temporary));
    transaction.roll_back().await;
    assert!(matches!(waiting.await.unwrap().unwrap(), Claimed::Refused(_)));
    granted(&store, &claim()).await;
}

/// Workers claim and complete batches, and repeat unanswered requests, as the engine does. Everything acknowledged
/// before the server was killed is recorded afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_killed_in_mid_batch_loses_nothing_that_was_acknowledged() {
    const WORKERS: usize = 4;
    let mut server = tokio::task::spawn_blocking(|| Server::start("postgres", &[])).await.unwrap();
    let store = support::postgres::config(server.url().parse().unwrap()).build().unwrap();
    store.migrate().await.unwrap();
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let done = Arc::new(tokio::sync::watch::Sender::new(0_usize));
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let (store, is_over, done) = (store.clone(), Arc::clone(&is_over), Arc::clone(&done));
        workers.push(tokio::spawn(async move {
            let (mut acknowledged, mut troubles) = (Vec::new(), 0);
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let batch = claims(20);
                troubles += repeat_until_ok(&store, &batch, PostgresStore::claim).await;
                let settles: Vec<_> = batch.iter().map(|claim| settle_of(claim, complete("1"))).collect();
                troubles += repeat_until_ok(&store, &settles, PostgresStore::settle).await;
                acknowledged.extend(batch);
                done.send_modify(|done| *done += 1);
            }
            (acknowledged, troubles)
        }));
    }
    let mut progress = done.subscribe();
    for _ in 0..3 {
        let goal = *progress.borrow() + 10;
        progress.wait_for(|done| *done >= goal).await.unwrap();
        server = tokio::task::spawn_blocking(move || {
            server.kill();
            server.restart();
            server
        })
        .await
        .unwrap();
    }
    let goal = *progress.borrow() + 10;
    progress.wait_for(|done| *done >= goal).await.unwrap();
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut troubles = 0;
    for worker in workers {
        let (acknowledged, met) = worker.await.unwrap();
        troubles += met;
        let keys: Vec<_> = acknowledged.iter().map(|claim: &ClaimRequest| claim.key).collect();
        for (claim, record) in acknowledged.iter().zip(store.read(&keys, ResultData::Include).await) {
            let record = record.unwrap().expect("what was acknowledged is on record");
            assert_eq!((record.owner, record.attempt, record.result), (Some(claim.owner), 1, json("1")));
        }
    }
    assert!(troubles > 0, "the outages were noticed");
}

/// Repeats requests until each has a result, and returns the number of errors, which must all be retryable. An applied
/// claim is granted, and an applied completion is done.
async fn repeat_until_ok<R: Clone, T: std::fmt::Debug>(
    store: &PostgresStore,
    requests: &[R],
    send: for<'a> fn(&'a PostgresStore, &'a [R]) -> BoxFuture<'a, Answers<T>>,
) -> usize {
    let (mut open, mut troubles) = (requests.to_vec(), 0);
    while !open.is_empty() {
        let answers = send(store, &open).await;
        assert_eq!(answers.len(), open.len());
        let mut again = Vec::new();
        for (request, answer) in open.into_iter().zip(answers) {
            match answer {
                Ok(answer) => {
                    let answer = format!("{answer:?}");
                    assert!(answer.starts_with("Granted") || answer.starts_with("Done"), "{answer}");
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{error:?}");
                    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error:?}");
                    troubles += 1;
                    again.push(request);
                }
            }
        }
        open = again;
        tokio::task::yield_now().await;
    }
    troubles
}
