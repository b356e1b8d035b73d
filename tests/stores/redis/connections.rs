//! Connections that are opened, shared, lost and replaced.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::join_all};
use lambda_once::{ErrorKind, ErrorStatus, RedisStore, Store, store::redis::Config};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

use super::{PATIENCE, command, direct, store};
use crate::support::{
    self,
    requests::{RELEASE, claim, claim_one, claims, is_granted, settle_of},
    servers::Server,
    wire::{Protocol, Proxy, Request, host_and_port},
};

/// Closes all other connections of the server.
async fn disconnect_clients(server: &Server) {
    command::<u32>(&mut direct(server.url()).await, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_server_closed_is_replaced_without_an_error() {
    let server = Server::start("valkey", &[]);
    let store = store(server.url());
    for _ in 0..5 {
        assert!(is_granted(&claim_one(&store, &claim()).await));
        disconnect_clients(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_server_is_an_ambiguous_timeout() {
    let mut server = Server::start("valkey", &[]);
    let store = Config::new(server.url()).response_timeout(Duration::from_millis(200)).build().unwrap();
    store.warm_up().await.unwrap();
    server.freeze();
    let request = claim();
    let error = claim_one(&store, &request).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Timeout, ErrorStatus::Ambiguous), "{error}");
    server.resume();
    assert!(is_granted(&claim_one(&store, &request).await), "the same claim, applied or not");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_nothing_was_sent() {
    let mut server = Server::start("valkey", &[]);
    server.stop();
    let store = store(server.url());
    let error = claim_one(&store, &claim()).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    server.restart();
    assert!(is_granted(&claim_one(&store, &claim()).await), "the next call tries again");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_for_a_connection_share_its_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let store = Config::new(url).connect_timeout(Duration::from_millis(100)).build().unwrap();
    let attempts = Arc::new(AtomicUsize::new(0));
    let accepting = {
        let attempts = Arc::clone(&attempts);
        async move {
            let mut silent = Vec::new();
            loop {
                silent.push(listener.accept().await.unwrap());
                attempts.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let requests = claims(20);
    let calls = join_all(requests.iter().map(|request| claim_one(&store, request)));
    let answers = tokio::select! {
        answers = calls => answers,
        () = accepting => unreachable!(),
    };
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_leaves_the_connection_to_the_others() {
    let server = Server::start("valkey", &[]);
    let store = store(server.url());
    store.warm_up().await.unwrap();
    let claims = claims(100);
    let dropped = claims.iter().filter(|request| claim_one(&store, request).now_or_never().is_none());
    assert_ne!(dropped.count(), 0, "they take a round trip");
    let answers = store.claim(&claims).await;
    assert!(answers.iter().all(is_granted), "the same claims: {answers:?}");
    let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim, RELEASE)).collect();
    assert!(store.settle(&settles).await.iter().all(Result::is_ok));
    let clients: String = command(&mut direct(server.url()).await, &["CLIENT", "LIST"]).await;
    assert_eq!(clients.lines().count(), 2, "the store's and this one: {clients}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_fetched_for_each_new_connection() {
    let server = Server::start("valkey", &["requirepass=secret"]);
    let fetched = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&fetched);
    let fetch = move || {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, std::convert::Infallible>("secret".to_owned()) }
    };
    let store = Config::new(server.url()).password(fetch).build().unwrap();
    assert!(store.claim(&[]).await.is_empty());
    assert_eq!(fetched.load(Ordering::SeqCst), 0, "a call without requests needs no connection");
    let url = server.url().replace("redis://", "redis://:secret@");
    for connections in 1..4 {
        for _ in 0..3 {
            assert!(is_granted(&claim_one(&store, &claim()).await));
        }
        assert_eq!(fetched.load(Ordering::SeqCst), connections);
        command::<u32>(&mut direct(&url).await, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_repetition_finds_no_server_may_have_been_applied() {
    let mut server = Server::start("valkey", &["requirepass=secret"]);
    let fetched = Arc::new(AtomicUsize::new(0));
    let fetch = move || {
        let is_first = fetched.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if is_first { Ok("secret".to_owned()) } else { Err("no more passwords") } }
    };
    let store = Config::new(server.url()).password(fetch).build().unwrap();
    store.warm_up().await.unwrap();
    server.kill();
    let error = claim_one(&store, &claim()).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Ambiguous), "{error}");
    let error = claim_one(&store, &claim()).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Temporary), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_never_comes_is_a_timeout() {
    let server = Server::start("valkey", &[]);
    let never = || std::future::pending::<Result<String, std::convert::Infallible>>();
    let config = Config::new(server.url()).password(never).connect_timeout(Duration::from_millis(100));
    let error = config.build().unwrap().warm_up().await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Timeout, ErrorStatus::Temporary), "{error}");
}

/// Returns the URL of a proxy in front of the server, and a switch that silences its existing connections. They stay
/// open without any response.
async fn behind_a_network(server: &Server) -> (String, watch::Sender<bool>) {
    let upstream = server.url().trim_start_matches("redis://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (cut, is_cut) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let (upstream, mut is_cut) = (upstream.clone(), is_cut.clone());
            is_cut.mark_unchanged();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(upstream).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    _ = is_cut.changed() => while client.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {},
                }
            });
        }
    });
    (url, cut)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_died_while_it_was_idle_costs_a_quarter_of_a_second() {
    let server = Server::start("valkey", &[]);
    let (url, cut) = behind_a_network(&server).await;
    let config = Config::new(url).connect_timeout(PATIENCE).response_timeout(Duration::from_secs(60));
    let store = config.build().unwrap();
    assert!(is_granted(&claim_one(&store, &claim()).await));
    // This test uses real time.
    tokio::time::sleep(Duration::from_millis(5_100)).await;
    cut.send(true).unwrap();
    let request = claim();
    let answer = timeout(Duration::from_secs(10), claim_one(&store, &request)).await;
    assert!(is_granted(&answer.expect("long before the response timeout")));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_call_dropped_unanswered_the_next_one_checks_the_connection() {
    let server = Server::start("valkey", &[]);
    let (url, cut) = behind_a_network(&server).await;
    let store = Config::new(url).connect_timeout(PATIENCE).response_timeout(Duration::from_secs(60)).build().unwrap();
    assert!(is_granted(&claim_one(&store, &claim()).await));
    cut.send(true).unwrap();
    let request = claim();
    timeout(Duration::from_millis(100), claim_one(&store, &request)).await.expect_err("nothing comes back");
    let answer = timeout(Duration::from_secs(10), claim_one(&store, &request)).await;
    assert!(is_granted(&answer.expect("long before the response timeout")));
}

/// Both calls are sent while the connection is suspect, and one of them gets its response.
#[tokio::test]
async fn a_call_on_a_suspect_connection_is_sent_again_if_others_have_responses() {
    let (store, proxy) = behind_a_proxy(&support::server("REDIS_URL")).await;
    assert!(is_granted(&claim_one(&store, &claim()).await));
    // Afterwards the connection is suspect until the next response.
    let dropped = claim_one(&store, &claim()).now_or_never();
    assert!(dropped.is_none(), "it takes a round trip: {dropped:?}");
    let (quick, late) = (claim(), claim());
    let operation = late.key.to_hex().split_off(32);
    let is_late = move |request: &Request| request.argument(2).ends_with(&operation);
    let held = proxy.on(is_late.clone()).hold();
    let answers = tokio::join!(claim_one(&store, &quick), claim_one(&store, &late));
    assert!(is_granted(&answers.0) && is_granted(&answers.1), "{answers:?}");
    assert_eq!(proxy.requests().into_iter().filter(is_late).count(), 2);
    drop(held);
}

/// Returns a store behind a proxy.
async fn behind_a_proxy(url: &str) -> (RedisStore, Proxy) {
    let proxy = Proxy::start(Protocol::Resp, host_and_port(url)).await;
    (store(&proxy.in_place_of(url)), proxy)
}

/// Only a connection that was open before may have died unnoticed.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_lost_on_a_new_connection_is_not_sent_again() {
    let (store, proxy) = behind_a_proxy(&support::server("REDIS_URL")).await;
    proxy.on_command("EVALSHA").drop_request();
    let error = claim_one(&store, &claim()).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, ErrorStatus::Ambiguous), "{error}");
    assert_eq!(proxy.requests().iter().filter(|request| request.command == "EVALSHA").count(), 1);
}

