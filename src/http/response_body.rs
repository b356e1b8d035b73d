//! Response bodies: passed through, buffered, or both if they exceed the cap.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use pin_project_lite::pin_project;

pin_project! {
    /// The response body: the inner service's own, buffered bytes, or a refusal.
    ///
    /// It is `Send` and `Sync` where the inner body is.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        bytes: Bytes,
        trailers: Option<HeaderMap>,
        #[pin]
        rest: Option<Pin<Box<B>>>,
    }
}

impl<B> ResponseBody<B> {
    /// Passes a body through.
    pub(super) fn passed(body: B) -> Self {
        Self { bytes: Bytes::new(), trailers: None, rest: Some(Box::pin(body)) }
    }

    pub(super) fn of_bytes(bytes: Bytes) -> Self {
        Self::with_trailers(bytes, None)
    }

    pub(super) fn with_trailers(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { bytes, trailers, rest: None }
    }

    /// The trailers of a whole body.
    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// The whole body; `None` if it exceeds the limit.
    pub(super) fn whole(&self) -> Option<&Bytes> {
        self.rest.is_none().then_some(&self.bytes)
    }
}

impl<B: Body<Data = Bytes>> ResponseBody<B> {
    /// Buffers a body of up to `limit` bytes. A longer one yields what was buffered, followed by the rest.
    pub(super) async fn read(body: B, limit: usize) -> Result<Self, B::Error> {
        let mut body = Box::pin(body);
        let (mut first, mut more) = (Bytes::new(), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let data = match frame?.into_data() {
                Ok(data) => data,
                Err(frame) => {
                    let bytes = joined(first, more);
                    return Ok(Self { bytes, trailers: frame.into_trailers().ok(), rest: None });
                }
            };
            // The first frame is often the only one: it is not copied.
            if first.is_empty() {
                first = data;
            } else {
                more.extend_from_slice(&data);
            }
            if first.len() + more.len() > limit {
                return Ok(Self { bytes: joined(first, more), trailers: None, rest: Some(body) });
            }
        }
        Ok(Self { bytes: joined(first, more), trailers: None, rest: None })
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

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if !this.bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(mem::take(this.bytes)))));
        }
        match this.rest.as_pin_mut() {
            Some(rest) => rest.poll_frame(context),
            None => Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty() && self.trailers.is_none() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let own = self.bytes.len() as u64;
        let Some(rest) = &self.rest else {
            // An exact size has hyper send `Content-Length`, after which there are no trailers.
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

    use futures_util::stream;
    use http_body_util::StreamBody;

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
        let body = frames(vec![data("ab"), data(""), data("cd"), Frame::trailers(trailers.clone())]);
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
    async fn an_empty_body_has_ended() {
        let read = ResponseBody::read(frames(Vec::new()), 0).await.unwrap();
        assert!(read.is_end_stream());
        assert_eq!(read.whole(), Some(&Bytes::new()));
    }
}
