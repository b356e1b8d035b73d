//! Gives up requests whose clients disconnected while a queue held them back.

use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use http::{Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::{ResponseAction, in_flight::Client};

/// Gives up a request whose client disconnected before its handler began. For handlers behind a queue, such as a concurrency
/// limit.
///
/// [`IdempotencyKeyLayer`](super::IdempotencyKeyLayer) gives up such a request by itself, unless a service between the
/// layer and the handler holds it back. In that case the layer cannot determine whether the handler has begun, and [lets
/// the request continue](super::IdempotencyKeyLayer::run_to_completion). Put this layer between the queue and the handler.
/// When an abandoned request leaves the queue, its claim is released, and the handler does not run.
///
/// A queue whose `poll_ready` waits, such as `tower::limit::ConcurrencyLimit`, needs no `GiveUpLayer` if it is in one
/// `tower::ServiceBuilder` with the layer, directly inside it. The layer waits for it before it claims the operation.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{Router, routing::post};
/// use lambda_once::http::{GiveUpLayer, IdempotencyKeyLayer};
/// # use tower_layer::Identity as Queue;
///
/// # async fn charge() {}
/// # fn app(layer: IdempotencyKeyLayer, queue: Queue) -> Router {
/// // The last one is the outermost.
/// let charge = post(charge).route_layer(GiveUpLayer::new()).route_layer(queue).route_layer(layer);
/// Router::new().route("/charges", charge)
/// # }
/// # }
/// ```
///
/// Has no effect without an [`IdempotencyKeyLayer`](super::IdempotencyKeyLayer) around it.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct GiveUpLayer;

impl GiveUpLayer {
    /// The layer.
    pub const fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for GiveUpLayer {
    type Service = GiveUpService<S>;

    fn layer(&self, inner: S) -> GiveUpService<S> {
        GiveUpService { inner }
    }
}

/// The service that [`GiveUpLayer`] makes.
#[derive(Clone, Debug)]
pub struct GiveUpService<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for GiveUpService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Default,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response<R>, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !request.extensions().get::<Client>().is_some_and(Client::gives_up) {
            return Either::Left(self.inner.call(request));
        }
        // The client has left, so the response is never read.
        let mut response = Response::new(R::default());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.extensions_mut().insert(ResponseAction::Release);
        Either::Right(ready(Ok(response)))
    }
}
