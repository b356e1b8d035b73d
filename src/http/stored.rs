//! Stored responses.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::{Deserialize, Serialize};

/// A stored response, as [`before_replay`](super::IdempotencyKeyLayer::before_replay) gets it.
#[derive(Clone, Debug)]
pub struct StoredResponse {
    pub(super) response: Response<Bytes>,
    pub(super) trailers: Option<HeaderMap>,
    body_is_kept: bool,
}

impl StoredResponse {
    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns the stored headers, with `Original-Request` if the id of the request is known.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the stored trailers, or `None` if there are none.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// Returns the body, or `None` if it is not kept because it was too large, or under
    /// [`Results::Discard`](crate::Results::Discard). In that case the client gets only the status, and the `Location` of a
    /// response that was too large, with a 410.
    pub fn body(&self) -> Option<&Bytes> {
        self.body_is_kept.then_some(self.response.body())
    }
}

/// Selects the headers of a response that are stored.
#[derive(Clone, Debug, Default)]
pub(super) struct HeaderPolicy {
    /// The headers to store, if they are listed.
    pub(super) only: Option<Vec<HeaderName>>,
    pub(super) stored: Vec<HeaderName>,
    pub(super) dropped: Vec<HeaderName>,
}

/// Headers that are never stored: hop-by-hop and framing headers, and credentials, which do not belong in a response.
const NEVER_STORED: [HeaderName; 11] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Names the request whose response is replayed.
pub(super) const ORIGINAL_REQUEST: HeaderName = HeaderName::from_static("original-request");

/// Headers of one exchange, such as time, session, trace, request ids and rate limits.
const OF_THE_EXCHANGE: [&str; 31] = [
    "age",
    "alt-svc",
    "authentication-info",
    "b3",
    "cf-ray",
    "date",
    "original-request",
    "proxy-authentication-info",
    "ratelimit",
    "request-id",
    "server-timing",
    "set-cookie",
    "traceparent",
    "traceresponse",
    "tracestate",
    "via",
    "x-amz-apigw-id",
    "x-amz-cf-id",
    "x-amz-id-2",
    "x-amz-request-id",
    "x-amzn-remapped-date",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-csrf-token",
    "x-datadog-trace-id",
    "x-envoy-upstream-service-time",
    "x-request-id",
    "x-response-time",
    "x-runtime",
];

const OF_THE_EXCHANGE_BEGIN_WITH: [&str; 4] = ["ratelimit-", "x-b3-", "x-ratelimit-", "x-rate-limit-"];

impl HeaderPolicy {
    /// Returns whether a header of the response is stored.
    fn keeps(&self, name: &HeaderName, value: &HeaderValue) -> bool {
        match &self.only {
            Some(only) if !self.stored.contains(name) => !self.drops(name) && only.contains(name),
            _ => self.keeps_trailer(name, value),
        }
    }

    /// Returns whether a trailer is stored. A list of the only headers does not count, because the status of gRPC is a
    /// trailer.
    fn keeps_trailer(&self, name: &HeaderName, value: &HeaderValue) -> bool {
        if self.drops(name) {
            return false;
        }
        if self.stored.contains(name) {
            return true;
        }
        let text = name.as_str();
        if text.starts_with("access-control-") {
            // Any other value was chosen for the origin of the first request.
            return value == "*";
        }
        !OF_THE_EXCHANGE.contains(&text) && !OF_THE_EXCHANGE_BEGIN_WITH.iter().any(|prefix| text.starts_with(prefix))
    }

    fn drops(&self, name: &HeaderName) -> bool {
        NEVER_STORED.contains(name) || self.dropped.contains(name)
    }
}

/// The stored form of a response.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredForm {
    /// The status of a retry: 410 if the body is not kept.
    status: u16,
    /// The status of the original response, if the body is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered: Option<u16>,
    /// The names and values. Values may be any bytes, and each byte is one character here.
    headers: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The body, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    trailers: Vec<(String, String)>,
}

