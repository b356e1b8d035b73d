//! The `tower` service.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use tower_service::Service;

use super::{RequestBody, ResponseBody, exchange, settings::LayerSettings};
use crate::{error::BoxError, future::BoxFuture};

/// The service that [`IdempotencyKeyLayer`](super::IdempotencyKeyLayer) creates.
///
/// The inner request has the [`Claim`](crate::Claim) among its extensions, unless it passes through unprotected.
#[derive(Clone)]
pub struct IdempotencyKeyService<S> {
    pub(super) inner: S,
    pub(super) settings: Arc<LayerSettings>,
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyKeyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKeyService").field("inner", &self.inner).field("settings", &self.settings).finish()
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyKeyService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: RequestBody,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    /// Returns ready always, because replays do not need the inner service, and others wait for it once their bodies have
    /// been read.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(exchange::answer(Arc::clone(&self.settings), self.inner.clone(), request))
    }
}
