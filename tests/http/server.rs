//! A server on a socket, and its clients.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use lambda_once::{
    BoxFuture,
    store::{Answers, ClaimRequest, Claimed, SettleRequest, Settled, Store},
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tower::{Layer, Service};

use crate::{setup::Got, support::delegate::delegate};

/// `axum::serve` on a separate port.
pub(crate) struct Server {
    pub(crate) address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or_default() };
            axum::serve(listener, app).with_graceful_shutdown(stopped).await.unwrap();
        });
        Self { address, stop, serving }
    }

    /// Sends a `POST` on a new connection, and returns the response.
    pub(crate) async fn post(&self, path: &str, key: &str, body: &'static str) -> Got {
        self.send(Request::post(path).header("idempotency-key", key).body(body.into()).unwrap()).await
    }

    pub(crate) async fn send(&self, mut request: Request<Full<Bytes>>) -> Got {
        request.headers_mut().insert("host", "localhost".parse().unwrap());
        let stream = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        drop(sender);
        connection.await.unwrap().unwrap();
        Got { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Writes a `POST` to a new connection. Dropping the connection disconnects.
    pub(crate) async fn begin(&self, key: &str, headers: &str, body: &str) -> TcpStream {
        let rest = format!("idempotency-key: {key}\r\n{headers}\r\n{body}");
        self.write(rest.as_bytes()).await
    }

    /// Writes a `POST` with these header lines and without a body, on a connection for a single request.
    pub(crate) async fn begin_raw(&self, headers: &[u8]) -> TcpStream {
        self.write(&[headers, b"connection: close\r\ncontent-length: 0\r\n\r\n"].concat()).await
    }

    async fn write(&self, rest: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = [b"POST /charges HTTP/1.1\r\nhost: localhost\r\n", rest].concat();
        stream.write_all(&request).await.unwrap();
        stream
    }

    /// Shuts down gracefully, as `axum::serve` does.
    pub(crate) async fn shut_down(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap();
    }
}

/// A response without its date.
pub(crate) fn undated(mut got: Got) -> Got {
    got.headers.remove("date");
    got
}

/// Watches requests that have the header `x-watched` from outside the layer. It stops polling them at a certain poll, as if
/// the poll had found the connection closed, and reports when the server has dropped them.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Watching>);

#[derive(Default)]
struct Watching {
    at: AtomicUsize,
    polls: AtomicUsize,
    arrived: AtomicUsize,
    arrival: Notify,
    reached: Notify,
    gone: Notify,
}

impl Watch {
    /// The poll at which the request stops.
    pub(crate) fn stopping_at(poll: usize) -> Self {
        let watch = Self::default();
        watch.0.at.store(poll, Ordering::SeqCst);
        watch
    }

    /// Completes at the poll at which the request stops.
    pub(crate) async fn reached(&self) {
        self.0.reached.notified().await;
    }

    /// Completes when the server has dropped the request.
    pub(crate) async fn gone(&self) {
        self.0.gone.notified().await;
    }

    /// Returns the number of requests that have arrived, watched or not.
    pub(crate) fn arrivals(&self) -> usize {
        self.0.arrived.load(Ordering::SeqCst)
    }

    /// Completes when this many requests have arrived, watched or not.
    pub(crate) async fn arrived(&self, requests: usize) {
        while self.0.arrived.load(Ordering::SeqCst) < requests {
            self.0.arrival.notified().await;
        }
    }
}

impl<S> Layer<S> for Watch {
    type Service = Watched<S>;

    fn layer(&self, inner: S) -> Watched<S> {
        Watched { inner, watch: self.clone() }
    }
}

#[derive(Clone)]
pub(crate) struct Watched<S> {
    inner: S,
    watch: Watch,
}

impl<S: Service<Request<Body>, Future: Send + 'static>> Service<Request<Body>> for Watched<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = WatchedFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let watching = &self.watch.0;
        watching.arrived.fetch_add(1, Ordering::SeqCst);
        watching.arrival.notify_one();
        let watching = request.headers().contains_key("x-watched").then(|| Arc::clone(watching));
        WatchedFuture { inner: Box::pin(self.inner.call(request)), watched: Gone(watching) }
    }
}

pub(crate) struct WatchedFuture<F> {
    // Dropped before it is reported.
    inner: Pin<Box<F>>,
    watched: Gone,
}

/// Reports that a request has been dropped.
struct Gone(Option<Arc<Watching>>);

impl<F: Future> Future for WatchedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(watching) = &self.watched.0 {
            let (poll, at) = (watching.polls.fetch_add(1, Ordering::SeqCst) + 1, watching.at.load(Ordering::SeqCst));
            if poll == at {
                watching.reached.notify_one();
            }
            if at > 0 && poll >= at {
                return Poll::Pending;
            }
        }
        self.inner.as_mut().poll(context)
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        if let Some(watching) = &self.0 {
            watching.gone.notify_one();
        }
    }
}

/// The points at which the store and the handler yield. At one of them they pause until they are released.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps(Arc<Stepping>);

#[derive(Debug, Default)]
struct Stepping {
    at: usize,
    steps: AtomicUsize,
    reached: Notify,
    go: Notify,
}

impl Steps {
    pub(crate) fn stopping_at(step: usize) -> Self {
        Self(Arc::new(Stepping { at: step, ..Stepping::default() }))
    }

    pub(crate) async fn step(&self) {
        if self.0.steps.fetch_add(1, Ordering::SeqCst) + 1 == self.0.at {
            self.0.reached.notify_one();
            self.0.go.notified().await;
        }
        tokio::task::yield_now().await;
    }

    pub(crate) async fn reached(&self) {
        self.0.reached.notified().await;
    }

    pub(crate) fn go(&self) {
        self.0.go.notify_one();
    }
}

/// A store with a step before and after each claim and settle.
#[derive(Debug)]
pub(crate) struct SteppedStore<S>(pub(crate) S, pub(crate) Steps);

impl<S: Store> Store for SteppedStore<S> {
    delegate!(0: read, limits, id, warm_up);

    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            self.1.step().await;
            let answers = self.0.claim(requests).await;
            self.1.step().await;
            answers
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move {
            self.1.step().await;
            let answers = self.0.settle(requests).await;
            self.1.step().await;
            answers
        })
    }
}

/// `201` with a different body for each run.
pub(crate) fn created(run: usize) -> Response<Body> {
    Response::builder().status(201).body(format!("charge {run}\n").into()).unwrap()
}
