//! Refusals, as `application/problem+json` (RFC 9457).

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::response::ResponseBody;

/// Why a request is not answered by the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: &'static str,
    /// In seconds.
    retry_after: Option<u64>,
}

impl Problem {
    const fn new(status: StatusCode, code: &'static str, detail: &'static str) -> Self {
        Self { status, code, detail, retry_after: None }
    }

    pub(super) const KEY_MISSING: Self =
        Self::new(StatusCode::BAD_REQUEST, "key_missing", "this operation needs an Idempotency-Key header");
    pub(super) const CALLER_UNKNOWN: Self = Self::new(
        StatusCode::FORBIDDEN,
        "caller_unknown",
        "idempotency keys belong to a caller, and this request names none",
    );
    pub(super) const BODY_TOO_LARGE: Self = Self::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        "the request's body is too large for an idempotent operation",
    );
    pub(super) const BODY_BROKEN: Self =
        Self::new(StatusCode::BAD_REQUEST, "body_broken", "the request's body could not be read");
    pub(super) const ANSWER_TOO_LARGE: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "answer_too_large",
        "the operation was run; its answer is too large to be given",
    );
    pub(super) const ANSWER_BROKEN: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "answer_broken",
        "the answer broke off; whether the operation took effect is not known",
    );
    pub(super) const ANSWER_NOT_KEPT: Self =
        Self::new(StatusCode::GONE, "answer_not_kept", "the operation is done; its answer is no longer available");
    pub(super) const ANSWER_UNREADABLE: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "answer_unreadable",
        "the operation is done; its stored answer cannot be read",
    );
    pub(super) const FAILED_BEFORE: Self =
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed_before", "the operation failed for good");
    pub(super) const MISMATCH: Self = Self::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "key_reused",
        "this Idempotency-Key was used for another request; use a new key",
    );
    pub(super) const IN_PROGRESS: Self = Self::new(
        StatusCode::CONFLICT,
        "in_progress",
        "a request with this Idempotency-Key is being processed; try again",
    );
    pub(super) const ABANDONED: Self = Self::new(
        StatusCode::CONFLICT,
        "outcome_unknown",
        "a request with this Idempotency-Key ended without an outcome; it may have taken effect, and is not run again",
    );
    pub(super) const PANICKED: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "handler_failed",
        "the operation ended without an outcome; it may have taken effect",
    );
    pub(super) const CUT_OFF: Self = Self::new(
        StatusCode::GATEWAY_TIMEOUT,
        "out_of_time",
        "the operation was not finished in time; it may have taken effect",
    );
    pub(super) const MISCONFIGURED: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "misconfigured",
        "the settings of this operation's protection contradict each other; the request was not processed",
    );
    pub(super) const UNAVAILABLE: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "unavailable",
        "the request could not be protected against repetition and was not processed; try again",
    )
    .retry_after(1);

    pub(super) const fn malformed(detail: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "key_malformed", detail)
    }

    /// With the number of seconds after which to try again.
    pub(super) const fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    pub(super) fn response<B>(self) -> Response<ResponseBody<B>> {
        let body = serde_json::json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        let mut response = Response::new(ResponseBody::replayed(Bytes::from(body.to_string())));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
