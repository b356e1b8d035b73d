//! The contract of `tower`, the extensions that a handler gets, and keys as they arrive from the network.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::{Extension, Router, routing::post};
use bytes::Bytes;
use futures_util::{FutureExt, future::poll_fn};
use http::{Request, Response};
use http_body_util::Full;
use lambda_once::{
    Claim, Idempotency, MemoryStore,
    http::{Caller, IdempotencyKeyLayer},
    store::fault::FaultStore,
};
use tokio::io::AsyncReadExt;
use tower::{Layer, Service, ServiceExt};

use crate::{server::Server, setup};

/// A service that is ready at every second poll, for one call. A clone must be polled itself.
struct Strict {
    polls: usize,
    is_ready: bool,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { polls: 0, is_ready: false, calls: Arc::clone(&self.calls) }
    }
}

impl Service<Request<Full<Bytes>>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.polls += 1;
        self.is_ready = self.polls.is_multiple_of(2);
        if self.is_ready {
            return Poll::Ready(Ok(()));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been asked whether it is ready");
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::new(Full::default())))
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_called() {
    let calls = Arc::<AtomicUsize>::default();
    let strict = Strict { polls: 0, is_ready: false, calls: Arc::clone(&calls) };
    let mut service = IdempotencyKeyLayer::new(setup::engine(), Caller::shared()).layer(strict);
    let ready = poll_fn(|context| service.poll_ready(context)).now_or_never();
    assert!(matches!(ready, Some(Ok(()))), "the inner service is waited for later");
    for (key, done) in [("a", 1), ("b", 2), ("a", 2)] {
        let answer = service.ready().await.unwrap().call(setup::post(key, "{}")).await.unwrap();
        assert_eq!((answer.status().as_u16(), calls.load(Ordering::SeqCst)), (200, done), "{key}");
    }
    let get = Request::get("/charges").body(Full::default()).unwrap();
    assert_eq!(service.ready().await.unwrap().call(get).await.unwrap().status(), 200, "passed through");
}

#[tokio::test(start_paused = true)]
async fn a_handler_finds_its_claim_unless_its_request_passes_through() {
    let handler = |claim: Option<Extension<Claim>>| async move {
        claim.map_or("none".to_owned(), |Extension(claim)| format!("{} {}", claim.key(), claim.attempt()))
    };
    let layer = IdempotencyKeyLayer::new(setup::engine(), Caller::shared()).key_optional();
    let app = Router::new().route("/charges", post(handler)).route_layer(layer);
    let send = |key: Option<&str>| {
        let request =
            key.into_iter().fold(Request::post("/charges"), |request, key| request.header("idempotency-key", key));
        let answer = app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap());
        async { axum::body::to_bytes(answer.await.unwrap().into_body(), 1_000).await.unwrap() }
    };
    assert_eq!(send(None).await, "none");
    let (one, other) = (send(Some("secret-a")).await, send(Some("secret-b")).await);
    let text = String::from_utf8(one.to_vec()).unwrap();
    assert!(one != other && text.ends_with(" 1") && !text.contains("secret"), "{text}");
}

/// A router whose handler counts its runs, and the store behind its layer.
fn counted() -> (Router, Arc<AtomicUsize>, FaultStore<MemoryStore>) {
    let (runs, store) = (Arc::<AtomicUsize>::default(), FaultStore::new(MemoryStore::new(), 1));
    let counter = Arc::clone(&runs);
    let handler = move || async move { counter.fetch_add(1, Ordering::SeqCst).to_string() };
    let once = Idempotency::builder(store.clone()).scope("tests").build().unwrap();
    let layer = IdempotencyKeyLayer::new(once, Caller::shared()).key_optional();
    (Router::new().route("/charges", post(handler)).route_layer(layer), runs, store)
}

/// The status line of the response to a request with these header lines.
async fn answered(server: &Server, headers: &[u8]) -> String {
    let mut client = server.begin_raw(headers).await;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

// Tests IKH-2.1-1, IKH-5-1, IKH-5-2.
#[tokio::test]
async fn malformed_keys_are_refused_as_they_come_from_the_network() {
    let (app, runs, store) = counted();
    let server = Server::start(app).await;
    let long = format!("idempotency-key: {}\r\n", "k".repeat(256));
    let malformed: [&[u8]; 13] = [
        b"idempotency-key: \r\n",
        b"idempotency-key: \"\"\r\n",
        long.as_bytes(),
        b"idempotency-key: a\x01b\r\n",
        b"idempotency-key: \"a\x7f\"\r\n",
        b"idempotency-key: a\r\nidempotency-key: b\r\n",
        b"idempotency-key: a\r\nIdempotency-Key: a\r\n",
        b"idempotency-key: a,b\r\n",
        b"idempotency-key: \"a\", \"b\"\r\n",
        b"idempotency-key: \"a\r\n",
        b"idempotency-key: a\"\r\n",
        b"idempotency-key: \"a\" b\r\n",
        "idempotency-key: \u{e9}\r\n".as_bytes(),
    ];
    for headers in malformed {
        let first = answered(&server, headers).await;
        assert_eq!(first, "HTTP/1.1 400 Bad Request", "{}", String::from_utf8_lossy(headers));
    }
    assert_eq!((runs.load(Ordering::SeqCst), store.calls()), (0, vec![]));

    let longest = format!("idempotency-key: \"{}\"\r\n", "k".repeat(255));
    for headers in
        [longest.as_bytes(), b"idempotency-key:\t \"a, \\\"b\\\"\" \r\n", b"idempotency-key: 8e03978e-40d5\r\n"]
    {
        assert_eq!(answered(&server, headers).await, "HTTP/1.1 200 OK", "{}", String::from_utf8_lossy(headers));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}
