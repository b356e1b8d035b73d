//! Services of axum that give a request another address before the layer sees it.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Path,
    routing::post,
};
use bytes::Bytes;
use http::Request;
use lambda_once::http::{IdempotencyKeyLayer, Scope};
use tower::{ServiceExt, service_fn};

use crate::callers::Shape;

/// A service with one address, at which it takes every request to its account's own: `/accounts/{id}/charges`. The account
/// is what `id_of` finds in the request.
struct Rewriting {
    app: Router,
    runs: Arc<AtomicUsize>,
}

impl Rewriting {
    fn by(id_of: fn(&Request<Body>) -> &str) -> Self {
        let runs = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&runs);
        let charge = move |Path(id): Path<String>| async move {
            counter.fetch_add(1, Ordering::SeqCst);
            format!("account {id}")
        };
        let layer = IdempotencyKeyLayer::new(crate::setup::engine(), Scope::shared());
        let routes = Router::new().route("/accounts/{id}/charges", post(charge)).route_layer(layer);
        let rewrite = service_fn(move |mut request: Request<Body>| {
            let path = format!("/accounts/{}/charges", id_of(&request));
            *request.uri_mut() = path.parse().unwrap();
            let routes = routes.clone();
            async move { Ok::<_, Infallible>(routes.oneshot(request).await.unwrap()) }
        });
        Self { app: Router::new().route_service("/pay", rewrite), runs }
    }

    /// The status, the body, and whether it is a replay.
    async fn send(&self, uri: &str, account: &str) -> (u16, Bytes, bool) {
        let request = Request::post(uri).header("idempotency-key", "k").header("x-account", account);
        self.answer(request.body(Body::from("{}")).unwrap()).await
    }

    async fn answer(&self, request: Request<Body>) -> (u16, Bytes, bool) {
        let (parts, body) = self.app.clone().oneshot(request).await.unwrap().into_parts();
        let is_replay = parts.headers.contains_key("idempotency-replayed");
        (parts.status.as_u16(), to_bytes(body, 10_000).await.unwrap(), is_replay)
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn one_key_for_two_accounts_is_refused_where_the_query_has_been_moved_into_the_path() {
    let service = Rewriting::by(|request| request.uri().query().unwrap().strip_prefix("account=").unwrap());
    assert_eq!(service.send("/pay?account=1", "").await, (200, "account 1".into(), false));
    let (status, body, is_replay) = service.send("/pay?account=2", "").await;
    assert_eq!((status, is_replay), (422, false), "{body:?}");
    assert_eq!(service.send("/pay?account=1", "").await, (200, "account 1".into(), true));
    assert_eq!(service.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_key_for_two_accounts_is_refused_where_a_header_has_been_moved_into_the_path() {
    let service = Rewriting::by(|request| request.headers()["x-account"].to_str().unwrap());
    assert_eq!(service.send("/pay", "1").await, (200, "account 1".into(), false));
    let (status, body, is_replay) = service.send("/pay", "2").await;
    assert_eq!((status, is_replay), (422, false), "{body:?}");
    assert_eq!(service.send("/pay", "1").await, (200, "account 1".into(), true));
    assert_eq!(service.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_key_for_two_accounts_is_refused_in_lambda_too_where_a_header_has_been_moved_into_the_path() {
    let service = Rewriting::by(|request| request.headers()["x-account"].to_str().unwrap());
    let of = |account: &str| {
        let mut event = Shape::HttpNone.event("", "k", "{}");
        event["rawPath"] = "/pay".into();
        event["requestContext"]["http"]["path"] = "/pay".into();
        event["headers"]["x-account"] = account.into();
        let (mut parts, body) = lambda_http::request::from_str(&event.to_string()).unwrap().into_parts();
        parts.extensions.insert(lambda_runtime::Context::default());
        Request::from_parts(parts, Body::from(body.to_vec()))
    };
    assert_eq!(service.answer(of("1")).await, (200, "account 1".into(), false));
    let (status, body, is_replay) = service.answer(of("2")).await;
    assert_eq!((status, is_replay), (422, false), "{body:?}");
    assert_eq!(service.answer(of("1")).await, (200, "account 1".into(), true));
    assert_eq!(service.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn in_lambda_one_key_for_two_accounts_is_refused_where_the_address_is_rewritten_before_any_router() {
    let layer = IdempotencyKeyLayer::new(crate::setup::engine(), Scope::authorizer().or_anonymous());
    let routes = Router::new()
        .route("/accounts/{id}/charges", post(|Path(id): Path<String>| async move { id }))
        .route_layer(layer);
    let mut got = Vec::new();
    for account in ["1", "2", "1"] {
        let event = Shape::HttpNone.event("", "k", "{}");
        let (mut parts, body) = lambda_http::request::from_str(&event.to_string()).unwrap().into_parts();
        parts.uri = format!("/accounts/{account}/charges").parse().unwrap();
        let request = Request::from_parts(parts, Body::from(body.to_vec()));
        let answer = routes.clone().oneshot(request).await.unwrap();
        got.push((answer.status().as_u16(), answer.headers().contains_key("idempotency-replayed")));
    }
    assert_eq!(got, [(200, false), (422, false), (200, true)]);
}

/// The query of these events is a map, whose order differs from one parse to the next.
#[tokio::test(start_paused = true)]
async fn in_lambda_an_event_is_one_request_through_nested_routers_however_often_it_comes_and_by_whichever_domain() {
    const DEFAULT: &str = "a1b2c3d4e5.execute-api.us-east-1.amazonaws.com";
    let layer = IdempotencyKeyLayer::new(crate::setup::engine(), Scope::authorizer());
    let routes = Router::new().route("/charges", post(|| async { "charged" })).route_layer(layer);
    let app = Router::new().nest("/live", routes);
    let text = std::fs::read_to_string("events/http-rest-v1.json").unwrap();
    let own_domain = text.replace("/live/charges", "/charges").replace(DEFAULT, "api.example.com");
    for delivery in 0..50 {
        let event = if delivery % 2 == 0 { &text } else { &own_domain };
        let (parts, body) = lambda_http::request::from_str(event).unwrap().into_parts();
        let answer = app.clone().oneshot(Request::from_parts(parts, Body::from(body.to_vec()))).await.unwrap();
        let is_replay = answer.headers().contains_key("idempotency-replayed");
        assert_eq!((answer.status().as_u16(), is_replay), (200, delivery > 0), "{delivery}");
    }
}
