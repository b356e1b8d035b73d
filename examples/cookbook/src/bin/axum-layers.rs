//! A service with authentication, CORS, limits, timeouts and a graceful shutdown, each in its place around the layer.

use std::time::Duration;

use axum::{
    Extension, Router,
    extract::Request,
    http::{HeaderName, Method, StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::post,
};
use lambda_once::{
    Idempotency, PostgresStore,
    http::{Caller, IdempotencyKeyLayer, InFlight},
};
use tower_http::{
    cors::{Any, CorsLayer},
    limit::RequestBodyLimitLayer,
    timeout::TimeoutLayer,
};

const MAX_BODY: usize = 64 * 1024;
const MAX_CHARGES: usize = 64;
const RESPOND_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct User(String);

/// Stands in for a verified token.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(user) = token.and_then(|token| token.strip_prefix("Bearer ")).map(|user| User(user.to_owned())) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    request.extensions_mut().insert(user);
    next.run(request).await
}

async fn charge(Extension(User(user)): Extension<User>, body: String) -> (StatusCode, String) {
    tokio::time::sleep(Duration::from_millis(body.parse().unwrap_or(0))).await;
    (StatusCode::CREATED, format!("charged to {user}"))
}

fn cors() -> CorsLayer {
    let key = HeaderName::from_static("idempotency-key");
    let of_layer = ["idempotency-replayed", "idempotency-unprotected", "original-request"].map(HeaderName::from_static);
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::POST])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, key])
        .expose_headers(of_layer.into_iter().chain([header::RETRY_AFTER]).collect::<Vec<_>>())
}

/// Each layer is outside the layers above it.
fn app(once: Idempotency) -> Result<(Router, InFlight), lambda_once::Error> {
    let caller = Caller::from_fn(|parts| parts.extensions.get::<User>().map(|User(user)| user.clone()));
    // A limit around the layer would not count handlers whose clients have left.
    let layer = IdempotencyKeyLayer::new(once, caller).max_in_flight(MAX_CHARGES).validate()?;
    let in_flight = layer.in_flight();
    let app = Router::new()
        .route("/charges", post(charge))
        // On the route, so that an unknown path stays a 404.
        .route_layer(layer)
        // The client gets 408 and may send the request again, while the charge continues.
        .route_layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, RESPOND_WITHIN))
        .route_layer(from_fn(authenticate))
        .layer(RequestBodyLimitLayer::new(MAX_BODY))
        // Outermost, because it responds to preflights, which have no key, and adds its headers to every refusal.
        .layer(cors());
    Ok((app, in_flight))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let once = Idempotency::builder(PostgresStore::from_env()?).scope("charges").build()?;
    let (app, in_flight) = app(once)?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let stopped = async move {
        terminate.recv().await;
    };
    let listener = tokio::net::TcpListener::bind("0.0.0.0:8080").await?;
    axum::serve(listener, app).with_graceful_shutdown(stopped).await?;
    // Waits for charges whose clients have left. The process needs enough time to stop.
    in_flight.drain().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt as _;
    use lambda_once::testing;
    use tower::ServiceExt as _;

    use super::*;

    fn request(user: &str, key: &str, body: &str) -> Request {
        Request::post("/charges")
            .header("origin", "https://shop.example")
            .header("authorization", user)
            .header("idempotency-key", key)
            .header("content-length", body.len())
            .body(Body::from(body.to_owned()))
            .expect("a request")
    }

    /// The status, and the `code` of a problem.
    async fn sent(app: &Router, request: Request) -> (u16, String) {
        let response = app.clone().oneshot(request).await.expect("a response");
        assert_eq!(response.headers()["access-control-allow-origin"], "*");
        let status = response.status().as_u16();
        let is_replay = response.headers().contains_key("idempotency-replayed");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        (status, if is_replay { "replay".into() } else { problem["code"].as_str().unwrap_or_default().to_owned() })
    }

    #[tokio::test]
    async fn a_request_rejected_outside_the_layer_claims_no_key() {
        let (app, _) = app(testing::engine()).expect("valid settings");
        assert_eq!(sent(&app, request("", "k", "0")).await, (401, String::new()));
        assert_eq!(sent(&app, request("Bearer alice", "k", &"0".repeat(MAX_BODY + 1))).await, (413, String::new()));
        assert_eq!(sent(&app, request("Bearer alice", "k", "0")).await, (201, String::new()));
        assert_eq!(sent(&app, request("Bearer alice", "k", "0")).await, (201, "replay".into()));
        assert_eq!(sent(&app, request("Bearer bob", "k", "0")).await, (201, String::new()));
        let unknown = app.clone().oneshot(Request::post("/other").body(Body::empty()).expect("a request")).await;
        assert_eq!(unknown.expect("a response").status(), 404);
    }

    #[tokio::test]
    async fn a_page_of_another_origin_can_read_the_headers_of_the_layer() {
        let (app, _) = app(testing::engine()).expect("valid settings");
        let response = app.oneshot(request("Bearer alice", "k", "0")).await.expect("a response");
        assert_eq!(
            response.headers()["access-control-expose-headers"],
            "idempotency-replayed,idempotency-unprotected,original-request,retry-after"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_timeout_the_charge_continues_and_its_retry_gets_the_response() {
        let (app, in_flight) = app(testing::engine()).expect("valid settings");
        let slow = || request("Bearer alice", "k", "15000");
        assert_eq!(sent(&app, slow()).await, (408, String::new()));
        assert_eq!(sent(&app, slow()).await, (409, "in_progress".into()));
        in_flight.drain().await;
        assert_eq!(sent(&app, slow()).await, (201, "replay".into()));
    }

    #[tokio::test(start_paused = true)]
    async fn charges_without_a_client_count_towards_the_limit() {
        let (app, in_flight) = app(testing::engine()).expect("valid settings");
        let charges = (0..MAX_CHARGES).map(|number| {
            let (app, request) = (app.clone(), request("Bearer alice", &format!("k-{number}"), "20000"));
            tokio::spawn(async move { sent(&app, request).await })
        });
        for charge in charges.collect::<Vec<_>>() {
            assert_eq!(charge.await.expect("no panic"), (408, String::new()));
        }
        assert_eq!(in_flight.count(), MAX_CHARGES);
        assert_eq!(sent(&app, request("Bearer alice", "k", "0")).await, (503, "overloaded".into()));
        in_flight.drain().await;
        assert_eq!(sent(&app, request("Bearer alice", "k", "0")).await, (201, String::new()));
    }
}
