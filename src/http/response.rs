//! Answers: as they are stored, and as they are given.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use serde::{Deserialize, Serialize};

pin_project! {
    /// The body of an answer: the inner service's own, passed through, or bytes that are stored or were.
    ///
    /// It is `Send` and `Sync` where the inner body is.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<B> {
        Passed { #[pin] body: B },
        Replayed { bytes: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn passed(body: B) -> Self {
        Self { kind: Kind::Passed { body } }
    }

    pub(super) fn replayed(bytes: Bytes) -> Self {
        Self { kind: Kind::Replayed { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) } }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProjection::Passed { body } => body.poll_frame(context),
            KindProjection::Replayed { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Passed { body } => body.is_end_stream(),
            Kind::Replayed { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Passed { body } => body.size_hint(),
            Kind::Replayed { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}

/// An answer as it is stored.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredResponse {
    status: u16,
    /// Values may be any bytes: each is one character here.
    headers: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// For bodies that are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl StoredResponse {
    pub(super) fn new(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Self {
        let kept = headers.iter().filter(|(name, _)| is_stored(name));
        let headers = kept.map(|(name, value)| {
            (name.as_str().to_owned(), value.as_bytes().iter().map(|&byte| char::from(byte)).collect())
        });
        let (text, base64) = match std::str::from_utf8(body) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(BASE64.encode(body))),
        };
        Self { status: status.as_u16(), headers: headers.collect(), text, base64 }
    }

    /// `None` if what is stored is not an answer.
    pub(super) fn into_response<B>(self) -> Option<Response<ResponseBody<B>>> {
        let body = match (self.text, self.base64) {
            (Some(text), _) => Bytes::from(text),
            (None, Some(base64)) => Bytes::from(BASE64.decode(base64).ok()?),
            (None, None) => Bytes::new(),
        };
        let mut response = Response::new(ResponseBody::replayed(body));
        *response.status_mut() = StatusCode::from_u16(self.status).ok()?;
        for (name, value) in self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            let value: Vec<u8> = value.chars().map(|character| u8::try_from(character).ok()).collect::<Option<_>>()?;
            response.headers_mut().append(name, HeaderValue::from_bytes(&value).ok()?);
        }
        Some(response)
    }
}

/// Whether a header belongs to the answer, and not to one exchange of it.
fn is_stored(name: &HeaderName) -> bool {
    const NOT_STORED: [&str; 16] = [
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "set-cookie",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-amz-apigw-id",
        "x-amzn-requestid",
        "x-amzn-trace-id",
    ];
    let name = name.as_str();
    !NOT_STORED.contains(&name) && !name.starts_with("access-control-")
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    async fn replay(status: u16, headers: &[(&'static str, &[u8])], body: &[u8]) -> Response<Bytes> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap()));
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| {
            map.append(name, value);
        });
        let stored = StoredResponse::new(StatusCode::from_u16(status).unwrap(), &map, &Bytes::copy_from_slice(body));
        let text = serde_json::to_string(&stored).unwrap();
        let stored: StoredResponse = serde_json::from_str(&text).unwrap();
        let (parts, body) = stored.into_response::<Full<Bytes>>().unwrap().into_parts();
        Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
    }

    #[tokio::test]
    async fn an_answer_comes_back_byte_for_byte() {
        for body in [&b"{\"a\": 1}\n"[..], b"", b"\xff\x00\xfe", "é😀".as_bytes()] {
            let headers: &[(_, &[u8])] = &[("x-a", b"1"), ("x-a", b"2"), ("x-raw", b"\xff\xe9"), ("etag", b"\"e\"")];
            let response = replay(201, headers, body).await;
            assert_eq!(response.status(), 201);
            assert_eq!(&response.body()[..], body);
            let found: Vec<_> =
                response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
            assert_eq!(found, headers);
        }
    }

    #[tokio::test]
    async fn headers_of_one_exchange_are_not_stored() {
        let headers: &[(_, &[u8])] = &[
            ("set-cookie", b"session=1"),
            ("date", b"x"),
            ("access-control-allow-origin", b"*"),
            ("transfer-encoding", b"chunked"),
            ("x-amzn-trace-id", b"x"),
            ("content-type", b"text/plain"),
        ];
        let response = replay(200, headers, b"").await;
        assert_eq!(response.headers().keys().collect::<Vec<_>>(), ["content-type"]);
    }
}
