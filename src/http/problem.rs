//! Refusals, as `application/problem+json` (RFC 9457).

use std::{borrow::Cow, fmt::Display, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    error::ErrorKind,
    idempotency::{
        outcome::OutcomeKind,
        verdict::{Failure, Verdict},
    },
    record::{Difference, PayloadPart},
    store::{Mismatch, MismatchState},
};

/// The `type` of a refusal unless the API has its own problem types (RFC 9457, section 4.2.1). The `title` is then the
/// status phrase, and the `code` is more specific.
const NO_TYPE: &str = "about:blank";

/// The longest `Retry-After`, in seconds.
const MAX_RETRY_AFTER: u128 = 2;

/// Ends the text of each refusal that a retry may resolve. A retry with a different key would make the operation take
/// effect twice.
const ADVICE: &str = "; send the same request again, with the same key";

/// The reason that the handler does not respond to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: Cow<'static, str>,
    retry: Retry,
    /// The stored part of the response: its status, and its `Location`.
    answered: Option<Box<(StatusCode, Option<HeaderValue>)>>,
    /// The parts in which the request differs from the one that the key was used with.
    difference: Difference,
    /// The cause, only for the log.
    cause: Option<String>,
}

/// Retry advice for the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    Never,
    /// At any time, without a suggested pause.
    Possible,
    /// After a pause of unknown length.
    Soon,
    /// At the latest after this time.
    After(Duration),
}

impl Problem {
    const fn new(status: StatusCode, code: &'static str, detail: &'static str) -> Self {
        Self {
            status,
            code,
            detail: Cow::Borrowed(detail),
            retry: Retry::Never,
            answered: None,
            difference: Difference::UNKNOWN,
            cause: None,
        }
    }

