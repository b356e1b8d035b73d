//! Middleware and routers that rewrite the URI before the layer sees it.

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
use http::{Request, Response};
use lambda_once::http::{Caller, IdempotencyKeyLayer};
use serde_json::Value;
use tower::{Layer, ServiceExt, service_fn};

use crate::callers::Shape;

/// A service that rewrites the path of every request to `/accounts/{id}/charges`, with the id that `id_of` finds in it.
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
        let layer = IdempotencyKeyLayer::new(crate::setup::engine(), Caller::shared());
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
    async fn answer(&self, request: Request<Body>) -> (u16, Bytes, bool) {
        let (parts, body) = self.app.clone().oneshot(request).await.unwrap().into_parts();
        let is_replay = parts.headers.contains_key("idempotency-replayed");
        (parts.status.as_u16(), to_bytes(body, 10_000).await.unwrap(), is_replay)
    }

    /// Asserts that the second account cannot use the first account's key, and that the first account's retry is a replay.
    async fn keeps_accounts_apart(&self, request: impl Fn(&str) -> Request<Body>) {
        assert_eq!(self.answer(request("1")).await, (200, "account 1".into(), false));
        let (status, body, is_replay) = self.answer(request("2")).await;
        assert_eq!((status, is_replay), (422, false), "{body:?}");
        assert_eq!(self.answer(request("1")).await, (200, "account 1".into(), true));
        assert_eq!(self.runs.load(Ordering::SeqCst), 1);
    }
}

fn to(uri: &str, account: &str) -> Request<Body> {
    let request = Request::post(uri).header("idempotency-key", "k").header("x-account", account);
    request.body(Body::from("{}")).unwrap()
}

/// The request that `lambda_http` makes of an event.
fn in_lambda(event: &Value) -> Request<Body> {
    let (mut parts, body) = lambda_http::request::from_str(&event.to_string()).unwrap().into_parts();
    parts.extensions.insert(lambda_runtime::Context::default());
    Request::from_parts(parts, Body::from(body.to_vec()))
}

#[tokio::test(start_paused = true)]
async fn one_key_for_two_accounts_is_refused_if_the_query_moved_into_the_path() {
    let service = Rewriting::by(|request| request.uri().query().unwrap().strip_prefix("account=").unwrap());
    service.keeps_accounts_apart(|account| to(&format!("/pay?account={account}"), "")).await;
}

#[tokio::test(start_paused = true)]
async fn one_key_for_two_accounts_is_refused_if_a_header_moved_into_the_path() {
    let service = Rewriting::by(|request| request.headers()["x-account"].to_str().unwrap());
    service.keeps_accounts_apart(|account| to("/pay", account)).await;
}

#[tokio::test(start_paused = true)]
async fn in_lambda_one_key_is_refused_for_two_accounts_moved_into_the_path() {
    let service = Rewriting::by(|request| request.headers()["x-account"].to_str().unwrap());
    let request = |account: &str| {
        let mut event = Shape::HttpNone.event("", "k", "{}");
        event["rawPath"] = "/pay".into();
        event["requestContext"]["http"]["path"] = "/pay".into();
        event["headers"]["x-account"] = account.into();
        in_lambda(&event)
    };
    service.keeps_accounts_apart(request).await;
}

/// Sends a key from two accounts, and again from the first, to `/pay`, whose handler is behind a URI rewrite. Asserts that
/// the second account is refused, and that the first account's retry is a replay.
async fn keeps_accounts_apart(request: fn(&str) -> Request<Body>, rewrite: fn(&Request<Body>) -> String) {
    let charge = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let charge = IdempotencyKeyLayer::new(crate::setup::engine(), Caller::shared()).layer(charge);
    let rewrite = service_fn(move |mut request: Request<Body>| {
        *request.uri_mut() = rewrite(&request).parse().unwrap();
        let charge = charge.clone();
        async move { Ok::<_, Infallible>(charge.oneshot(request).await.unwrap().map(Body::new)) }
    });
    let app = Router::new().route_service("/pay", rewrite);
    let mut got = Vec::new();
    for account in ["1", "2", "1"] {
        let answer = app.clone().oneshot(request(account)).await.unwrap();
        got.push((answer.status().as_u16(), answer.headers().contains_key("idempotency-replayed")));
    }
    assert_eq!(got, [(200, false), (422, false), (200, true)]);
}

#[tokio::test(start_paused = true)]
async fn a_rewritten_query_counts_although_the_path_stays() {
    let rewrite =
        |request: &Request<Body>| format!("/pay?account={}", request.headers()["x-account"].to_str().unwrap());
    keeps_accounts_apart(|account| to("/pay", account), rewrite).await;
}

#[tokio::test(start_paused = true)]
async fn a_query_counts_as_the_client_sent_it_although_a_rewrite_drops_it() {
    keeps_accounts_apart(|account| to(&format!("/pay?account={account}"), ""), |_| "/charges".to_owned()).await;
    keeps_accounts_apart(|account| to(&format!("/pay?account={account}"), ""), |_| "/pay?x=1".to_owned()).await;
}

#[tokio::test(start_paused = true)]
async fn in_lambda_one_key_is_refused_for_two_accounts_moved_into_the_query() {
    for shape in [Shape::RestNone, Shape::HttpNone] {
        let layer = IdempotencyKeyLayer::new(crate::setup::engine(), Caller::authorizer().or_anonymous());
        let charge = service_fn(|request: Request<Body>| async move {
            Ok::<_, Infallible>(Response::new(Body::from(request.uri().query().unwrap().to_owned())))
        });
        let service = layer.layer(charge);
        let mut got = Vec::new();
        for account in ["1", "2", "1"] {
            let mut request = in_lambda(&shape.event("", "k", "{}"));
            let uri = format!("{}?account={account}", request.uri().path());
            *request.uri_mut() = uri.parse().unwrap();
            let answer = service.clone().oneshot(request).await.unwrap();
            got.push((answer.status().as_u16(), answer.headers().contains_key("idempotency-replayed")));
        }
        assert_eq!(got, [(200, false), (422, false), (200, true)], "{shape:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_lambda_one_key_is_refused_for_two_accounts_of_a_rewritten_address() {
    let layer = IdempotencyKeyLayer::new(crate::setup::engine(), Caller::authorizer().or_anonymous());
    let routes = Router::new()
        .route("/accounts/{id}/charges", post(|Path(id): Path<String>| async move { id }))
        .route_layer(layer);
    let mut got = Vec::new();
    for account in ["1", "2", "1"] {
        let mut request = in_lambda(&Shape::HttpNone.event("", "k", "{}"));
        *request.uri_mut() = format!("/accounts/{account}/charges").parse().unwrap();
        let answer = routes.clone().oneshot(request).await.unwrap();
        got.push((answer.status().as_u16(), answer.headers().contains_key("idempotency-replayed")));
    }
    assert_eq!(got, [(200, false), (422, false), (200, true)]);
}

/// The query of these events is a map, whose order differs from one parse to the next.
#[tokio::test(start_paused = true)]
async fn in_lambda_an_event_is_one_request_by_any_domain_and_nested_router() {
    const DEFAULT: &str = "a1b2c3d4e5.execute-api.us-east-1.amazonaws.com";
    let layer = IdempotencyKeyLayer::new(crate::setup::engine(), Caller::authorizer());
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
