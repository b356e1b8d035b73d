//! Who may connect, and how: passwords, roles, databases, TLS.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use futures_util::future::join_all;
use lambda_once::store::postgres::tokio_postgres::{self, config::Host};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, rustls};

use super::{proxy::Proxy, *};

#[tokio::test(flavor = "multi_thread")]
async fn the_password_is_asked_for_once_for_each_new_connection() {
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

    // Two at once need a second connection, whose password cannot be had.
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
async fn what_the_server_refuses_is_not_tried_in_a_loop() {
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
        for error in [claim_one(&store, &claim()).await.unwrap_err(), store.warm().await.unwrap_err()] {
            assert_eq!(of(&error), expected, "{error:?}");
        }
    }
}

/// An authority, and a server's certificate by it for 127.0.0.1.
struct Certificates {
    authority: String,
    server: rustls::ServerConfig,
}

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, support::unique_name("authority"));
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
            .unwrap();
        Self { authority: authority.pem(), server }
    }
}

/// Ends TLS in front of PostgreSQL, which has none of its own here: answers the request for it by `S`, as a server does.
async fn tls_proxy(server: rustls::ServerConfig) -> (tokio_postgres::Config, JoinSet<()>) {
    let upstream = support::postgres::connection().await;
    let Host::Tcp(host) = &upstream.get_hosts()[0] else { panic!("a host with a name") };
    let address = format!("{host}:{}", upstream.get_ports().first().unwrap_or(&5432));
    let address = tokio::net::lookup_host(address).await.unwrap().next().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut connection = tokio_postgres::Config::new();
    connection
        .host("127.0.0.1")
        .port(listener.local_addr().unwrap().port())
        .user(upstream.get_user().unwrap())
        .dbname(upstream.get_dbname().unwrap_or("postgres"));
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            connections.spawn(tls_relay(client, acceptor.clone(), address));
        }
    });
    (connection, tasks)
}

async fn tls_relay(mut client: TcpStream, acceptor: TlsAcceptor, upstream: SocketAddr) {
    let mut request = [0; 8];
    let is_tls = client.read_exact(&mut request).await.is_ok() && request == [0, 0, 0, 8, 4, 210, 22, 47];
    if !is_tls || client.write_all(b"S").await.is_err() {
        return;
    }
    let Ok(mut client) = acceptor.accept(client).await else { return };
    let mut server = TcpStream::connect(upstream).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await; // ends with either side
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_verified_by_the_given_root_certificates() {
    let certificates = Certificates::new();
    let (connection, _tasks) = tls_proxy(certificates.server.clone()).await;
    let trusting = support::postgres::config(connection.clone()).root_certificates(certificates.authority.clone());
    granted(&trusting.build().unwrap(), &claim()).await;

    let other = Certificates::new().authority;
    let mut by_name = connection.clone();
    by_name.ssl_mode(tokio_postgres::config::SslMode::Require);
    let mut misnamed = tokio_postgres::Config::new();
    let (port, user) = (connection.get_ports()[0], connection.get_user().unwrap());
    misnamed.host("localhost").hostaddr("127.0.0.1".parse().unwrap()).port(port).user(user).dbname("postgres");
    for distrusting in [
        support::postgres::config(connection).root_certificates(other),
        // The public authorities.
        support::postgres::config(by_name),
        // The certificate is for another name.
        support::postgres::config(misnamed).root_certificates(certificates.authority),
    ] {
        let error = claim_one(&distrusting.build().unwrap(), &claim()).await.unwrap_err();
        assert_eq!(of(&error), UNAVAILABLE);
        assert!(error.to_string().contains("certificate"), "{error}");
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
