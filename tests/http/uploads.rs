//! Request bodies that are large, or slow.

use std::{
    convert::Infallible,
    io::Write,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, extract::DefaultBodyLimit, routing::post};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::{FutureExt, StreamExt, stream, stream::FuturesUnordered};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use lambda_once::http::{Caller, IdempotencyKeyLayer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};
use tower::{ServiceExt, util::MapRequestLayer};
use tower_http::{decompression::RequestDecompressionLayer, limit::RequestBodyLimitLayer};

use crate::{
    server::{Server, created},
    setup::Got,
};

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(crate::setup::engine(), Caller::shared())
}

/// A service that reads its body, and the number of its runs.
fn app(layer: IdempotencyKeyLayer) -> (Router, Arc<AtomicUsize>) {
    let runs = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&runs);
    let handler = move |_: Bytes| {
        let run = counter.fetch_add(1, Ordering::SeqCst) + 1;
        async move { created(run) }
    };
    (Router::new().route("/charges", post(handler)).route_layer(layer), runs)
}

/// Reads up to the end of the head of a response.
async fn head(client: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(read).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_known_to_be_too_large_is_refused_before_it_is_sent() {
    let (app, runs) = app(layer());
    let server = Server::start(app).await;
    let mut client = server.begin("k", "content-length: 1000000000\r\nexpect: 100-continue\r\n", "").await;
    let first = head(&mut client).await;
    assert!(first.starts_with("HTTP/1.1 413 "), "{first}");

    let mut client = server.begin("k", "content-length: 2\r\nexpect: 100-continue\r\n", "").await;
    let first = head(&mut client).await;
    assert!(first.starts_with("HTTP/1.1 100 "), "another one is asked for: {first}");
    client.write_all(b"{}").await.unwrap();
    assert!(head(&mut client).await.starts_with("HTTP/1.1 201 "));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// A body of these frames, each after a pause.
fn slow(frames: &'static [(u64, &'static str)]) -> Body {
    Body::from_stream(stream::iter(frames).then(|&(pause, data)| async move {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        Ok::<_, Infallible>(Bytes::from(data))
    }))
}

async fn sent(app: &Router, body: Body) -> Got {
    answered(app, Request::post("/charges").header("idempotency-key", "k").body(body).unwrap()).await
}

