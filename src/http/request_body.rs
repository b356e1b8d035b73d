//! Request bodies, which are read once for the fingerprint and passed on unchanged.

use std::{
    convert::Infallible,
    future::{Future, ready},
    mem,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::{
    BodyExt, Full, LengthLimitError,
    combinators::{BoxBody, UnsyncBoxBody},
};
use tokio::time::{Instant, timeout_at};

use crate::{error::BoxError, idempotency::verdict::chain};

/// The reason that a body could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyProblem {
    /// The body is larger than the limit.
    TooLarge,
    /// It paused for longer than the idle timeout.
    TimedOut,
    /// The layer already holds its maximum number of body bytes.
    NoRoom,
    /// The body could not be read to its end.
    Broken(BoxError),
}

/// A request body that can be read into bytes and passed on as the same type, so that text stays text.
///
/// Implemented for `axum::body::Body` (feature `axum`), `lambda_http::Body` (feature `http-lambda`), and `Full<Bytes>`,
/// `BoxBody<Bytes, _>` and `UnsyncBoxBody<Bytes, _>` of `http-body-util`. Box a streaming body of another crate, such
/// as hyper's, in an outer layer:
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
/// use hyper::body::{Bytes, Incoming};
/// use lambda_once::http::IdempotencyKeyLayer;
/// use tower::{BoxError, ServiceBuilder, service_fn, util::BoxCloneService};
///
/// async fn charge(request: Request<UnsyncBoxBody<Bytes, hyper::Error>>) -> Result<Response<Full<Bytes>>, BoxError> {
///     let body = request.into_body().collect().await?.to_bytes();
///     Ok(Response::new(Full::new(body)))
/// }
///
/// # fn service(layer: IdempotencyKeyLayer) {
/// let service = ServiceBuilder::new()
///     .map_request(|request: Request<Incoming>| request.map(BodyExt::boxed_unsync))
///     .layer(layer)
///     .service(service_fn(charge));
/// # let _ = BoxCloneService::new(service);
/// # }
/// ```
///
/// For a custom type, let the [reader](BodyReader::read) read the body, and create a new one from the bytes.
pub trait RequestBody: Sized + Send + 'static {
    /// Returns the bytes, at most [`max_bytes`](BodyReader::max_bytes) of them, and a body that yields the same bytes.
    fn read(self, reader: &mut BodyReader) -> impl Future<Output = Result<(Bytes, Self), BodyProblem>> + Send;
}

#[cfg(feature = "http-lambda")]
impl RequestBody for lambda_http::Body {
    async fn read(self, reader: &mut BodyReader) -> Result<(Bytes, Self), BodyProblem> {
        // The event is in memory already.
        let bytes: &[u8] = &self;
        if bytes.len() > reader.max_bytes() {
            return Err(BodyProblem::TooLarge);
        }
        Ok((Bytes::copy_from_slice(bytes), self))
    }
}

impl RequestBody for Full<Bytes> {
    async fn read(self, reader: &mut BodyReader) -> Result<(Bytes, Self), BodyProblem> {
        let (bytes, _) = reader.read(self).await?;
        Ok((bytes.clone(), Self::new(bytes)))
    }
}

#[cfg(feature = "axum")]
impl RequestBody for axum::body::Body {
    async fn read(self, reader: &mut BodyReader) -> Result<(Bytes, Self), BodyProblem> {
        let (bytes, trailers) = reader.read(self).await?;
        let body = match trailers {
            None => Self::from(bytes.clone()),
            trailers => Self::new(whole::<Infallible>(bytes.clone(), trailers)),
        };
        Ok((bytes, body))
    }
}

impl<E: Into<BoxError> + Send + 'static> RequestBody for UnsyncBoxBody<Bytes, E> {
    async fn read(self, reader: &mut BodyReader) -> Result<(Bytes, Self), BodyProblem> {
        let (bytes, trailers) = reader.read(self).await?;
        let body = Self::new(whole(bytes.clone(), trailers));
        Ok((bytes, body))
    }
}

