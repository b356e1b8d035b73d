//! Request bodies: read once for the fingerprint, and passed on unchanged.

use std::future::Future;
#[cfg(feature = "axum")]
use std::future::ready;

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full, LengthLimitError, Limited};

use crate::error::BoxError;

/// Why a body could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyProblem {
    /// The body is larger than the limit.
    TooLarge,
    /// The body could not be read to its end.
    Broken(BoxError),
}

/// A request body that can be read into bytes and passed on as the same type, so that text stays text.
///
/// Implemented for `Full<Bytes>`, `axum::body::Body` (feature `axum`) and `lambda_http::Body` (feature `http-lambda`). For your
/// own type, [collect](http_body_util::BodyExt::collect) the body and create a new one from the bytes. For a type of another
/// crate, such as `hyper::body::Incoming`, convert the body in an outer layer, for example with
/// [`ServiceBuilder::map_request`](https://docs.rs/tower/0.5/tower/builder/struct.ServiceBuilder.html#method.map_request).
pub trait RequestBody: Sized + Send + 'static {
    /// Returns the bytes, at most `limit` of them, and a body that yields the same bytes.
    fn read(self, limit: usize) -> impl Future<Output = Result<(Bytes, Self), BodyProblem>> + Send;
}

#[cfg(feature = "http-lambda")]
impl RequestBody for lambda_http::Body {
    async fn read(self, limit: usize) -> Result<(Bytes, Self), BodyProblem> {
        let bytes: &[u8] = &self;
        if bytes.len() > limit {
            return Err(BodyProblem::TooLarge);
        }
        Ok((Bytes::copy_from_slice(bytes), self))
    }
}

impl RequestBody for Full<Bytes> {
    async fn read(self, limit: usize) -> Result<(Bytes, Self), BodyProblem> {
        let bytes = collect(self, limit).await?.to_bytes();
        Ok((bytes.clone(), Self::new(bytes)))
    }
}

#[cfg(feature = "axum")]
impl RequestBody for axum::body::Body {
    async fn read(self, limit: usize) -> Result<(Bytes, Self), BodyProblem> {
        let collected = collect(self, limit).await?;
        let trailers = collected.trailers().cloned();
        let bytes = collected.to_bytes();
        let body = match trailers {
            None => Self::from(bytes.clone()),
            Some(trailers) => Self::new(Full::new(bytes.clone()).with_trailers(ready(Some(Ok(trailers))))),
        };
        Ok((bytes, body))
    }
}

async fn collect<B>(body: B, limit: usize) -> Result<Collected<B::Data>, BodyProblem>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected),
        Err(error) if error.is::<LengthLimitError>() => Err(BodyProblem::TooLarge),
        Err(error) => Err(BodyProblem::Broken(error)),
    }
}
