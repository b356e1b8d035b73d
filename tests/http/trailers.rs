//! Trailers of requests and responses.

use std::{
    convert::Infallible,
    future::ready,
    io,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body, routing::post};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderName, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use lambda_once::http::{Caller, IdempotencyKeyLayer, ResponseAction};
use tokio::io::AsyncReadExt;
use tower::ServiceExt;

use crate::{
    server::Server,
    setup::{App, LAPSE},
};

const CHECKSUM: HeaderName = HeaderName::from_static("x-checksum");

fn checksum() -> HeaderMap {
    [(CHECKSUM, "17".parse().unwrap())].into_iter().collect()
}

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(crate::setup::engine(), Caller::shared())
}

/// The bytes that a server sends to a client that accepts trailers, and to its retry.
async fn received(app: Router) -> [String; 2] {
    let server = Server::start(app).await;
    [read(&server).await, read(&server).await]
}

async fn read(server: &Server) -> String {
    let mut client = server.begin_raw(b"idempotency-key: k\r\nte: trailers\r\n").await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_arrive_over_the_network_as_without_the_layer_also_replayed() {
    let handler = || async {
        let frames = [Frame::data(Bytes::from("charged")), Frame::trailers(checksum())];
        let body = Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>))));
        Response::builder().header(header::TRAILER, "x-checksum").body(body).unwrap()
    };
    let bare = Router::new().route("/charges", post(handler));
    for (app, how) in [(bare.clone(), "without the layer"), (bare.route_layer(layer()), "with the layer")] {
        for (try_, answer) in received(app).await.into_iter().enumerate() {
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("charged"), "{how}: {answer}");
            assert!(answer.ends_with("\r\nx-checksum: 17\r\n\r\n"), "{how}: {answer}");
            let is_replay = answer.contains("idempotency-replayed: true");
            assert_eq!(is_replay, try_ == 1 && how == "with the layer", "{answer}");
        }
    }
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The status, the trailer and whether it is a replay, for the first response of a gRPC service and for the retry.
type Told = [(u16, Option<String>, bool); 2];

async fn of_grpc(
    header: Option<&'static str>,
    trailer: Option<&'static str>,
    decision: Option<ResponseAction>,
) -> Told {
    of_layer(layer(), "application/grpc", header, trailer, decision).await
}

/// Like `of_grpc`, with a layer whose limit the response exceeds.
async fn too_large(
    content_type: &'static str,
    header: Option<&'static str>,
    trailer: Option<&'static str>,
    decision: Option<ResponseAction>,
) -> Told {
    of_layer(layer().max_response(6), content_type, header, trailer, decision).await
}

async fn of_layer(
    layer: IdempotencyKeyLayer,
    content_type: &'static str,
    header: Option<&'static str>,
    trailer: Option<&'static str>,
    decision: Option<ResponseAction>,
) -> Told {
    let handler = move || async move {
        let trailers = trailer.map(|status| HeaderMap::from_iter([(GRPC_STATUS, status.parse().unwrap())]));
        let frames = [Frame::data(Bytes::from("charged"))].into_iter().chain(trailers.map(Frame::trailers));
        let body = Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>))));
        let mut answer = Response::builder().header("content-type", content_type).body(body).unwrap();
        if let Some(status) = header {
            answer.headers_mut().insert(GRPC_STATUS, status.parse().unwrap());
        }
        if let Some(decision) = decision {
            answer.extensions_mut().insert(decision);
        }
        answer
    };
    let app = Router::new().route("/charges", post(handler)).route_layer(layer);
    let send = || async {
        let request = Request::post("/charges").header("idempotency-key", "k").body(Body::from("charge")).unwrap();
        let (parts, body) = app.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap();
        let status = body
            .trailers()
            .and_then(|trailers| trailers.get(GRPC_STATUS))
            .map(|status| status.to_str().unwrap().to_owned());
        (parts.status.as_u16(), status, parts.headers.contains_key("idempotency-replayed"))
    };
    [send().await, send().await]
}

