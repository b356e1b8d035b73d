//! Decides by a response what happens to its key.

use http::StatusCode;

/// What happens to the key once the handler has responded.
///
/// The layer decides by the status ([`IdempotencyKeyLayer::decide`](super::IdempotencyKeyLayer::decide)). A handler overrides
/// that with a decision in the extensions of its response.
///
/// ```
/// use lambda_once::http::Decision;
///
/// // The card network timed out, so the charge may have been made.
/// let mut response = http::Response::builder().status(503).body(String::new())?;
/// response.extensions_mut().insert(Decision::Keep);
/// # Ok::<(), http::Error>(())
/// ```
///
/// In axum: `(StatusCode::SERVICE_UNAVAILABLE, Extension(Decision::Keep))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The operation is done. The response is stored, and replayed to every retry.
    Store,
    /// The operation did not take effect. Its key is free, and a retry runs the handler again.
    Release,
    /// Whether the operation took effect is not known. The key is kept until its lease ends. By default the next request then
    /// runs the handler again, with [`Claim::took_over`](crate::Claim::took_over); see [`AfterUnknown`](crate::AfterUnknown).
    Keep,
}

impl Decision {
    /// The default decision by status.
    ///
    /// * `Store`: 2xx, 3xx, and 4xx except those that a retry may change;
    /// * `Keep`: 504, after which an upstream may still be working;
    /// * `Release`: all others.
    pub fn by_status(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::CONFLICT
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS => Self::Release,
            StatusCode::GATEWAY_TIMEOUT => Self::Keep,
            _ if status.is_success() || status.is_redirection() || status.is_client_error() => Self::Store,
            _ => Self::Release,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_answers_that_a_retry_may_change_are_not_stored() {
        let of = |decision: Decision| {
            (100..600).filter(move |&code| Decision::by_status(StatusCode::from_u16(code).unwrap()) == decision)
        };
        let released: Vec<u16> = of(Decision::Release).filter(|code| (200..500).contains(code)).collect();
        assert_eq!(released, [401, 403, 404, 405, 406, 408, 409, 415, 425, 429]);
        assert_eq!(of(Decision::Keep).collect::<Vec<_>>(), [504]);
        assert!(of(Decision::Store).all(|code| (200..500).contains(&code)));
    }
}