    const fn retryable(mut self) -> Self {
        self.retry = Retry::Possible;
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
    pub(super) const BODY_TIMED_OUT: Self =
        Self::new(StatusCode::REQUEST_TIMEOUT, "body_timed_out", "the request's body did not arrive in time")
            .retryable();
    pub(super) const BODY_BROKEN: Self =
        Self::new(StatusCode::BAD_REQUEST, "body_broken", "the request's body could not be read").retryable();
    pub(super) const BODY_REJECTED: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "body_rejected",
        "the request's body is not valid for this operation, so the request cannot be compared with others",
    );
    pub(super) const ANSWER_TOO_LARGE: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "response_too_large",
        "the operation was run; its response is too large to return",
    );
    pub(super) const ANSWER_BROKEN: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "response_broken",
        "the response body broke off, and whether the operation took effect is not known",
    )
    .retryable();
    pub(super) const ANSWER_BROKEN_RELEASED: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "response_broken",
        "the response body broke off, and the operation may run again",
    )
    .retryable();
    pub(super) const ANSWER_NOT_KEPT: Self = Self::new(
        StatusCode::GONE,
        "response_not_stored",
        "the operation is done, and its response is not stored; do not repeat the operation",
    );
    pub(super) const ANSWER_UNREADABLE: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "response_unreadable",
        "the operation is done; its stored response cannot be read",
    );
    pub(super) const REPLAY_UNCHECKED: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "replay_unchecked",
        "the operation is done, and it could not be checked whether its response may still be returned",
    )
    .retry_after(Duration::from_secs(1));
    pub(super) const FAILED_BEFORE: Self =
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed_before", "the operation failed permanently");
    pub(super) const PROBE_FAILED: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "probe_failed",
        "an earlier request with this idempotency key may have taken effect, and whether it did could not be found out",
    )
    .retry_after(Duration::from_secs(1));
    pub(super) const NOT_COMMITTED: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "not_committed",
        "the operation was not carried out, as its transaction could not be committed",
    )
    .retry_after(Duration::from_secs(1));
    pub(super) const COMMIT_UNKNOWN: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "commit_unknown",
        "it is not known whether the operation was carried out",
    )
    .retry_after(Duration::from_secs(1));
    pub(super) const ORDER_MISSING: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "order_missing",
        "this operation has a place in an order, and the request does not say which: its entity, and a sequence of 1 to 64 \
         digits",
    );
    pub(super) const SUPERSEDED: Self =
        Self::new(StatusCode::CONFLICT, "superseded", "a newer operation has taken effect, so this one will not");
    pub(super) const NOT_RECORDED: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "not_recorded",
        "the operation was carried out, but its place in the order could not be recorded",
    )
    .retry_after(Duration::from_secs(1));
    const MISMATCH: Self = Self::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "key_reused",
        "this idempotency key was used with another request, whose outcome stands; a retry must repeat that request \
         unchanged",
    );
    pub(super) const IN_PROGRESS: Self = Self::new(
        StatusCode::CONFLICT,
        "in_progress",
        "a request with this idempotency key is being processed, or ended without an outcome",
    )
    .retryable();
    pub(super) const ABANDONED: Self = Self::new(
        StatusCode::CONFLICT,
        "outcome_unknown",
        "a request with this idempotency key ended without an outcome; it may have taken effect, and does not run again \
         unless an operator of this service releases the key or its record expires",
    );
    pub(super) const PANICKED: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "handler_failed",
        "the operation ended without an outcome, and may have taken effect",
    )
    .retryable();
    pub(super) const CUT_OFF: Self = Self::new(
        StatusCode::GATEWAY_TIMEOUT,
        "out_of_time",
        "the operation was not finished in time, and may have taken effect",
    )
    .retryable();
    pub(super) const MISCONFIGURED: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "misconfigured",
        "the settings of this operation's protection contradict each other; the request was not processed",
    );
    pub(super) const HOOK_FAILED: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "hook_failed",
        "the request could not be handled, because of an error in the service",
    )
    .retryable();
    pub(super) const OVERLOADED: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "overloaded",
        "too many requests are being processed, and this one was not",
    )
    .retry_after(Duration::from_secs(1));
    pub(super) const UNAVAILABLE: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "unavailable",
        "the request could not be protected against repetition and was not processed",
    )
    .retry_after(Duration::from_secs(1));

    /// Returns the refusal of a key that was used with another request, by the state of that request. No refusal advises a
    /// different key: if the client meant to retry that request, it would take effect twice, so the client must send that
    /// request again.
    pub(super) fn of_mismatch(mismatch: Mismatch) -> Self {
        let detail = match mismatch.state {
            MismatchState::Final => Self::MISMATCH.detail,
            MismatchState::InProgress { .. } => Cow::Borrowed(
                "this idempotency key is in use by another request, which is being processed, or ended without an outcome; a \
                 retry must repeat that request unchanged, with the same key, and another request can have the key only if that \
                 one releases the key",
            ),
            MismatchState::Abandoned { .. } => Cow::Borrowed(
                "this idempotency key was used with another request, which ended without an outcome and may have taken effect; a \
                 retry must repeat that request unchanged",
            ),
        };
        Self { detail, difference: mismatch.difference, ..Self::MISMATCH }
    }

    /// Returns the known parts in which the request differs from the one that the key was used with.
    pub(super) const fn difference(&self) -> Difference {
        self.difference
    }

    /// Returns the refusal for a transaction that was not committed, or may not have been.
    pub(super) fn of_commit(failure: &Failure) -> Self {
        if failure.verdict() == Verdict::Unknown { Self::COMMIT_UNKNOWN } else { Self::NOT_COMMITTED }
    }

    /// Adds the cause, which is logged. Clients do not see it.
    pub(super) fn because(self, cause: impl Display) -> Self {
        Self { cause: Some(cause.to_string()), ..self }
    }

    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    pub(super) fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Returns the outcome of this refusal for the log and observers, if nothing was claimed.
    pub(super) fn unclaimed_outcome(&self) -> Result<OutcomeKind, ErrorKind> {
        Err(match self.code {
            "caller_unknown" => ErrorKind::Caller,
            "key_missing" => ErrorKind::KeyMissing,
            "order_missing" => ErrorKind::Order,
            "misconfigured" => ErrorKind::Config,
            "not_committed" | "commit_unknown" => ErrorKind::Transaction,
            // A function of the application failed.
            "hook_failed" | "unavailable" => ErrorKind::Decode,
            "overloaded" => return Ok(OutcomeKind::NotStarted),
            _ => ErrorKind::Payload,
        })
    }

    pub(super) fn malformed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self { detail: detail.into(), ..Self::new(StatusCode::BAD_REQUEST, "key_malformed", "") }
    }

    /// Marks the problem as retryable, at an unknown time.
    pub(super) const fn retry_soon(mut self) -> Self {
        self.retry = Retry::Soon;
        self
    }

    /// Marks the problem as retryable, after `time` at the latest.
    pub(super) const fn retry_after(mut self, time: Duration) -> Self {
        self.retry = Retry::After(time);
        self
    }

    /// Adds the stored part of the response.
    pub(super) fn answered(mut self, status: StatusCode, location: Option<HeaderValue>) -> Self {
        self.answered = Some(Box::new((status, location)));
        self
    }

    /// Replaces another problem, and keeps whether a retry helps.
    pub(super) fn in_place_of(self, other: &Self) -> Self {
        Self { retry: other.retry, ..self }
    }

    pub(super) fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Returns the text for people.
    fn text(&self) -> Cow<'static, str> {
        if self.difference.is_known() {
            return format!("{}. Compared with that request, {}", self.detail, self.difference.sentence()).into();
        }
        if self.retry == Retry::Never || self.code == Self::MISMATCH.code {
            return self.detail.clone();
        }
        format!("{}{ADVICE}", self.detail).into()
    }

    /// Builds the response. Its `type` is the code, after `type_base` if there is one.
    pub(super) fn into_response(self, type_base: Option<&str>) -> Response<Bytes> {
        let mut body = serde_json::json!({
            "type": type_base.map_or(NO_TYPE.into(), |base| format!("{base}{}", self.code)),
            "title": phrase(self.status),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.text(),
            "retryable": self.retry != Retry::Never,
        });
        if let Retry::After(time) = self.retry {
            body["retry_after_ms"] = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).into();
        }
        if self.difference.is_known() {
            body["differs"] = self.difference.parts().map(PayloadPart::as_str).collect();
        }
        if let Some(answered) = &self.answered {
            body["response_status"] = answered.0.as_u16().into();
        }
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(location) = self.answered.and_then(|answered| answered.1) {
            headers.insert(header::LOCATION, location);
        }
        let pause = match self.retry {
            Retry::Never | Retry::Possible => None,
            Retry::Soon => Some(MAX_RETRY_AFTER),
            Retry::After(time) => Some(time.as_millis().div_ceil(1_000).clamp(1, MAX_RETRY_AFTER)),
        };
        if let Some(seconds) = pause.and_then(|seconds| u16::try_from(seconds).ok()) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Returns the phrase of a status from RFC 9110, because some phrases of `http` are from older standards.
