//! Refusals, as `application/problem+json` (RFC 9457).

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

/// Where the problem types are documented, unless the layer is told otherwise.
pub(super) const BASE: &str = "https://docs.rs/lambda-once/latest/lambda_once/http/index.html#";

/// The longest that a client is asked to wait by `Retry-After`, in seconds.
const MAX_RETRY_AFTER: u128 = 2;

/// Why a request is not answered by the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: Cow<'static, str>,
    /// Whether the same request may be sent again, and be answered otherwise.
    is_retryable: bool,
    retry_after: Option<Duration>,
    /// Whether to try again soon, where no time is known.
    retry_soon: bool,
}

impl Problem {
    const fn new(status: StatusCode, code: &'static str, detail: &'static str) -> Self {
        Self { status, code, detail: Cow::Borrowed(detail), is_retryable: false, retry_after: None, retry_soon: false }
    }

    const fn retryable(mut self) -> Self {
        self.is_retryable = true;
        self
    }

    pub(super) const KEY_MISSING: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "key_missing",
        "this operation needs an idempotency key, and the request has none",
    );
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
        Self::new(StatusCode::BAD_REQUEST, "body_broken", "the request's body could not be read").retryable();
    pub(super) const BODY_REJECTED: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "body_rejected",
        "the request cannot be told from others: its body is not what this operation takes",
    );
    pub(super) const ANSWER_TOO_LARGE: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "answer_too_large",
        "the operation was run; its answer is too large to be given",
    );
    pub(super) const ANSWER_BROKEN: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "answer_broken",
        "the answer broke off; whether the operation took effect is not known",
    )
    .retryable();
    pub(super) const ANSWER_NOT_KEPT: Self =
        Self::new(StatusCode::GONE, "answer_not_kept", "the operation is done; its answer is not available any more");
    pub(super) const ANSWER_UNREADABLE: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "answer_unreadable",
        "the operation is done; its stored answer cannot be read",
    );
    pub(super) const REPLAY_UNCHECKED: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "replay_unchecked",
        "the operation is done; whether its answer may still be given could not be found out",
    )
    .retry_after(Duration::from_secs(1));
    pub(super) const FAILED_BEFORE: Self =
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed_before", "the operation failed for good");
    pub(super) const PROBE_FAILED: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "probe_failed",
        "an earlier request with this idempotency key may have taken effect, and whether it did could not be found out",
    )
    .retry_after(Duration::from_secs(1));
    pub(super) const MISMATCH: Self = Self::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "key_reused",
        "this idempotency key was used for another request; use a new key",
    );
    pub(super) const IN_PROGRESS: Self = Self::new(
        StatusCode::CONFLICT,
        "in_progress",
        "a request with this idempotency key is being processed, or ended without an outcome; try again",
    )
    .retryable();
    pub(super) const ABANDONED: Self = Self::new(
        StatusCode::CONFLICT,
        "outcome_unknown",
        "a request with this idempotency key ended without an outcome; it may have taken effect, and is not run again",
    );
    pub(super) const PANICKED: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "handler_failed",
        "the operation ended without an outcome; it may have taken effect",
    )
    .retryable();
    pub(super) const CUT_OFF: Self = Self::new(
        StatusCode::GATEWAY_TIMEOUT,
        "out_of_time",
        "the operation was not finished in time; it may have taken effect",
    )
    .retryable();
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
    .retry_after(Duration::from_secs(1));

    pub(super) fn malformed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self { detail: detail.into(), ..Self::new(StatusCode::BAD_REQUEST, "key_malformed", "") }
    }

    /// To be tried again, nobody knows when.
    pub(super) const fn retry_soon(mut self) -> Self {
        self.is_retryable = true;
        self.retry_soon = true;
        self
    }

    /// To be tried again after this time.
    pub(super) const fn retry_after(mut self, time: Duration) -> Self {
        self.is_retryable = true;
        self.retry_after = Some(time);
        self
    }

    pub(super) fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// `base` is what stands before the code in the problem's type.
    pub(super) fn into_response(self, base: &str) -> Response<Bytes> {
        let mut body = serde_json::json!({
            "type": format!("{base}{}", self.code),
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
            "retryable": self.is_retryable,
        });
        if let Some(time) = self.retry_after {
            body["retry_after_ms"] = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).into();
        }
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        let seconds = self.retry_after.map(|time| time.as_millis().div_ceil(1_000).clamp(1, MAX_RETRY_AFTER));
        if let Some(seconds) = seconds.or(self.retry_soon.then_some(MAX_RETRY_AFTER)) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(u16::try_from(seconds).unwrap_or(1)));
        }
        response
    }
}
