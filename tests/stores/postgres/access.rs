//! Connections: passwords, roles, databases and TLS.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use futures_util::future::join_all;
use lambda_once::store::postgres::tokio_postgres::{
    self,
    config::{SslMode, SslNegotiation},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{proxy::Proxy, *};
use crate::support::{
    tls::{Certificates, TlsProxy},
    wire::{self, Protocol, host_and_port},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_password_is_requested_once_per_new_connection() {
    let proxy = Proxy::start(&support::postgres::role(&[]).await).await;
    let (asked, has_token) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
    let password = {
        let (asked, has_token) = (Arc::clone(&asked), Arc::clone(&has_token));
        move || {
            asked.fetch_add(1, Ordering::SeqCst);
            let token = if has_token.load(Ordering::SeqCst) { Ok("once".to_owned()) } else { Err("no token") };
            async move { token }
        }
    };
    let store = support::postgres::config(proxy.connection()).pool_size(3).password(password).build().unwrap();
    for _ in 0..10 {
        granted(&store, &claim()).await;
    }
    let before = asked.load(Ordering::SeqCst);
    assert!(before < 10 && before == proxy.opened(), "{before}");

    // Two concurrent requests need a second connection, whose password is not available.
    has_token.store(false, Ordering::SeqCst);
    let claims = [claim(), claim()];
    let answers = join_all(claims.iter().map(|claim| claim_one(&store, claim))).await;
    let error = answers.into_iter().find_map(Result::err).unwrap();
    assert_eq!(of(&error), UNAVAILABLE);
    assert!(format!("{error:?}").contains("no token"));
    assert_eq!(proxy.opened(), before, "without a password no connection is begun");

    has_token.store(true, Ordering::SeqCst);
    join_all((0..3).map(|_| async { granted(&store, &claim()).await })).await;
    assert!(proxy.opened() > before);
    assert_eq!(asked.load(Ordering::SeqCst), proxy.opened() + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_tries_once_to_connect_and_one_without_requests_never() {
    let asked = Arc::new(AtomicU64::new(0));
    let password = {
        let asked = Arc::clone(&asked);
        move || {
            asked.fetch_add(1, Ordering::SeqCst);
            async { Err::<String, _>("no token") }
        }
    };
    let connection = support::postgres::connection().await;
    let store = support::postgres::config(connection).password(password).build().unwrap();
    let entity = entity();
    let in_order = (1..=3).map(|sequence| ordered(&entity, sequence)).collect();
    for (batch, attempts) in [(claims(3), 1), (in_order, 1), (Vec::new(), 0)] {
        let settles: Vec<_> = batch.iter().map(|claim| settle_of(claim, complete("1"))).collect();
        let keys: Vec<_> = batch.iter().map(|claim| claim.key).collect();
        assert!(store.claim(&batch).await.iter().all(Result::is_err));
        assert_eq!(asked.swap(0, Ordering::SeqCst), attempts, "{batch:?}");
        assert!(store.settle(&settles).await.iter().all(Result::is_err));
        assert_eq!(asked.swap(0, Ordering::SeqCst), attempts, "{batch:?}");
        assert!(store.read(&keys, ResultData::Include).await.iter().all(Result::is_err));
        assert_eq!(asked.swap(0, Ordering::SeqCst), attempts, "{batch:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_the_server_refuses_is_not_retried_in_a_loop() {
    let mut nobody = support::postgres::connection().await;
    nobody.user(support::unique_name("nobody"));
    let mut nowhere = support::postgres::connection().await;
    nowhere.dbname(support::unique_name("nowhere"));
    let forbidden = support::unique_name("forbidden");
    let owner = support::postgres::config(support::postgres::connection().await).table(&forbidden);
    owner.build().unwrap().migrate().await.unwrap();
    let role = support::postgres::role(&[]).await;
    let stores = [
        (support::postgres::config(nobody), ACCESS_DENIED),
        (support::postgres::config(nowhere), TABLE),
        (support::postgres::config(role).table(&forbidden), ACCESS_DENIED),
    ];
    for (config, expected) in stores {
        let store = config.build().unwrap();
        for error in [claim_one(&store, &claim()).await.unwrap_err(), store.warm_up().await.unwrap_err()] {
            assert_eq!(of(&error), expected, "{error:?}");
        }
    }
}

/// PgBouncer refuses them like this, and RDS Proxy with another code.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_refuses_start_up_options_has_the_setting_named() {
    for (code, has_options) in [("08P01", true), ("0A000", true), ("08P01", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("postgresql://once@127.0.0.1:{port}/postgres?sslmode=disable");
        let pooler = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut start_up = vec![0; socket.read_i32().await.unwrap() as usize - 4];
            socket.read_exact(&mut start_up).await.unwrap();
            let option = start_up.windows(23).any(|part| part == b"options\0-c lock_timeout");
            assert_eq!(option, has_options, "as in the protocol");
            socket.write_all(&wire::refusal("FATAL", code, None)).await.unwrap();
            socket.shutdown().await.unwrap();
        };
        let mut config = support::postgres::config(url.parse().unwrap());
        if has_options {
            config = config.lock_timeout(Duration::from_millis(200));
        }
        let (store, claim) = (config.build().unwrap(), claim());
        let (claimed, ()) = tokio::join!(claim_one(&store, &claim), pooler);
        let error = claimed.unwrap_err();
        assert_eq!(of(&error), UNAVAILABLE);
        assert_eq!(error.to_string().contains("set `lock_timeout` on the role"), has_options, "{error}");
    }
}

/// Starts the server behind TLS.
async fn behind_tls(certificates: &Certificates) -> (tokio_postgres::Config, TlsProxy) {
    let upstream = support::postgres::connection().await;
    let url = support::postgres::url();
    let proxy = TlsProxy::start(certificates, Protocol::Postgres, host_and_port(&url)).await;
    let mut connection = tokio_postgres::Config::new();
    connection
        .host("127.0.0.1")
        .port(proxy.address.port())
        .user(upstream.get_user().unwrap())
        .dbname(upstream.get_dbname().unwrap_or("postgres"));
    (connection, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_verified_by_the_given_root_certificates() {
    let certificates = Certificates::new();
    let (connection, _proxy) = behind_tls(&certificates).await;
    let trusting = support::postgres::config(connection.clone()).root_certificates(certificates.authority.clone());
    granted(&trusting.build().unwrap(), &claim()).await;

    let other = Certificates::new().authority;
    let mut by_name = connection.clone();
    by_name.ssl_mode(SslMode::Require);
    let mut misnamed = tokio_postgres::Config::new();
    let (port, user) = (connection.get_ports()[0], connection.get_user().unwrap());
    misnamed.host("localhost").hostaddr("127.0.0.1".parse().unwrap()).port(port).user(user).dbname("postgres");
    for (distrusting, names_the_setting) in [
        (support::postgres::config(connection).root_certificates(other), true),
        // The public authorities do not include it.
        (support::postgres::config(by_name), true),
        // The certificate is for another name.
        (support::postgres::config(misnamed).root_certificates(certificates.authority), false),
    ] {
        let error = claim_one(&distrusting.build().unwrap(), &claim()).await.unwrap_err();
        assert_eq!(of(&error), UNAVAILABLE);
        assert!(error.to_string().contains("invalid peer certificate"), "{error}");
        assert_eq!(error.to_string().contains("`root_certificates`"), names_the_setting, "{error}");
    }
}

/// The server rejects such a handshake without the name.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_direct_handshake_names_the_protocol() {
    let certificates = Certificates::new();
    for (negotiation, names) in [(SslNegotiation::Direct, ["postgresql"].as_slice()), (SslNegotiation::Postgres, &[])] {
        let (mut connection, proxy) = behind_tls(&certificates).await;
        connection.ssl_mode(SslMode::Require).ssl_negotiation(negotiation);
        let config = support::postgres::config(connection).root_certificates(certificates.authority.clone());
        granted(&config.build().unwrap(), &claim()).await;
        assert_eq!(proxy.protocols(), [names], "{negotiation:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let authority = Certificates::new().authority;
    let config = support::postgres::config(support::postgres::connection().await).root_certificates(authority);
    let error = claim_one(&config.build().unwrap(), &claim()).await.unwrap_err();
    assert_eq!(of(&error), ACCESS_DENIED);
    assert!(error.to_string().contains("TLS"), "{error}");
}