/// It takes longer than one on a connection that may be dead.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_call_on_a_connection_may_take_its_whole_time() {
    let (store, proxy) = behind_a_proxy(&support::server("REDIS_URL")).await;
    let mut held = proxy.on_command("EVALSHA").hold();
    let request = claim();
    let mut call = pin!(claim_one(&store, &request));
    tokio::select! {
        answer = &mut call => unreachable!("{answer:?}"),
        _ = held.arrived() => {}
    }
    timeout(Duration::from_millis(400), &mut call).await.expect_err("it is held");
    held.release();
    assert!(is_granted(&call.await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_has_no_more_than_four_pipelines_under_way() {
    let mut server = Server::start("valkey", &[]);
    let (store, proxy) = behind_a_proxy(server.url()).await;
    assert!(is_granted(&claim_one(&store, &claim()).await));
    proxy.reset();
    server.freeze();
    // Each pipeline has 100 of them.
    let claims = claims(500);
    let mut call = pin!(store.claim(&claims));
    // Requests behind one that is held are not seen, so none is.
    tokio::select! {
        answers = &mut call => unreachable!("{answers:?}"),
        () = proxy.until_requests(400) => {}
    }
    timeout(Duration::from_millis(100), &mut call).await.expect_err("no response comes");
    assert_eq!(proxy.requests().len(), 400);
    server.resume();
    assert!(call.await.iter().all(is_granted));
    assert_eq!(proxy.requests().len(), 500);
}