impl StoredForm {
    pub(super) fn new(
        status: StatusCode,
        headers: &HeaderMap,
        body: &Bytes,
        trailers: Option<&HeaderMap>,
        policy: &HeaderPolicy,
    ) -> Self {
        let trailers = trailers.into_iter().flatten().filter(|(name, value)| policy.keeps_trailer(name, value));
        let trailers: Vec<_> = trailers.map(stored).collect();
        // HTTP/1.1 sends the trailers that this header announces.
        let announces = |name: &HeaderName| !trailers.is_empty() && *name == header::TRAILER;
        let kept = headers.iter().filter(|(name, value)| {
            (policy.keeps(name, value) || announces(name)) && !is_named_by_connection(headers, name)
        });
        let headers = kept.map(stored).collect();
        let (text, base64) = match std::str::from_utf8(body) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(BASE64.encode(body))),
        };
        Self { status: status.as_u16(), answered: None, headers, text, base64, trailers }
    }

    /// Returns the form of a response whose body is too large: its status and `Location`.
    pub(super) fn without_body(status: StatusCode, headers: &HeaderMap, policy: &HeaderPolicy) -> Self {
        let location = headers.get(header::LOCATION).map(|value| (&header::LOCATION, value));
        let headers = location.filter(|(name, value)| policy.keeps(name, value)).map(stored).into_iter().collect();
        Self { headers, ..Self::of_status(status) }
    }

    /// Adds the id of the request that ran.
    pub(super) fn of_request(mut self, id: Option<&HeaderValue>, policy: &HeaderPolicy) -> Self {
        let id = id.filter(|_| !policy.drops(&ORIGINAL_REQUEST)).map(|id| stored((&ORIGINAL_REQUEST, id)));
        self.headers.extend(id);
        self
    }

    /// Returns the form of a response with only its status.
    pub(super) fn of_status(status: StatusCode) -> Self {
        Self {
            status: StatusCode::GONE.as_u16(),
            answered: Some(status.as_u16()),
            headers: Vec::new(),
            text: None,
            base64: None,
            trailers: Vec::new(),
        }
    }

    /// Returns `None` if the stored data is not a response.
    pub(super) fn into_response(self) -> Option<StoredResponse> {
        let body = match (self.text, self.base64) {
            (Some(text), _) => Bytes::from(text),
            (None, Some(base64)) => Bytes::from(BASE64.decode(base64).ok()?),
            (None, None) => Bytes::new(),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.answered.unwrap_or(self.status)).ok()?;
        *response.headers_mut() = restored(self.headers)?;
        let trailers = restored(self.trailers)?;
        let trailers = (!trailers.is_empty()).then_some(trailers);
        Some(StoredResponse { response, trailers, body_is_kept: self.answered.is_none() })
    }
}

fn restored(stored: Vec<(String, String)>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in stored {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let value: Vec<u8> = value.chars().map(|character| u8::try_from(character).ok()).collect::<Option<_>>()?;
        headers.try_append(name, HeaderValue::from_bytes(&value).ok()?).ok()?;
    }
    Some(headers)
}

fn stored((name, value): (&HeaderName, &HeaderValue)) -> (String, String) {
    (name.as_str().to_owned(), value.as_bytes().iter().map(|&byte| char::from(byte)).collect())
}

