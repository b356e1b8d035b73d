//! The effect of a response on its key.

use http::StatusCode;

/// The effect of a response on its key.
///
/// The layer decides by the status
/// ([`IdempotencyKeyLayer::classify_response`](super::IdempotencyKeyLayer::classify_response)). A handler overrides that
/// with a `ResponseAction` in the extensions of its response.
///
/// ```
/// use lambda_once::http::ResponseAction;
///
/// // The card network timed out, so the charge may have been made.
/// let mut response = http::Response::builder().status(503).body(String::new())?;
/// response.extensions_mut().insert(ResponseAction::Keep);
/// # Ok::<(), http::Error>(())
/// ```
///
/// In axum: `(StatusCode::SERVICE_UNAVAILABLE, Extension(ResponseAction::Keep))`. After an effect, respond with `Store` or
/// `Keep`, whatever the status, because with `Release` a retry takes effect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseAction {
    /// The operation is done. The response is stored, and replayed to every retry.
    Store,
    /// The operation did not take effect. Its key is free, and a retry runs the handler again.
    Release,
    /// It is unknown whether the operation took effect. The key is kept until its lease ends. By default the next request
    /// then runs the handler again, with [`Claim::took_over`](crate::Claim::took_over) (see
    /// [`AfterUnknown`](crate::AfterUnknown)).
    Keep,
}

impl ResponseAction {
    /// Returns the default decision by status.
    ///
    /// * `Release`: statuses that a retry may change with other credentials or headers, or at another time: 401, 403, 404,
    ///   405, 406, 407, 409, 411, 412, 413, 415, 416, 417, 421, 423, 425, 426, 428, 429 and 431. Also 307 and 308, which
    ///   send the same request elsewhere, with the same key, and 5xx except 504.
    /// * `Keep`: 408, 424, 499 and 504, which report that something was given up or has failed, but not whether it took
    ///   effect.
    /// * `Store`: 2xx, other 3xx and other 4xx, 400 and 422 among them.
    pub fn by_status(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::CONFLICT
            | StatusCode::LENGTH_REQUIRED
            | StatusCode::PRECONDITION_FAILED
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::RANGE_NOT_SATISFIABLE
            | StatusCode::EXPECTATION_FAILED
            | StatusCode::MISDIRECTED_REQUEST
            | StatusCode::LOCKED
            | StatusCode::TOO_EARLY
            | StatusCode::UPGRADE_REQUIRED
            | StatusCode::PRECONDITION_REQUIRED
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            // The client sends the same request elsewhere. If this response were stored, that request would be refused as a
            // different one.
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT => Self::Release,
            StatusCode::REQUEST_TIMEOUT | StatusCode::FAILED_DEPENDENCY | StatusCode::GATEWAY_TIMEOUT => Self::Keep,
            // nginx uses it if the client has closed the connection.
            _ if status.as_u16() == 499 => Self::Keep,
            _ if status.is_success() || status.is_redirection() || status.is_client_error() => Self::Store,
            _ => Self::Release,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_that_a_retry_may_change_are_not_stored_by_default() {
        let of = |decision: ResponseAction| {
            (100..600).filter(move |&code| ResponseAction::by_status(StatusCode::from_u16(code).unwrap()) == decision)
        };
        let released: Vec<u16> = of(ResponseAction::Release).filter(|code| (200..500).contains(code)).collect();
        let expected = [
            307, 308, 401, 403, 404, 405, 406, 407, 409, 411, 412, 413, 415, 416, 417, 421, 423, 425, 426, 428, 429,
            431,
        ];
        assert_eq!(released, expected);
        assert_eq!(of(ResponseAction::Keep).collect::<Vec<_>>(), [408, 424, 499, 504]);
        assert!(of(ResponseAction::Store).all(|code| (200..500).contains(&code)));
    }
}