impl<E: Into<BoxError> + Send + 'static> RequestBody for BoxBody<Bytes, E> {
    async fn read(self, reader: &mut BodyReader) -> Result<(Bytes, Self), BodyProblem> {
        let (bytes, trailers) = reader.read(self).await?;
        let body = whole(bytes.clone(), trailers);
        Ok((bytes, body))
    }
}

/// Returns a body of these bytes and trailers.
fn whole<E: 'static>(bytes: Bytes, trailers: Option<HeaderMap>) -> BoxBody<Bytes, E> {
    let body = Full::new(bytes);
    match trailers {
        None => body.map_err(never).boxed(),
        Some(trailers) => body.with_trailers(ready(Some(Ok(trailers)))).map_err(never).boxed(),
    }
}

fn never<E>(error: Infallible) -> E {
    match error {}
}

/// The bytes of request bodies that a layer holds.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) max_bytes: usize,
    held: Arc<AtomicUsize>,
}

impl Room {
    pub(super) fn of(max_bytes: usize) -> Self {
        Self { max_bytes, held: Arc::default() }
    }

    fn take(&self, bytes: usize) -> Result<(), BodyProblem> {
        let add = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.max_bytes);
        let added = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.map(drop).map_err(|_| BodyProblem::NoRoom)
    }
}

/// Reads a request body within the limits of the layer:
/// [`max_body`](super::IdempotencyKeyLayer::max_body), [`max_buffered`](super::IdempotencyKeyLayer::max_buffered) and
/// [`body_idle_timeout`](super::IdempotencyKeyLayer::body_idle_timeout).
#[derive(Debug)]
pub struct BodyReader {
    max_bytes: usize,
    idle_timeout: Duration,
    room: Room,
    /// The bytes that it has reserved, until it is dropped.
    taken: usize,
}

impl BodyReader {
    pub(super) fn new(max_bytes: usize, idle_timeout: Duration, room: Room) -> Self {
        Self { max_bytes, idle_timeout, room, taken: 0 }
    }

    /// The largest body, in bytes.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Returns the bytes of a body, and its trailers.
    ///
    /// # Errors
    ///
    /// Returns an error if the body is too large, pauses for too long or breaks off, or if the layer holds too many bytes.
    pub async fn read<B>(&mut self, body: B) -> Result<(Bytes, Option<HeaderMap>), BodyProblem>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let mut body = pin!(body);
        if body.size_hint().lower() > self.max_bytes as u64 {
            return Err(BodyProblem::TooLarge);
        }
        let (mut first, mut more) = (Bytes::new(), BytesMut::new());
        let mut idle_until = self.idle_until();
        loop {
            let frame = match idle_until {
                Some(until) => timeout_at(until, body.frame()).await.map_err(|_| BodyProblem::TimedOut)?,
                None => body.frame().await,
            };
            let Some(frame) = frame else { break };
            let data = match frame.map_err(|error| problem_of(error.into()))?.into_data() {
                Ok(data) => data,
                Err(frame) => return Ok((joined(first, more), frame.into_trailers().ok())),
            };
            if data.is_empty() {
                continue;
            }
            idle_until = self.idle_until();
            if data.len() > self.max_bytes - self.taken {
                return Err(BodyProblem::TooLarge);
            }
            self.room.take(data.len())?;
            self.taken += data.len();
            // The first frame is often the only one, and is not copied.
            if first.is_empty() && more.is_empty() {
                first = data;
            } else {
                more.extend_from_slice(&mem::take(&mut first));
                more.extend_from_slice(&data);
            }
        }
        Ok((joined(first, more), None))
    }

    fn idle_until(&self) -> Option<Instant> {
        Instant::now().checked_add(self.idle_timeout)
    }
}

impl Drop for BodyReader {
    fn drop(&mut self) {
        self.room.held.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

fn joined(first: Bytes, more: BytesMut) -> Bytes {
    if more.is_empty() { first } else { more.freeze() }
}

/// An outer layer may limit bodies too, and other layers wrap its error.
fn problem_of(error: BoxError) -> BodyProblem {
    if chain(&*error).any(|error| error.is::<LengthLimitError>()) {
        BodyProblem::TooLarge
    } else {
        BodyProblem::Broken(error)
    }
}