#[tokio::test]
async fn an_error_of_grpc_keeps_the_key_unless_the_application_decides() {
    let status = |status: &str| Some(status.to_owned());
    assert_eq!(of_grpc(None, Some("0"), None).await, [(200, status("0"), false), (200, status("0"), true)]);
    assert_eq!(of_grpc(Some("0"), None, None).await[1], (200, None, true));
    assert_eq!(of_grpc(None, Some("14"), None).await, [(200, status("14"), false), (409, None, false)]);
    assert_eq!(of_grpc(Some("5"), None, None).await[1], (409, None, false));
    // Trailers take precedence if both are present.
    assert_eq!(of_grpc(Some("0"), Some("13"), None).await[1].0, 409);
    let store = of_grpc(None, Some("3"), Some(ResponseAction::Store)).await;
    assert_eq!(store[1], (200, status("3"), true));
    let release = of_grpc(None, Some("14"), Some(ResponseAction::Release)).await;
    assert_eq!(release[1], (200, status("14"), false));
}

#[tokio::test]
async fn a_large_grpc_response_completes_as_its_status_is_unknown() {
    let status = |status: &str| Some(status.to_owned());
    for content_type in ["application/grpc", "application/grpc+proto", "text/plain"] {
        for (header, trailer) in [(None, "0"), (Some("0"), "0"), (None, "14"), (Some("0"), "13")] {
            let got = too_large(content_type, header, Some(trailer), None).await;
            assert_eq!(got, [(200, status(trailer), false), (410, None, true)], "{content_type} {header:?} {trailer}");
        }
        // This status is known.
        assert_eq!(too_large(content_type, Some("5"), None, None).await[1], (409, None, false), "{content_type}");
    }
    let keep = too_large("application/grpc", None, Some("0"), Some(ResponseAction::Keep)).await;
    assert_eq!(keep[1], (409, None, false));
}

#[tokio::test(start_paused = true)]
async fn a_large_grpc_response_has_no_second_run_after_the_lease() {
    let handler = |_, _| async {
        Response::builder().header("content-type", "application/grpc").body(Full::from("charged")).unwrap()
    };
    let app = App::with(|engine| engine, |layer| layer.max_response(6), handler);
    assert_eq!(app.post("k", "{}").await.status, 200);
    tokio::time::sleep(LAPSE).await;
    assert_eq!((app.post("k", "{}").await.status, app.runs()), (410, 1));
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

#[tokio::test]
async fn a_check_before_a_replay_sees_the_trailers() {
    let seen = Arc::new(Mutex::new(None));
    let note = Arc::clone(&seen);
    let layer = layer().before_replay(move |_, stored| {
        *note.lock().unwrap() = stored.trailers().cloned();
        Box::pin(async { Ok(()) })
    });
    let told = of_layer(layer, "application/grpc", None, Some("0"), None).await;
    assert_eq!(told[1], (200, Some("0".to_owned()), true));
    let trailers: HeaderMap = [(GRPC_STATUS, "0".parse().unwrap())].into_iter().collect();
    assert_eq!(*seen.lock().unwrap(), Some(trailers));
}

#[tokio::test]
async fn a_broken_grpc_response_is_an_error_although_it_frees_its_key() {
    for (content_type, status) in [("application/grpc", 500), ("text/plain", 503)] {
        let handler = move || async move {
            let broken = stream::once(async {
                tokio::task::yield_now().await;
                Err(io::Error::other("broken"))
            });
            let body = Body::from_stream(stream::iter([Ok("half")]).chain(broken));
            Response::builder().status(503).header("content-type", content_type).body(body).unwrap()
        };
        let app = Router::new().route("/charges", post(handler)).route_layer(layer());
        let request = Request::post("/charges").header("idempotency-key", "k").body(Body::empty()).unwrap();
        assert_eq!(app.oneshot(request).await.unwrap().status(), status, "{content_type}");
    }
}
