//! TLS in front of servers without TLS.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream, lookup_host},
    task::JoinSet,
};
use tokio_rustls::{
    LazyConfigAcceptor,
    rustls::{self, NamedGroup, server::Acceptor},
};

use super::{unique_name, wire::Protocol};

/// An authority, and its certificate of a server at 127.0.0.1.
pub struct Certificates {
    /// The authority's certificate, in PEM.
    pub authority: String,
    server: Arc<rustls::ServerConfig>,
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
        Self { authority: authority.pem(), server: Arc::new(server) }
    }
}

/// The key exchange groups in a ClientHello, which identify the client's cryptography provider.
/// <https://www.rfc-editor.org/rfc/rfc8446#section-4.2.7>
pub type Groups = Vec<NamedGroup>;

/// The parts of a ClientHello that tests compare.
struct Hello {
    groups: Groups,
    /// The protocols that the client names.
    protocols: Vec<String>,
}

/// A TLS endpoint in front of a server, which stops when it is dropped.
pub struct TlsProxy {
    pub address: SocketAddr,
    hellos: Arc<Mutex<Vec<Hello>>>,
    _tasks: JoinSet<()>,
}

impl TlsProxy {
    /// Starts in front of the server at `HOST:PORT`.
    pub async fn start(certificates: &Certificates, protocol: Protocol, server: &str) -> Self {
        let server = lookup_host(server).await.unwrap().next().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (config, hellos) = (Arc::clone(&certificates.server), Arc::default());
        let seen = Arc::clone(&hellos);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, protocol, Arc::clone(&config), Arc::clone(&seen), server));
            }
        });
        Self { address, hellos, _tasks: tasks }
    }

    /// Returns the groups that clients have offered, one entry per connection.
    pub fn offers(&self) -> Vec<Groups> {
        self.hellos.lock().unwrap().iter().map(|hello| hello.groups.clone()).collect()
    }

    /// Returns the protocols that clients have named, one entry per connection.
    pub fn protocols(&self) -> Vec<Vec<String>> {
        self.hellos.lock().unwrap().iter().map(|hello| hello.protocols.clone()).collect()
    }
}

async fn relay(
    mut client: TcpStream,
    protocol: Protocol,
    config: Arc<rustls::ServerConfig>,
    hellos: Arc<Mutex<Vec<Hello>>>,
    server: SocketAddr,
) {
    let mut request = [0; 8];
    // The first byte of a handshake is 22.
    let is_direct = client.peek(&mut request[..1]).await.is_ok() && request[0] == 22;
    if protocol == Protocol::Postgres && !is_direct {
        // PostgreSQL clients request TLS, and the server responds with `S`.
        let is_tls = client.read_exact(&mut request).await.is_ok() && request == [0, 0, 0, 8, 4, 210, 22, 47];
        if !is_tls || client.write_all(b"S").await.is_err() {
            return;
        }
    }
    let Ok(handshake) = LazyConfigAcceptor::new(Acceptor::default(), client).await else { return };
    let groups = handshake.client_hello().named_groups().unwrap_or_default().to_vec();
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let protocols = handshake.client_hello().alpn().into_iter().flatten().map(text).collect();
    hellos.lock().unwrap().push(Hello { groups, protocols });
    let Ok(mut client) = handshake.into_stream(config).await else { return };
    let mut server = TcpStream::connect(server).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await; // ends with either side
}
