//! Uses of the layer that must compile.

use http::{Request, Response};
use lambda_http::{Body, service_fn};
use lambda_once::http::{Caller, IdempotencyKeyLayer, IdempotencyKeyService, ResponseBody};
use tower::ServiceBuilder;

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(crate::setup::engine(), Caller::authorizer())
}

async fn handler(_: Request<Body>) -> Result<Response<Body>, lambda_http::Error> {
    Ok(Response::new(Body::Empty))
}

/// Never called, because it only has to compile.
#[allow(dead_code)]
async fn lambda_http_runs_it_one_by_one_and_concurrently() -> Result<(), lambda_http::Error> {
    let service = || ServiceBuilder::new().layer(layer()).service(service_fn(handler));
    lambda_http::run(service()).await?;
    lambda_http::run_concurrent(service()).await
}

/// Never called, because it only has to compile. (`run_concurrent` needs `Sync` responses, and axum's never are.)
#[allow(dead_code)]
async fn lambda_http_runs_axum_behind_it() -> Result<(), lambda_http::Error> {
    let app = axum::Router::new().route("/", axum::routing::post(|| async {})).layer(layer());
    lambda_http::run(app).await
}

/// Never called, because it only has to compile.
#[allow(dead_code)]
async fn lambda_http_streams_its_responses() -> Result<(), lambda_http::Error> {
    lambda_http::run_with_streaming_response(ServiceBuilder::new().layer(layer()).service(service_fn(handler))).await
}

#[test]
fn it_crosses_threads() {
    fn crosses<T: Clone + Send + Sync + 'static>() {}
    fn answers<T: Send + Sync>() {}
    crosses::<IdempotencyKeyLayer>();
    crosses::<IdempotencyKeyService<axum::Router>>();
    crosses::<Caller>();
    answers::<Response<ResponseBody<Body>>>();
}
