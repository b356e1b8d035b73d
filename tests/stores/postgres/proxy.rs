//! A proxy between the store and PostgreSQL that observes statements, holds back responses, and closes or silences
//! connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lambda_once::store::postgres::tokio_postgres::{self, config::SslMode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::{AbortHandle, JoinSet},
};

/// The message type that ends every awaited statement, one without parameters, and the response to each of them.
const SYNC: u8 = b'S';
const QUERY: u8 = b'Q';
const READY: u8 = b'Z';

pub(super) struct Proxy {
    connection: tokio_postgres::Config,
    state: Arc<State>,
    _accept: JoinSet<()>,
}

struct State {
    /// The number of statements received.
    statements: watch::Sender<usize>,
    /// The number of statements after which the n-th response passes. Later responses pass immediately.
    holds: Mutex<Vec<usize>>,
    answered: watch::Sender<usize>,
    bytes: AtomicU64,
    opened: AtomicU64,
    /// The number of open connections.
    open: watch::Sender<usize>,
    /// The connections, each with a switch that silences it.
    connections: Mutex<Vec<(AbortHandle, watch::Sender<bool>)>>,
}

impl Proxy {
    /// Starts in front of the given server, which is reached by TCP without TLS.
    pub(super) async fn start(upstream: &tokio_postgres::Config) -> Self {
        let tokio_postgres::config::Host::Tcp(host) = &upstream.get_hosts()[0] else { panic!("a host with a name") };
        let address = format!("{host}:{}", upstream.get_ports().first().unwrap_or(&5432));
        let upstream_address = tokio::net::lookup_host(address).await.unwrap().next().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut connection = tokio_postgres::Config::new();
        connection
            .host("127.0.0.1")
            .port(listener.local_addr().unwrap().port())
            .user(upstream.get_user().unwrap_or("once"))
            .dbname(upstream.get_dbname().unwrap_or("postgres"))
            .ssl_mode(SslMode::Disable);
        if let Some(password) = upstream.get_password() {
            connection.password(password);
        }
        let state = Arc::new(State {
            statements: watch::Sender::new(0),
            holds: Mutex::default(),
            answered: watch::Sender::new(0),
            bytes: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            open: watch::Sender::new(0),
            connections: Mutex::default(),
        });
        let mut accept = JoinSet::new();
        accept.spawn(serve(listener, upstream_address, Arc::clone(&state)));
        Self { connection, state, _accept: accept }
    }

    /// Returns the configuration of a connection through it.
    pub(super) fn connection(&self) -> tokio_postgres::Config {
        self.connection.clone()
    }

    /// From now on, lets responses pass only when all statements of their round trip have arrived. `[2, 1]` expects two
    /// statements that are sent together, and one that may wait for their responses.
    pub(super) fn expect_round_trips(&self, sizes: &[usize]) {
        let mut holds = self.state.holds.lock().unwrap();
        holds.clear();
        for size in sizes {
            let end = holds.len() + size;
            holds.resize(end, end);
        }
        self.state.bytes.store(0, Ordering::SeqCst);
        self.state.statements.send_replace(0);
        self.state.answered.send_replace(0);
    }

    /// From now on, lets no response pass.
    pub(super) fn hold_responses(&self) {
        self.expect_round_trips(&[]);
        self.state.holds.lock().unwrap().resize(1_000, usize::MAX);
    }

    /// Returns the number of statements since the expectation was set.
    pub(super) fn statements(&self) -> usize {
        *self.state.statements.borrow()
    }

