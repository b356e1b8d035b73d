//! TLS in front of servers that have none of their own.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a module of its own")]

use std::{net::SocketAddr, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream, lookup_host},
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, rustls};

use super::{unique_name, wire::Protocol};

/// An authority, and a server's certificate by it for 127.0.0.1.
pub struct Certificates {
    /// Its certificate, in PEM.
    pub authority: String,
    server: rustls::ServerConfig,
}

impl Certificates {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, unique_name("authority"));
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

/// Ends TLS in front of a server; it stops when this is dropped.
pub struct TlsProxy {
    pub address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl TlsProxy {
    /// In front of the server at `HOST:PORT`.
    pub async fn start(certificates: &Certificates, protocol: Protocol, server: &str) -> Self {
        let server = lookup_host(server).await.unwrap().next().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(certificates.server.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, protocol, acceptor.clone(), server));
            }
        });
        Self { address, _tasks: tasks }
    }
}

async fn relay(mut client: TcpStream, protocol: Protocol, acceptor: TlsAcceptor, server: SocketAddr) {
    if protocol == Protocol::Postgres {
        // Clients of PostgreSQL ask for TLS, and the server answers `S`.
        let mut request = [0; 8];
        let is_tls = client.read_exact(&mut request).await.is_ok() && request == [0, 0, 0, 8, 4, 210, 22, 47];
        if !is_tls || client.write_all(b"S").await.is_err() {
            return;
        }
    }
    let Ok(mut client) = acceptor.accept(client).await else { return };
    let mut server = TcpStream::connect(server).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await; // ends with either side
}