/// Whether `Connection` names this header, which makes it hop-by-hop (RFC 9110, section 7.6.1).
fn is_named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(policy: &HeaderPolicy, status: u16, headers: &[(&'static str, &[u8])], body: &[u8]) -> StoredResponse {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        let stored = StoredForm::new(status, &map, &Bytes::copy_from_slice(body), None, policy);
        let stored: StoredForm = serde_json::from_str(&serde_json::to_string(&stored).unwrap()).unwrap();
        stored.into_response().unwrap()
    }

    fn names(response: &StoredResponse) -> Vec<&str> {
        response.headers().keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn a_stored_response_is_replayed_byte_for_byte() {
        for body in [&b"{\"a\": 1}\n"[..], b"", b"\xff\x00\xfe", "é😀".as_bytes()] {
            let headers: &[(_, &[u8])] = &[("x-a", b"1"), ("x-a", b"2"), ("x-raw", b"\xff\xe9"), ("etag", b"\"e\"")];
            let response = replay(&HeaderPolicy::default(), 201, headers, body);
            assert_eq!((response.status().as_u16(), &response.body().unwrap()[..]), (201, body));
            let found: Vec<_> =
                response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
            assert_eq!(found, headers);
        }
    }

    #[test]
    fn headers_of_one_exchange_are_not_stored() {
        let headers: &[(_, &[u8])] = &[
            ("set-cookie", b"session=1"),
            ("date", b"x"),
            ("transfer-encoding", b"chunked"),
            ("connection", b"close, X-Hop"),
            ("x-hop", b"1"),
            ("x-amzn-trace-id", b"x"),
            ("x-request-id", b"x"),
            ("x-ratelimit-remaining", b"9"),
            ("original-request", b"x"),
            ("authentication-info", b"x"),
            ("proxy-authentication-info", b"x"),
            ("proxy-connection", b"close"),
            ("traceresponse", b"x"),
            ("x-amz-request-id", b"x"),
            ("x-amz-id-2", b"x"),
            ("x-datadog-trace-id", b"x"),
            ("x-runtime", b"0.1"),
            ("x-envoy-upstream-service-time", b"1"),
            ("x-csrf-token", b"x"),
            ("retry-after", b"5"),
            ("vary", b"Accept"),
            ("content-encoding", b"gzip"),
            ("content-type", b"text/plain"),
        ];
        let response = replay(&HeaderPolicy::default(), 200, headers, b"");
        assert_eq!(names(&response), ["retry-after", "vary", "content-encoding", "content-type"]);
    }

    #[test]
    fn the_header_that_announces_trailers_is_stored_with_them_only() {
        let headers = [(header::TRAILER, "x-sum"), (header::SET_COOKIE, "session=1"), (header::ETAG, "\"e\"")];
        let headers: HeaderMap =
            headers.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
        let trailers: HeaderMap =
            [(HeaderName::from_static("x-sum"), HeaderValue::from_static("17"))].into_iter().collect();
        for (trailers, kept) in [(Some(&trailers), vec!["trailer", "etag"]), (None, vec!["etag"])] {
            let policy = HeaderPolicy::default();
            let stored = StoredForm::new(StatusCode::OK, &headers, &Bytes::new(), trailers, &policy);
            assert_eq!(names(&stored.into_response().unwrap()), kept);
        }
    }

    #[test]
    fn of_a_list_of_headers_only_those_are_stored_that_may_be() {
        let headers: &[(_, &[u8])] = &[
            ("content-type", b"text/plain"),
            ("etag", b"\"e\""),
            ("x-internal", b"x"),
            ("set-cookie", b"consent=1"),
            ("connection", b"close, X-Hop"),
            ("x-hop", b"1"),
            ("access-control-allow-origin", b"https://a.example"),
        ];
        let list = [header::CONTENT_TYPE, header::SET_COOKIE, header::CONNECTION, HeaderName::from_static("x-hop")];
        let policy = HeaderPolicy { only: Some(list.to_vec()), stored: vec![header::ETAG], ..HeaderPolicy::default() };
        assert_eq!(names(&replay(&policy, 200, headers, b"")), ["content-type", "etag", "set-cookie"]);
        let none = HeaderPolicy { only: Some(Vec::new()), ..HeaderPolicy::default() };
        assert_eq!(names(&replay(&none, 200, headers, b"")), [""; 0]);
    }

    #[test]
    fn stored_headers_are_configurable_except_framing_and_credentials() {
        let headers: &[(_, &[u8])] = &[
            ("set-cookie", b"consent=1"),
            ("content-length", b"9"),
            ("authorization", b"Bearer t"),
            ("x-secret", b"x"),
            ("access-control-allow-origin", b"https://a.example"),
            ("access-control-allow-headers", b"*"),
            ("access-control-expose-headers", b"Retry-After"),
        ];
        let policy = HeaderPolicy {
            stored: vec![
                header::SET_COOKIE,
                header::CONTENT_LENGTH,
                header::AUTHORIZATION,
                header::ACCESS_CONTROL_EXPOSE_HEADERS,
            ],
            dropped: vec![HeaderName::from_static("x-secret")],
            ..HeaderPolicy::default()
        };
        let response = replay(&policy, 200, headers, b"");
        assert_eq!(names(&response), ["set-cookie", "access-control-allow-headers", "access-control-expose-headers"]);
    }
}
