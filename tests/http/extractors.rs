//! Requests that axum's extractors reject, and responses that send them elsewhere, over a socket.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use axum::{
    Extension, Json, Router,
    extract::{DefaultBodyLimit, FromRequest, Path, Query, Request},
    handler::Handler,
    response::Redirect,
    routing::post,
};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use lambda_once::http::{Caller, IdempotencyKeyLayer, ReleaseRejection, ResponseAction};

use crate::{
    server::Server,
    setup::{Got, engine},
};

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(engine(), Caller::shared())
}

async fn start<H: Handler<T, ()>, T: 'static>(path: &str, handler: H) -> Server {
    let routes = Router::new().route(path, post(handler)).layer(DefaultBodyLimit::max(20)).route_layer(layer());
    Server::start(routes).await
}

async fn send(server: &Server, path: &str, body: &'static str) -> Got {
    let request = http::Request::post(path).header("idempotency-key", "k").header("content-type", "application/json");
    server.send(request.body(Full::from(Bytes::from(body))).unwrap()).await
}

const MALFORMED: &str = "x";
const OF_ANOTHER_TYPE: &str = "true";
const TOO_LONG: &str = "\"a text that is too long for the limit\"";

#[tokio::test]
async fn a_rejection_that_is_marked_lets_the_client_correct_its_body() {
    let charge = |ReleaseRejection(Json(amount)): ReleaseRejection<Json<u32>>| async move { amount.to_string() };
    let server = start("/charges", charge).await;
    for (body, status) in [(MALFORMED, 400), (OF_ANOTHER_TYPE, 422), (TOO_LONG, 413)] {
        for _ in 0..2 {
            let got = send(&server, "/charges", body).await;
            assert_eq!((got.status, got.is_replay()), (status, false), "{body}");
            assert_ne!(got.header("content-type"), Some("application/problem+json"), "{body}: the extractor's own");
        }
    }
    assert_eq!(&send(&server, "/charges", "7").await.body[..], b"7");
    assert!(send(&server, "/charges", "7").await.is_replay());
    assert_eq!(send(&server, "/charges", OF_ANOTHER_TYPE).await.code(), "key_reused");
    server.shut_down().await;
}

#[tokio::test]
async fn a_rejection_that_is_not_marked_is_stored() {
    let charge = |Json(amount): Json<u32>| async move { amount.to_string() };
    for (body, status) in [(MALFORMED, 400), (OF_ANOTHER_TYPE, 422)] {
        let server = start("/charges", charge).await;
        assert_eq!(send(&server, "/charges", body).await.status, status);
        assert!(send(&server, "/charges", body).await.is_replay());
        assert_eq!(send(&server, "/charges", "7").await.code(), "key_reused");
        server.shut_down().await;
    }
}

#[tokio::test]
async fn a_body_that_axum_finds_too_long_does_not_hold_its_key() {
    let server = start("/charges", |Json(text): Json<String>| async move { text }).await;
    assert_eq!(send(&server, "/charges", TOO_LONG).await.status, 413);
    assert_eq!(&send(&server, "/charges", "\"short\"").await.body[..], b"short");
    server.shut_down().await;
}

#[tokio::test]
async fn rejected_paths_and_queries_are_marked_too() {
    type Amount = ReleaseRejection<Query<Vec<(String, u32)>>>;
    let charge = |ReleaseRejection(Path(id)): ReleaseRejection<Path<u32>>, amount: Amount| async move {
        format!("{id} {}", amount.0.0[0].1)
    };
    let server = start("/accounts/{id}/charges", charge).await;
    assert_eq!(send(&server, "/accounts/one/charges?amount=2", "{}").await.status, 400);
    assert_eq!(send(&server, "/accounts/1/charges?amount=two", "{}").await.status, 400);
    assert_eq!(&send(&server, "/accounts/1/charges?amount=2", "{}").await.body[..], b"1 2");
    server.shut_down().await;
}

/// An extractor that reserves the amount, and may fail with an unknown outcome.
struct Reserved;

impl<S: Send + Sync> FromRequest<S> for Reserved {
    type Rejection = (StatusCode, Extension<ResponseAction>);

    async fn from_request(_: Request, _: &S) -> Result<Self, Self::Rejection> {
        Err((StatusCode::UNPROCESSABLE_ENTITY, Extension(ResponseAction::Keep)))
    }
}

#[tokio::test]
async fn a_rejection_with_its_own_response_action_keeps_it() {
    let server = start("/charges", |_: ReleaseRejection<Reserved>| async {}).await;
    assert_eq!(send(&server, "/charges", "{}").await.status, 422);
    assert_eq!(send(&server, "/charges", "{}").await.code(), "in_progress");
    server.shut_down().await;
}

#[tokio::test]
async fn a_redirect_of_the_same_request_lets_it_run_where_it_is_sent() {
    for redirect in [Redirect::temporary("/v2/charges"), Redirect::permanent("/v2/charges")] {
        let routes = Router::new()
            .route("/charges", post(move || async move { redirect }))
            .route("/v2/charges", post(|| async { StatusCode::CREATED }))
            .route_layer(layer());
        let server = Server::start(routes).await;
        let first = send(&server, "/charges", "{}").await;
        assert!([307, 308].contains(&first.status), "{first:?}");
        assert_eq!(send(&server, first.header("location").unwrap(), "{}").await.status, 201);
        assert!(send(&server, "/v2/charges", "{}").await.is_replay());
        server.shut_down().await;
    }
}

/// The redirect after an effect. A redirect to a login page has the same status, and must be marked.
#[tokio::test]
async fn a_redirect_to_the_result_is_replayed_unless_it_is_marked() {
    let runs = Arc::<AtomicU32>::default();
    let counter = Arc::clone(&runs);
    let charge = move || async move {
        match counter.fetch_add(1, Ordering::SeqCst) {
            0 => Err((Extension(ResponseAction::Release), Redirect::to("/login"))),
            run => Ok::<_, (Extension<ResponseAction>, Redirect)>(Redirect::to(&format!("/charges/{run}"))),
        }
    };
    let server = start("/charges", charge).await;
    let locations = [("/login", false), ("/charges/1", false), ("/charges/1", true)];
    for (location, is_replay) in locations {
        let got = send(&server, "/charges", "{}").await;
        assert_eq!((got.status, got.header("location"), got.is_replay()), (303, Some(location), is_replay));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    server.shut_down().await;
}
