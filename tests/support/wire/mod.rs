//! A TCP proxy between a client of DynamoDB, Redis or PostgreSQL and a real server.
//!
//! It parses complete requests and responses, records the requests, counts round trips, and applies the faults that a
//! test requests. It sleeps only if a test requests that. A forwarded request outlives its client, as on a real
//! network.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

mod connection;
mod dynamodb;
mod faults;
mod http;
pub mod iam;
mod postgres;
mod resp;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    net::{TcpListener, TcpStream, lookup_host},
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    task::JoinSet,
    time::timeout,
};

use faults::{Action, Rule};
#[allow(unused_imports, reason = "not every test binary names them")]
pub use faults::{Fault, Held, KeptRequest, LateRequest, Withheld};
#[allow(unused_imports, reason = "not every test binary names it")]
pub use postgres::refusal;

/// The protocol of client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, for Redis and Valkey.
    Resp,
    /// PostgreSQL's protocol 3, without COPY. A request is a simple query, or the messages up to a Sync.
    Postgres,
    /// HTTP/1.1 without TLS.
    DynamoDb,
}

/// A recorded request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The command's name, such as `UpdateItem`, or the SQL text. Several commands of one request are separated by
    /// newlines.
    pub command: String,
    /// The command's arguments, or the values of the parameters (empty for NULL), or DynamoDB's body.
    pub arguments: Vec<Bytes>,
    /// The number of its round trip, from 1.
    pub round_trip: usize,
}

impl Request {
    /// Returns an argument as text.
    pub fn argument(&self, place: usize) -> &str {
        let argument = self.arguments.get(place).map(|bytes| str::from_utf8(bytes).unwrap_or_default());
        argument.unwrap_or_default()
    }
}

/// The server's response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    protocol: Protocol,
    bytes: Bytes,
}

impl Response {
    /// Returns the original response.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether the server reports an error. A failed condition is not an error.
    pub fn is_error(&self) -> bool {
        match self.protocol {
            Protocol::Resp => resp::is_error(&self.bytes),
            Protocol::Postgres => postgres::is_error(&self.bytes),
            Protocol::DynamoDb => dynamodb::is_error(&self.bytes),
        }
    }

    /// Whether the claim or the settle was applied, or `None` for an error.
    pub fn is_applied(&self) -> Option<bool> {
        if self.is_error() {
            return None;
        }
        match self.protocol {
            Protocol::Resp => Some(!resp::is_array(&self.bytes)),
            Protocol::Postgres => one(postgres::count(&self.bytes)?),
            Protocol::DynamoDb => one(dynamodb::count(&self.bytes)?),
        }
    }
}

/// Returns whether one write was applied, of at most one.
fn one(count: u64) -> Option<bool> {
    (count < 2).then_some(count == 1)
}

/// A running proxy. It stops and closes its connections when dropped.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    open: watch::Receiver<usize>,
    server: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy on a free local port, in front of the server at `HOST:PORT`.
    pub async fn start(protocol: Protocol, server: &str) -> Self {
        let upstream = Upstream { protocol, address: address(server).await, alias: None };
        Self::listen((Ipv4Addr::LOCALHOST, 0).into(), upstream).await
    }

    /// Starts a proxy for a node of a cluster, on the node's port at the address `alias`. Responses name `alias` instead of the
    /// node's address, also within values, so that clients reach every node through its proxy. All nodes must share one
    /// address, and `alias` must be as long as it, so that no length in a response changes. Only Linux has other addresses
    /// than 127.0.0.1 without set-up.
    pub async fn of_node(protocol: Protocol, node: &str, alias: IpAddr) -> Self {
        let address = address(node).await;
        assert_eq!(alias.to_string().len(), address.ip().to_string().len(), "a response keeps its length");
        let upstream = Upstream { protocol, address, alias: Some(alias) };
        Self::listen((alias, address.port()).into(), upstream).await
    }

    /// Starts a proxy for each node of a cluster, and returns them with the URLs of the cluster behind them.
    pub async fn of_cluster(urls: &str) -> (Vec<Self>, Vec<String>) {
        let (mut proxies, mut behind) = (Vec::new(), Vec::new());
        for url in urls.split(',') {
            let proxy = Self::of_node(Protocol::Resp, host_and_port(url), Ipv4Addr::new(127, 0, 0, 9).into()).await;
            behind.push(proxy.in_place_of(url));
            proxies.push(proxy);
        }
        (proxies, behind)
    }

    async fn listen(address: SocketAddr, upstream: Upstream) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("a port");
        let state = Arc::<Mutex<State>>::default();
        let mut server = JoinSet::new();
        let (count, open) = watch::channel(0);
        server.spawn(accept(listener, upstream, Arc::clone(&state), count));
        Self { address, state, open, server }
    }

    /// Returns the URL with the proxy in place of its host and port.
    pub fn in_place_of(&self, url: &str) -> String {
        url.replacen(host_and_port(url), &self.address.to_string(), 1)
    }

    /// Returns the address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all requests since the start or the last `reset`, oldest first, without the requests of a client's
    /// startup.
    pub fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }

    /// Returns the number of round trips since the start or the last `reset`. A request begins one if no request of its
    /// connection is pending.
    pub fn round_trips(&self) -> usize {
        self.state.lock().unwrap().round_trips
    }

    /// Waits until that many requests have arrived since the start or the last `reset`.
    pub async fn until_requests(&self, count: usize) {
        let mut arrived = self.state.lock().unwrap().arrived.subscribe();
        let reached = timeout(Duration::from_secs(30), arrived.wait_for(|&arrived| arrived >= count)).await;
        reached.expect("in time").expect("the proxy runs");
    }

    /// Waits until all connections have ended, so that no request of a client that has left is under way.
    pub async fn all_closed(&self) {
        self.open.clone().wait_for(|&open| open == 0).await.expect("the proxy runs");
    }

    /// Clears the recorded requests. Queued faults remain.
    pub fn reset(&self) {
        let mut state = self.state.lock().unwrap();
        state.requests.clear();
        state.arrived.send_replace(0);
        state.round_trips = 0;
    }

    /// Returns the times of requests to which the server responds later than this from now on, when it has responded.
    pub fn slow_responses(&self, limit: Duration) -> UnboundedReceiver<Instant> {
        let (slow, requests) = unbounded_channel();
        self.state.lock().unwrap().slow = Some((limit, slow));
        requests
    }

    /// Returns the number of faults that still apply to requests. Zero shows that every requested fault has occurred.
    pub fn pending_faults(&self) -> usize {
        self.state.lock().unwrap().rules.len()
    }

    /// Prepares a fault for the next request that `wanted` accepts.
    pub fn on(&self, wanted: impl Fn(&Request) -> bool + Send + 'static) -> Fault<'_> {
        Fault::new(self, wanted)
    }

    /// Prepares a fault for the next request with this command, or with SQL that contains this text.
    pub fn on_command(&self, part: &str) -> Fault<'_> {
        let part = part.to_owned();
        self.on(move |request| request.command.contains(&part))
    }
}

