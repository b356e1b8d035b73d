//! Request and response bodies, and their limits.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use lambda_http::{Body, IntoResponse, request::from_str};
use lambda_once::{
    Results,
    http::{Caller, IdempotencyKeyLayer},
};
use tower::{Layer, Service, ServiceExt};

use crate::setup::{App, numbered};

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(crate::setup::engine(), Caller::authorizer().or_anonymous())
}

#[tokio::test]
async fn lambda_http_serves_and_replays_events_of_both_versions() {
    for file in ["charge-rest-v1.json", "charge-http-v2.json"] {
        let event = std::fs::read_to_string(format!("events/{file}")).unwrap();
        let handler = tower::service_fn(|request: Request<Body>| async move {
            assert!(matches!(request.body(), Body::Text(_)), "text stays text");
            let answer = Response::builder().status(201).header("content-type", "application/json");
            Ok::<_, lambda_http::Error>(answer.body(request.into_body()).unwrap())
        });
        let mut service = layer().layer(handler);
        let mut answers = Vec::new();
        for _ in 0..2 {
            let request = from_str(&event).unwrap();
            let answer = service.ready().await.unwrap().call(request).await.unwrap();
            answers.push(answer.into_response().await);
        }
        assert_eq!(answers[0].status(), 201);
        assert!(matches!(answers[0].body(), Body::Text(text) if text.contains("customer_id")), "{file}");
        assert_eq!(answers[0].body(), answers[1].body());
        let replayed: Vec<_> =
            answers.iter().map(|answer| answer.headers().contains_key("idempotency-replayed")).collect();
        assert_eq!(replayed, [false, true], "{file}");
    }
}

#[tokio::test]
async fn binary_bodies_stay_binary() {
    let bytes: &[u8] = b"\xff\x00\xfe";
    let handler = tower::service_fn(move |request: Request<Body>| async move {
        assert!(matches!(request.body(), Body::Binary(body) if body == bytes));
        Ok::<_, lambda_http::Error>(Response::new(request.into_body()))
    });
    let service = layer().layer(handler);
    for is_replay in [false, true] {
        let request = Request::post("/").header("idempotency-key", "k").body(Body::Binary(bytes.to_vec())).unwrap();
        let answer = service.clone().oneshot(request).await.unwrap();
        assert_eq!(
            (answer.status(), answer.headers().contains_key("idempotency-replayed")),
            (StatusCode::OK, is_replay)
        );
        assert_eq!(&answer.into_body().collect().await.unwrap().to_bytes()[..], bytes);
    }
}

