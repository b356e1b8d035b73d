//! Response bodies, which are passed through, buffered, or both if they exceed the cap or are not complete yet.

use std::{
    future::poll_fn,
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::response_stream::Stream;
use crate::error::BoxError;

pin_project! {
    /// The response body: the inner service's own, buffered bytes, or a refusal.
    ///
    /// It is `Send` and `Sync` if the inner body is. It fails if the inner body does, and if a [stream](super#streams) is
    /// cancelled.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        bytes: Bytes,
        trailers: Option<HeaderMap>,
        #[pin]
        rest: Option<Pin<Box<B>>>,
        stream: Option<Stream>,
    }
}

impl<B> ResponseBody<B> {
    /// Passes a body through.
    pub(super) fn passed(body: B) -> Self {
        Self { bytes: Bytes::new(), trailers: None, rest: Some(Box::pin(body)), stream: None }
    }

    /// Passes on the body of an operation that is still running.
    pub(super) fn streamed(stream: Stream) -> Self {
        Self { bytes: Bytes::new(), trailers: None, rest: None, stream: Some(stream) }
    }

    pub(super) fn of_bytes(bytes: Bytes) -> Self {
        Self::with_trailers(bytes, None)
    }

    pub(super) fn with_trailers(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { bytes, trailers, rest: None, stream: None }
    }

    /// The trailers of a whole body.
    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// The whole body; `None` if it exceeds the limit, or was not complete.
    pub(super) fn whole(&self) -> Option<&Bytes> {
        self.rest.is_none().then_some(&self.bytes)
    }
}

impl<B: Body<Data = Bytes>> ResponseBody<B> {
    /// Buffers a body of up to `limit` bytes. A longer body yields the buffered part, followed by the rest.
    pub(super) async fn read(body: B, limit: usize) -> Result<Self, B::Error> {
        Self::buffer(body, limit, true).await
    }

    /// Buffers the part of a body that is available immediately. A body that has more yields the buffered part, followed by
    /// the rest.
    pub(super) async fn read_ready(body: B, limit: usize) -> Result<Self, B::Error> {
        Self::buffer(body, limit, false).await
    }

    async fn buffer(body: B, limit: usize, waits: bool) -> Result<Self, B::Error> {
        let mut body = Box::pin(body);
        let (mut first, mut more) = (Bytes::new(), BytesMut::new());
        loop {
            let next = poll_fn(|context| match body.as_mut().poll_frame(context) {
                Poll::Pending if !waits => Poll::Ready(None),
                frame => frame.map(Some),
            });
            let frame = match next.await {
                Some(Some(frame)) => frame,
                Some(None) => break,
                None => return Ok(Self { rest: Some(body), ..Self::of_bytes(joined(first, more)) }),
            };
            let data = match frame?.into_data() {
                Ok(data) => data,
                Err(frame) => return Ok(Self::with_trailers(joined(first, more), frame.into_trailers().ok())),
            };
            // The first frame is often the only one, and is not copied.
            if first.is_empty() {
                first = data;
            } else {
                more.extend_from_slice(&data);
            }
            if first.len() + more.len() > limit {
                return Ok(Self { rest: Some(body), ..Self::of_bytes(joined(first, more)) });
            }
        }
        Ok(Self::of_bytes(joined(first, more)))
    }
}

fn joined(first: Bytes, more: BytesMut) -> Bytes {
    if more.is_empty() {
        return first;
    }
    let mut all = BytesMut::with_capacity(first.len() + more.len());
    all.extend_from_slice(&first);
    all.extend_from_slice(&more);
    all.freeze()
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        if let Some(stream) = this.stream {
            return stream.poll_frame(context);
        }
        if !this.bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(mem::take(this.bytes)))));
        }
        match this.rest.as_pin_mut() {
            Some(rest) => rest.poll_frame(context).map_err(Into::into),
            None => Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none()
            && self.bytes.is_empty()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        if self.stream.is_some() {
            return SizeHint::default();
        }
        let own = self.bytes.len() as u64;
        let Some(rest) = &self.rest else {
            // With an exact size, hyper sends `Content-Length`, which rules out trailers.
            let mut hint = SizeHint::with_exact(own);
            if self.trailers.is_some() {
                hint = SizeHint::new();
                hint.set_lower(own);
            }
            return hint;
        };
        let rest = rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(own));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(own));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt, StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    fn frames(frames: Vec<Frame<Bytes>>) -> impl Body<Data = Bytes, Error = Infallible> {
        StreamBody::new(stream::iter(frames.into_iter().map(Ok)))
    }

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn a_body_up_to_the_limit_is_read_whole_with_its_trailers() {
        let trailers: HeaderMap = [(http::header::ETAG, "\"e\"".parse().unwrap())].into_iter().collect();
        let body = frames(vec![data("a"), data(""), data("bcd"), Frame::trailers(trailers.clone())]);
        let read = ResponseBody::read(body, 4).await.unwrap();
        assert_eq!((read.whole().unwrap(), read.size_hint().lower()), (&Bytes::from("abcd"), 4));
        assert_eq!(read.size_hint().exact(), None, "trailers follow");
        let collected = read.collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "abcd");
    }

    #[tokio::test]
    async fn a_longer_body_is_passed_on_without_loss() {
        let read = ResponseBody::read(frames(vec![data("ab"), data("cd"), data("ef")]), 3).await.unwrap();
        assert_eq!((read.whole(), read.is_end_stream()), (None, false));
        assert_eq!(read.collect().await.unwrap().to_bytes(), "abcdef");
    }

    #[tokio::test]
    async fn of_a_body_that_is_not_complete_nothing_is_waited_for_and_nothing_lost() {
        let (go, gate) = tokio::sync::oneshot::channel::<()>();
        let late = stream::once(async move {
            let _ = gate.await;
            Ok::<_, Infallible>(data("cd"))
        });
        let body = StreamBody::new(stream::iter([Ok(data("ab"))]).chain(late).boxed());
        let read = ResponseBody::read_ready(body, 9).now_or_never().expect("it does not wait").unwrap();
        assert_eq!((read.whole(), read.is_end_stream()), (None, false));
        drop(go);
        assert_eq!(read.collect().await.unwrap().to_bytes(), "abcd");
        let read = ResponseBody::read_ready(frames(vec![data("ab"), data("cd")]), 9).await.unwrap();
        assert_eq!(read.whole().unwrap(), "abcd", "complete bodies are buffered");
    }

    #[tokio::test]
    async fn an_empty_body_has_ended() {
        let read = ResponseBody::read(frames(Vec::new()), 0).await.unwrap();
        assert!(read.is_end_stream());
        assert_eq!(read.whole(), Some(&Bytes::new()));
    }
}