/// Returns `HOST:PORT` of a URL.
pub fn host_and_port(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, place)| place)
}

async fn address(server: &str) -> SocketAddr {
    lookup_host(server).await.expect("HOST:PORT").next().expect("an address of the server")
}

/// The server behind the proxy.
#[derive(Clone, Copy, Debug)]
struct Upstream {
    protocol: Protocol,
    address: SocketAddr,
    /// The address that clients see instead.
    alias: Option<IpAddr>,
}

impl Upstream {
    async fn connect(self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Replaces the server's address by the alias.
    fn disguise(self, answer: Bytes) -> Bytes {
        let Some(alias) = self.alias else { return answer };
        let (own, alias) = (self.address.ip().to_string(), alias.to_string());
        let mut disguised = answer.to_vec();
        for (place, bytes) in answer.windows(own.len()).enumerate() {
            if bytes == own.as_bytes() {
                disguised[place..][..own.len()].copy_from_slice(alias.as_bytes());
            }
        }
        disguised.into()
    }
}

/// The bytes that a client sent to set up its connection, with which another connection can be set up.
#[derive(Clone, Debug, Default)]
struct Session(BytesMut);

/// A complete request, which can be sent at any time.
#[derive(Clone, Debug)]
struct Parcel {
    upstream: Upstream,
    session: Session,
    bytes: Bytes,
}

impl Parcel {
    /// Sends the request on a separate connection, and waits for the complete response.
    async fn send(self) -> std::io::Result<Response> {
        let stream = self.upstream.connect().await?;
        let bytes = match self.upstream.protocol {
            Protocol::Resp => resp::exchange(stream, &self.session.0, &self.bytes).await,
            Protocol::Postgres => postgres::exchange(stream, &self.session.0, &self.bytes).await,
            Protocol::DynamoDb => http::exchange(stream, &self.bytes).await,
        }?;
        Ok(Response { protocol: self.upstream.protocol, bytes })
    }
}

/// The recorded requests and the queued faults, under one lock so that their order is consistent.
#[derive(Default)]
struct State {
    requests: Vec<Request>,
    /// The number of requests, for those who wait for it.
    arrived: watch::Sender<usize>,
    round_trips: usize,
    rules: Vec<Rule>,
    /// The limit above which response times are reported, and where.
    slow: Option<(Duration, UnboundedSender<Instant>)>,
}

impl State {
    /// Records a request, and returns the action for it.
    fn enter(&mut self, mut request: Request, begins_round_trip: bool) -> (Request, Action) {
        self.round_trips += usize::from(begins_round_trip);
        request.round_trip = self.round_trips;
        let action = faults::strike(&mut self.rules, &request);
        self.requests.push(request.clone());
        self.arrived.send_replace(self.requests.len());
        (request, action)
    }

    /// Reports a response to a request of this time, if it was slow.
    fn responded(&self, asked: Instant) {
        if let Some((limit, slow)) = &self.slow
            && asked.elapsed() > *limit
        {
            let _ = slow.send(asked); // fails if the test dropped the receiver
        }
    }
}

/// Accepts and counts connections, which end with this task.
async fn accept(listener: TcpListener, upstream: Upstream, state: Arc<Mutex<State>>, open: watch::Sender<usize>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let _ = client.set_nodelay(true); // fails only if the client has left already
        let connection = connection::serve(client, upstream, Arc::clone(&state));
        open.send_modify(|open| *open += 1);
        let open = open.clone();
        connections.spawn(async move {
            connection.await;
            open.send_modify(|open| *open -= 1);
        });
    }
}