async fn answered(app: &Router, request: Request<Body>) -> Got {
    let (parts, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    Got { status: parts.status.as_u16(), headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_pauses_for_too_long_is_refused() {
    let (service, runs) = app(layer());
    let began = Instant::now();
    let got = sent(&service, slow(&[(1, "{"), (31, "}")])).await;
    assert_eq!((got.status, got.code(), began.elapsed().as_secs()), (408, "body_timed_out".to_owned(), 31));
    // Frames without data are no progress.
    let got = sent(&service, slow(&[(20, ""), (20, ""), (20, "{}")])).await;
    assert_eq!((got.code(), runs.load(Ordering::SeqCst)), ("body_timed_out".to_owned(), 0));
    let got = sent(&service, slow(&[(29, "{"), (29, "\"a\":"), (29, "1}")])).await;
    assert_eq!((got.status, runs.load(Ordering::SeqCst)), (201, 1), "a slow one is served");

    let (service, _) = app(layer().body_idle_timeout(Duration::from_secs(5)));
    assert_eq!(sent(&service, slow(&[(6, "{}")])).await.status, 408);
    let (service, _) = app(layer().body_idle_timeout(Duration::MAX));
    assert_eq!(sent(&service, slow(&[(10_000, "{}")])).await.status, 201);
}

/// A body of this length, which never arrives.
struct Announced(u64);

impl http_body::Body for Announced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_known_to_be_too_large_is_not_waited_for() {
    let (service, runs) = app(layer().max_body(6));
    for (length, status, code) in [(7_u64, 413, "body_too_large"), (6, 408, "body_timed_out")] {
        let request = || Request::post("/charges").header("idempotency-key", "k");
        let silent = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let by_header = request().header("content-length", length).body(silent);
        for request in [by_header, request().body(Body::new(Announced(length)))] {
            let got = answered(&service, request.unwrap()).await;
            assert_eq!((got.status, got.code()), (status, code.to_owned()), "{length}");
        }
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_may_have_the_largest_size_and_no_byte_more() {
    let (service, runs) = app(layer().max_body(6).max_buffered(6));
    let bodies = [
        (slow(&[(0, "1234"), (0, "56")]), 201),
        (Body::from("123456"), 201),
        (slow(&[(0, "1234"), (0, "567")]), 413),
        (Body::from("1234567"), 413),
    ];
    for (number, (body, status)) in bodies.into_iter().enumerate() {
        assert_eq!(sent(&service, body).await.status, status, "{number}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "the second one is a retry");
}

#[tokio::test]
async fn an_outer_layers_body_limit_is_reported_as_body_too_large() {
    let (service, _) = app(layer());
    // As `RequestBodyLimitLayer` limits a body without a length. axum wraps its error.
    let service = service.layer(MapRequestLayer::new(|request: Request<Body>| {
        request.map(|body| Body::new(Limited::new(body, 4).map_err(Wrapped)))
    }));
    let got = sent(&service, slow(&[(0, "12345")])).await;
    assert_eq!((got.status, got.code()), (413, "body_too_large".to_owned()));
}

/// The limits of tower-http and of axum, also around a decompression, which wraps the errors of the body that it reads.
#[tokio::test]
async fn the_limits_of_other_layers_are_413_and_leave_the_key_free() {
    type Limit = fn(Router) -> Router;
    let limited: [(&str, Limit); 2] = [
        ("tower-http", |service| service.layer(RequestBodyLimitLayer::new(4))),
        ("axum", |service| service.layer(DefaultBodyLimit::max(4))),
    ];
    for (name, limit) in limited {
        let (service, runs) = app(layer());
        let service = limit(service);
        let bodies = [Body::from("12345"), slow(&[(0, "123"), (0, "45")])];
        for body in bodies {
            assert_eq!(sent(&service, body).await.status, 413, "{name}");
        }
        assert_eq!(runs.load(Ordering::SeqCst), 0, "{name}");
        assert_eq!(sent(&service, Body::from("{}")).await.status, 201, "{name}: the key is free");
    }
    let (service, _) = app(layer());
    let service = service.layer(RequestDecompressionLayer::new()).layer(RequestBodyLimitLayer::new(16));
    let mut packed = GzEncoder::new(Vec::new(), Compression::none());
    packed.write_all(&[b'a'; 64]).unwrap();
    let packed = packed.finish().unwrap();
    let frames = packed.chunks(8).map(|chunk| Ok::<_, Infallible>(Bytes::copy_from_slice(chunk))).collect::<Vec<_>>();
    let request = Request::post("/charges").header("idempotency-key", "k").header("content-encoding", "gzip");
    let request = request.body(Body::from_stream(stream::iter(frames))).unwrap();
    let got = answered(&service, request).await;
    assert_eq!((got.status, got.code()), (413, "body_too_large".to_owned()));
}

#[derive(Debug, thiserror::Error)]
#[error("wrapped")]
struct Wrapped(#[source] Box<dyn std::error::Error + Send + Sync>);

#[test]
fn the_error_of_a_limit_is_found_behind_others() {
    // The assumption of the test above.
    let limit = futures_util::FutureExt::now_or_never(Limited::new(Body::from("12345"), 4).collect());
    assert!(limit.unwrap().unwrap_err().is::<LengthLimitError>());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_200_slow_clients_no_more_is_held_than_is_allowed() {
    const HALF: usize = 64 << 10;
    let (service, runs) = app(layer().max_body(2 * HALF).max_buffered(16 * HALF));
    let server = Server::start(service).await;
    let half = "a".repeat(HALF);
    let clients = (0..200).map(|key| {
        let (server, half) = (&server, &half);
        async move {
            let headers = format!("connection: close\r\ncontent-length: {}\r\n", 2 * HALF);
            let mut client = server.begin(&key.to_string(), &headers, half).await;
            let mut answer = Vec::new();
            // A connection that is reset has had its response as well.
            let _ = client.read_to_end(&mut answer).await;
            String::from_utf8(answer).unwrap()
        }
    });
    let mut clients: FuturesUnordered<_> = clients.collect();
    // The others wait for the rest of their bodies, 16 at most, because two refused bodies may have had room for one.
    for _ in 0..184 {
        let answer = clients.next().await.unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    // Once they have left, there is room again.
    drop(clients);
    let room = async { while server.post("/charges", "\"new\"", "{}").await.status != 201 {} };
    timeout(Duration::from_secs(20), room).await.expect("there is room");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_counts_until_its_handler_has_ended() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let go = Arc::clone(&gate);
    let handler = move |_: Bytes| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            Response::new(Body::empty())
        }
    };
    let app = Router::new().route("/charges", post(handler)).route_layer(layer().max_body(6).max_buffered(6));
    let mut first = std::pin::pin!(sent(&app, Body::from("1234")));
    assert!(first.as_mut().now_or_never().is_none());
    let got = sent(&app, Body::from("567")).await;
    assert_eq!((got.status, got.code(), got.header("retry-after")), (503, "overloaded".to_owned(), Some("1")));
    go.add_permits(1);
    assert_eq!(first.await.status, 200);
    go.add_permits(1);
    assert_eq!(sent(&app, Body::from("1234")).await.header("idempotency-replayed"), Some("true"));
}
