//! Trailers of requests and responses.

use std::{convert::Infallible, future::ready};

use axum::{Router, body::Body, routing::post};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use lambda_once::http::{IdempotencyKeyLayer, Scope};
use tokio::io::AsyncReadExt;
use tower::ServiceExt;

use crate::server::Server;

const CHECKSUM: HeaderName = HeaderName::from_static("x-checksum");

fn checksum() -> HeaderMap {
    [(CHECKSUM, "17".parse().unwrap())].into_iter().collect()
}

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(crate::setup::engine(), Scope::shared())
}

/// The bytes that a server sends to a client that accepts trailers.
async fn received(app: Router) -> String {
    let server = Server::start(app).await;
    let mut client = server.begin_raw(b"idempotency-key: k\r\nte: trailers\r\n").await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trailers_of_a_first_answer_arrive_over_the_network_as_they_do_without_the_layer() {
    let handler = || async {
        let frames = [Frame::data(Bytes::from("charged")), Frame::trailers(checksum())];
        let body = Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>))));
        Response::builder().header(header::TRAILER, "x-checksum").body(body).unwrap()
    };
    let bare = Router::new().route("/charges", post(handler));
    for (app, how) in [(bare.clone(), "without the layer"), (bare.route_layer(layer()), "with the layer")] {
        let answer = received(app).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("charged"), "{how}: {answer}");
        assert!(answer.ends_with("\r\nx-checksum: 17\r\n\r\n"), "{how}: {answer}");
    }
}

#[tokio::test]
async fn the_trailers_of_a_request_reach_its_handler() {
    let handler = |body: Body| async move {
        let collected = body.collect().await.unwrap();
        let checksum = collected.trailers().and_then(|trailers| trailers.get(CHECKSUM)).cloned();
        let body = String::from_utf8(collected.to_bytes().to_vec()).unwrap();
        format!("{body} {checksum:?}")
    };
    let app = Router::new().route("/charges", post(handler)).route_layer(layer());
    let body = Full::from("charge").with_trailers(ready(Some(Ok::<_, Infallible>(checksum()))));
    let request = Request::post("/charges").header("idempotency-key", "k").body(Body::new(body)).unwrap();
    let answer = app.oneshot(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(answer, "charge Some(\"17\")");
}