fn phrase(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => "Content Too Large",
        StatusCode::UNPROCESSABLE_ENTITY => "Unprocessable Content",
        status => status.canonical_reason().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn a_retryable_refusal_asks_for_the_same_key() {
        let mismatch = |state| Problem::of_mismatch(Mismatch::new(state, Difference::UNKNOWN));
        let running = MismatchState::InProgress { lease_until: Some(Timestamp::from_seconds(1)), attempt: 1 };
        let refusals = [
            (Problem::BODY_TIMED_OUT, true),
            (Problem::BODY_BROKEN, true),
            (Problem::ANSWER_BROKEN, true),
            (Problem::ANSWER_BROKEN_RELEASED, true),
            (Problem::REPLAY_UNCHECKED, true),
            (Problem::PROBE_FAILED, true),
            (Problem::NOT_COMMITTED, true),
            (Problem::COMMIT_UNKNOWN, true),
            (Problem::NOT_RECORDED, true),
            (Problem::IN_PROGRESS.retry_soon(), true),
            (Problem::PANICKED, true),
            (Problem::CUT_OFF, true),
            (Problem::HOOK_FAILED, true),
            (Problem::OVERLOADED, true),
            (Problem::UNAVAILABLE, true),
            (mismatch(running).retry_soon(), true),
            (mismatch(MismatchState::Final), false),
            (Problem::ABANDONED, false),
            (Problem::HOOK_FAILED.in_place_of(&Problem::KEY_MISSING), false),
        ];
        for (problem, is_retryable) in refusals {
            let body: serde_json::Value = serde_json::from_slice(problem.into_response(None).body()).unwrap();
            let asks = body["detail"].as_str().unwrap().contains("same key");
            assert_eq!((&body["retryable"], asks), (&is_retryable.into(), is_retryable), "{body}");
        }
    }

    /// With the status, title and code that a client sees, and the outcome or the kind of the error in the log.
    #[test]
    fn a_refusal_without_a_claim_is_reported_by_its_cause() {
        for (problem, status, title, code, logged) in [
            (Problem::KEY_MISSING, 400, "Bad Request", "key_missing", "key_missing"),
            (Problem::malformed("it is empty"), 400, "Bad Request", "key_malformed", "invalid_payload"),
            (Problem::BODY_BROKEN, 400, "Bad Request", "body_broken", "invalid_payload"),
            (Problem::BODY_REJECTED, 400, "Bad Request", "body_rejected", "invalid_payload"),
            (Problem::ORDER_MISSING, 400, "Bad Request", "order_missing", "invalid_order"),
            (Problem::CALLER_UNKNOWN, 403, "Forbidden", "caller_unknown", "caller_unknown"),
            (Problem::BODY_TIMED_OUT, 408, "Request Timeout", "body_timed_out", "invalid_payload"),
            (Problem::BODY_TOO_LARGE, 413, "Content Too Large", "body_too_large", "invalid_payload"),
            (Problem::HOOK_FAILED, 500, "Internal Server Error", "hook_failed", "decode"),
            (Problem::MISCONFIGURED, 500, "Internal Server Error", "misconfigured", "config"),
            (Problem::OVERLOADED, 503, "Service Unavailable", "overloaded", "not_started"),
            (Problem::UNAVAILABLE, 503, "Service Unavailable", "unavailable", "decode"),
            (Problem::NOT_COMMITTED, 503, "Service Unavailable", "not_committed", "transaction"),
            (Problem::COMMIT_UNKNOWN, 503, "Service Unavailable", "commit_unknown", "transaction"),
        ] {
            let outcome = problem.unclaimed_outcome().map_or_else(ErrorKind::as_str, OutcomeKind::as_str);
            let response = problem.into_response(None);
            assert_eq!((response.status().as_u16(), outcome), (status, logged), "{code}");
            let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!((&body["status"], &body["title"], &body["code"]), (&status.into(), &title.into(), &code.into()));
        }
    }
}