#[tokio::test]
async fn over_axum_a_whole_router_is_covered() {
    let app = axum::Router::new()
        .route("/charges", axum::routing::post(|body: String| async move { (http::StatusCode::CREATED, body) }))
        .layer(layer());
    let send = |body: &'static str| {
        let request =
            Request::post("/charges").header("idempotency-key", "k").body(axum::body::Body::from(body)).unwrap();
        let app = app.clone();
        async move {
            let (parts, body) = app.oneshot(request).await.unwrap().into_parts();
            (
                parts.status.as_u16(),
                parts.headers.contains_key("idempotency-replayed"),
                body.collect().await.unwrap().to_bytes(),
            )
        }
    };
    assert_eq!(send("a").await, (201, false, Bytes::from("a")));
    assert_eq!(send("a").await, (201, true, Bytes::from("a")));
    assert_eq!(send("b").await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn a_request_beyond_the_cap_is_refused() {
    let app = App::with(|engine| engine, |layer| layer.max_body(4), numbered);
    let got = app.post("k", "12345").await;
    assert_eq!((got.status, got.code(), app.runs()), (413, "body_too_large".to_owned(), 0));
    assert!(app.store.calls().is_empty());
}

#[tokio::test]
async fn the_body_of_an_event_may_have_the_largest_size_and_no_byte_more() {
    for (max, status) in [(4, 200), (3, 413)] {
        let handler =
            tower::service_fn(|_: Request<Body>| async { Ok::<_, lambda_http::Error>(Response::new(Body::Empty)) });
        let request = Request::post("/").header("idempotency-key", "k").body(Body::Text("1234".to_owned())).unwrap();
        let answer = layer().max_body(max).layer(handler).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), status, "{max}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_beyond_the_cap_is_passed_through_and_its_operation_is_done() {
    let long = |_, _| async { Response::new(Full::from("12345")) };
    let app = App::with(|engine| engine, |layer| layer.max_response(4), long);
    let got = app.post("k", "1").await;
    assert_eq!((got.status, &got.body[..]), (200, &b"12345"[..]));
    let again = app.post("k", "1").await;
    assert_eq!((again.status, again.code(), again.is_replay()), (410, "response_not_stored".to_owned(), true));
    assert_eq!(app.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_over_the_cap_can_be_refused_and_its_operation_stays_done() {
    let long = |_, _| async { Response::new(Full::from("12345")) };
    let app = App::with(|engine| engine, |layer| layer.max_response(4).reject_large_responses(), long);
    let got = app.post("k", "1").await;
    assert_eq!((got.status, got.code()), (500, "response_too_large".to_owned()));
    let again = app.post("k", "1").await;
    assert_eq!((again.status, again.code(), again.is_replay()), (410, "response_not_stored".to_owned(), true));
    assert_eq!(app.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_releases_the_key_is_passed_through_however_large() {
    let long = |run: u32, _| async move {
        let answer = Response::builder().status(if run < 3 { 503 } else { 200 });
        answer.header("x-run", run).body(Full::from("try again")).unwrap()
    };
    let app = App::with(|engine| engine, |layer| layer.max_response(4).reject_large_responses(), long);
    for run in ["1", "2"] {
        let got = app.post("k", "1").await;
        assert_eq!((got.status, &got.body[..], got.header("x-run")), (503, &b"try again"[..], Some(run)));
    }
    let done = app.post("k", "1").await;
    assert_eq!((done.status, done.code(), app.runs()), (500, "response_too_large".to_owned(), 3));
    assert_eq!(app.post("k", "1").await.code(), "response_not_stored");
    assert_eq!(app.runs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_discarded_response_is_gone_and_its_operation_stays_done() {
    let app = App::with(|engine| engine.results(Results::Discard), |layer| layer, numbered);
    assert_eq!(app.post("k", "{}").await.status, 201);
    let again = app.post("k", "{}").await;
    assert_eq!((again.status, again.is_replay(), app.runs()), (410, true, 1));
}

/// Sends a boxed body twice to a handler that echoes it with its trailer.
macro_rules! echoed_twice {
    ($boxed:ident) => {
        let handler = tower::service_fn(|request: Request<_>| async move {
            let body = BodyExt::collect(request.into_body()).await.unwrap();
            let etag = body.trailers().map(|trailers| trailers[header::ETAG].clone());
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("{:?} {etag:?}", body.to_bytes())))))
        });
        let service = layer().layer(handler);
        for is_replay in [false, true] {
            let trailers = HeaderMap::from_iter([(header::ETAG, "e".parse().unwrap())]);
            let frames = [Frame::data(Bytes::from("char")), Frame::data(Bytes::from("ge")), Frame::trailers(trailers)];
            let body = StreamBody::new(stream::iter(frames.map(Ok::<_, std::io::Error>)));
            let request = Request::post("/").header("idempotency-key", "k").body(body.$boxed()).unwrap();
            let answer = service.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.headers().contains_key("idempotency-replayed"), is_replay);
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "b\"charge\" Some(\"e\")");
        }
    };
}

#[tokio::test]
async fn boxed_bodies_are_read_and_handed_on_with_their_trailers() {
    echoed_twice!(boxed);
    echoed_twice!(boxed_unsync);
}