    /// Returns the number of response bytes that have passed since.
    pub(super) fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::SeqCst)
    }

    /// Returns the number of connections opened.
    pub(super) fn opened(&self) -> u64 {
        self.state.opened.load(Ordering::SeqCst)
    }

    /// Waits until that many statements have arrived.
    pub(super) async fn until_statements(&self, count: usize) {
        let mut statements = self.state.statements.subscribe();
        let come = tokio::time::timeout(Duration::from_secs(30), statements.wait_for(|come| *come >= count)).await;
        come.expect("in time").unwrap();
    }

    /// Waits until only so many connections are open.
    pub(super) async fn until_open(&self, count: usize) {
        let mut open = self.state.open.subscribe();
        let reached = tokio::time::timeout(Duration::from_secs(30), open.wait_for(|open| *open == count)).await;
        reached.expect("in time").unwrap();
    }

    /// Closes every connection.
    pub(super) fn cut(&self) {
        for (connection, _) in self.state.connections.lock().unwrap().drain(..) {
            connection.abort();
        }
    }

    /// Silences the open connections, until the client closes them. New ones work.
    pub(super) fn silence(&self) {
        for (_, is_silent) in self.state.connections.lock().unwrap().iter() {
            is_silent.send_replace(true);
        }
    }
}

async fn serve(listener: TcpListener, upstream: SocketAddr, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        state.opened.fetch_add(1, Ordering::SeqCst);
        let is_silent = watch::Sender::new(false);
        let silent = (is_silent.subscribe(), is_silent.subscribe());
        let connection = relay(client, upstream, Open::new(&state), silent);
        let handle = connections.spawn(connection);
        state.connections.lock().unwrap().push((handle, is_silent));
    }
}

/// Counts a connection until its task ends, which `cut` may abort.
struct Open(Arc<State>);

impl Open {
    fn new(state: &Arc<State>) -> Self {
        state.open.send_modify(|open| *open += 1);
        Self(Arc::clone(state))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

/// Relays one connection until either side closes it.
async fn relay(
    client: TcpStream,
    upstream: SocketAddr,
    open: Open,
    (silent_client, silent_server): (watch::Receiver<bool>, watch::Receiver<bool>),
) {
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        _ = requests(from_client, to_server, &open.0, silent_client) => {}
        _ = answers(from_server, to_client, &open.0, silent_server) => {}
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &State,
    silent: watch::Receiver<bool>,
) -> std::io::Result<()> {
    // The startup message has no type.
    let length = from.read_u32().await?;
    to.write_u32(length).await?;
    pass(&mut from, &mut to, length).await?;
    loop {
        let (kind, length) = (from.read_u8().await?, from.read_u32().await?);
        if *silent.borrow() {
            tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
            return Ok(());
        }
        to.write_u8(kind).await?;
        to.write_u32(length).await?;
        pass(&mut from, &mut to, length).await?;
        if matches!(kind, SYNC | QUERY) {
            state.statements.send_modify(|statements| *statements += 1);
        }
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: &State,
    silent: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut is_ready = false;
    loop {
        let (kind, length) = (from.read_u8().await?, from.read_u32().await?);
        stay_silent(&silent).await;
        if is_ready {
            state.until_due().await;
        }
        // Counted before the store can read it, and its test can set the next expectation.
        state.bytes.fetch_add(u64::from(length) + 1, Ordering::SeqCst);
        if kind == READY && is_ready {
            state.answered.send_modify(|answered| *answered += 1);
        }
        to.write_u8(kind).await?;
        to.write_u32(length).await?;
        pass(&mut from, &mut to, length).await?;
        is_ready |= kind == READY;
    }
}

impl State {
    async fn until_due(&self) {
        let hold = self.holds.lock().unwrap().get(*self.answered.borrow()).copied();
        if let Some(hold) = hold {
            let mut statements = self.statements.subscribe();
            let _ = statements.wait_for(|come| *come >= hold).await; // the sender lives as long as this
        }
    }
}

async fn stay_silent(silent: &watch::Receiver<bool>) {
    if *silent.borrow() {
        std::future::pending::<()>().await;
    }
}

/// Forwards the rest of a message of this length, which includes the length field.
async fn pass(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, length: u32) -> std::io::Result<()> {
    tokio::io::copy(&mut from.take(u64::from(length) - 4), to).await?;
    to.flush().await
}
