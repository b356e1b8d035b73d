//! Responses that reach their clients frame by frame, while their operations are still running.
//!
//! The body of such a response is a part of the handler. It is read under the claim, which is settled once the body has
//! ended. The client gets the head first, then each frame, and the end of the body after the claim has been settled. The
//! client's body also drives the rest of the request, unless the request runs in its own task.

use std::{
    fmt,
    future::{Future, poll_fn, ready},
    pin::{Pin, pin},
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::Either;
use http::{HeaderMap, Response, header, response::Parts};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::sync::{mpsc, oneshot};

use super::ResponseBody;
use crate::{error::BoxError, future::BoxFuture};

/// Marks a response whose body is passed to the client as it arrives, by its extensions. The response is not stored, so a retry gets
/// 410 `response_not_stored` once the body has ended. `text/event-stream` needs no mark.
///
/// The operation is recorded when the body ends. Until then it holds its key, and all effects of the body are part of the
/// operation. See [Streams](super#streams).
///
/// ```
/// use lambda_once::http::StreamResponse;
///
/// let mut response = http::Response::builder().header("content-type", "application/x-ndjson").body(String::new())?;
/// response.extensions_mut().insert(StreamResponse);
/// # Ok::<(), http::Error>(())
/// ```
///
/// In axum: `(Extension(StreamResponse), body)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamResponse;

/// Returns whether the body of a response is passed on as it arrives, independent of its key.
pub(super) fn is_stream(response: &Parts) -> bool {
    let of_events = |value: &str| {
        value.split(';').next().is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("text/event-stream"))
    };
    response.extensions.get::<StreamResponse>().is_some()
        || response.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(of_events)
}

/// A frame, or the error at which the handler's body broke off.
type Read = Result<Frame<Bytes>, BoxError>;

/// Marks the response to a stream whose body has ended as it should. The response is given once the claim is settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled;

/// Opens the stream of one request, if it has one.
#[derive(Debug)]
pub(super) struct Opening(oneshot::Sender<(Parts, mpsc::Receiver<Read>)>);

/// Receives the stream, if it is opened.
#[derive(Debug)]
pub(super) struct Opened(oneshot::Receiver<(Parts, mpsc::Receiver<Read>)>);

impl Opening {
    pub(super) fn new() -> (Self, Opened) {
        let (opening, opened) = oneshot::channel();
        (Self(opening), Opened(opened))
    }

    /// Sends the head, then each frame of the body as it arrives, and returns the trailers. The body is read to its end,
    /// even after its client has left. An error is sent to the client and returned.
    pub(super) async fn pass<B>(self, head: Parts, body: B) -> Result<Option<HeaderMap>, ()>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let (frames, received) = mpsc::channel(1);
        let mut has_client = self.0.send((head, received)).is_ok();
        let (mut body, mut trailers) = (pin!(body), None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(Into::into);
            let is_broken = frame.is_err();
            if let Some(last) = frame.as_ref().ok().and_then(Frame::trailers_ref) {
                trailers = Some(last.clone());
            }
            has_client = has_client && frames.send(frame).await.is_ok();
            if is_broken {
                return Err(());
            }
        }
        Ok(trailers)
    }
}

impl Opened {
    /// Returns the response of a request, or the beginning of its stream.
    pub(super) async fn response<R, E>(
        mut self,
        mut served: BoxFuture<'static, Result<Response<ResponseBody<R>>, E>>,
    ) -> Result<Response<ResponseBody<R>>, E>
    where
        R: Send + 'static,
        E: Send + 'static,
    {
        let mut may_open = true;
        let first = poll_fn(|context| {
            if let Poll::Ready(answer) = served.as_mut().poll(context) {
                return Poll::Ready(match self.0.try_recv() {
                    // The request has ended as well.
                    Ok(opened) if may_open => Either::Right((opened, Some(answer))),
                    _ => Either::Left(answer),
                });
            }
            if may_open && let Poll::Ready(opened) = Pin::new(&mut self.0).poll(context) {
                may_open = false;
                if let Ok(opened) = opened {
                    return Poll::Ready(Either::Right((opened, None)));
                }
            }
            Poll::Pending
        })
        .await;
        let ((head, frames), answer) = match first {
            Either::Left(answer) => return answer,
            Either::Right(opened) => opened,
        };
        let end: BoxFuture<'static, _> = match answer {
            Some(answer) => Box::pin(ready(end_of(answer))),
            None => Box::pin(async move { end_of(served.await) }),
        };
        let stream = Stream { frames, end: Some(Mutex::new(end)), trailers: None, failure: None };
        Ok(Response::from_parts(head, ResponseBody::streamed(stream)))
    }
}

/// The end of a stream, by the response that its request would have without it.
fn end_of<R, E>(answer: Result<Response<R>, E>) -> Result<(), BoxError> {
    match answer {
        Ok(response) if response.extensions().get::<Settled>().is_some() => Ok(()),
        _ => Err("the response ends early, because its operation ended without an outcome".into()),
    }
}

/// The body of a stream, on the client's side.
pub(super) struct Stream {
    frames: mpsc::Receiver<Read>,
    /// The rest of the request, until it has ended. The lock makes it `Sync`, and is never taken.
    end: Option<Mutex<BoxFuture<'static, Result<(), BoxError>>>>,
    /// The trailers, sent once the claim is settled, because a server treats them as the end, and drops the body.
    trailers: Option<Frame<Bytes>>,
    /// The error at the end of the body, sent once the claim is settled, because a server drops a body that has failed.
    failure: Option<BoxError>,
}

impl Stream {
    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Read>> {
        if let Some(end) = &mut self.end
            && let Poll::Ready(ended) = end.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(context)
        {
            self.end = None;
            self.failure = self.failure.take().or(ended.err());
        }
        loop {
            match self.frames.poll_recv(context) {
                Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => self.trailers = Some(frame),
                Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(frame))),
                // The handler body's error comes first, because it is the cause of the other.
                Poll::Ready(Some(Err(error))) => self.failure = Some(error),
                Poll::Ready(None) if self.end.is_none() => {
                    let trailers = self.trailers.take();
                    return Poll::Ready(self.failure.take().map(Err).or(trailers.map(Ok)));
                }
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("has_ended", &self.end.is_none()).finish_non_exhaustive()
    }
}
