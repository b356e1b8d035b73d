//! The layer's settings.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use http::{HeaderName, Method, StatusCode};
use tower_layer::Layer;

use super::{IdempotencyKeyService, Scope};
use crate::idempotency::{handle::Idempotency, names::Registration};

/// How long the records of HTTP requests stay: clients retry within hours, not weeks.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// What Lambda takes as a request or a response.
const MAX_BODY_BYTES: usize = 6 * 1024 * 1024;

/// What its operations are called.
pub(super) const OPERATION: &str = "http";

type Remember = Arc<dyn Fn(StatusCode) -> bool + Send + Sync>;

/// Answers a repeated request with the first one's answer, by its `Idempotency-Key`. See the [module](super).
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`optional`](Self::optional) | the key is required |
/// | [`methods`](Self::methods) | POST, PATCH |
/// | [`header`](Self::header) | `Idempotency-Key` |
/// | [`replay_header`](Self::replay_header) | `Idempotency-Replayed` |
/// | [`remember`](Self::remember) | 2xx, 3xx and 4xx but 401, 403, 408, 409, 425, 429 |
/// | [`max_body`](Self::max_body) | 6 MiB |
/// | [`fail_open`](Self::fail_open) | no |
/// | retention | the engine's if it is set there, else 24 hours |
#[derive(Clone)]
#[must_use]
pub struct IdempotencyKeyLayer {
    settings: Settings,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) engine: Idempotency,
    pub(super) registration: Registration,
    /// What the operations are called in logs.
    pub(super) operation: Cow<'static, str>,
    pub(super) scope: Scope,
    pub(super) required: bool,
    pub(super) methods: Vec<Method>,
    pub(super) header: HeaderName,
    pub(super) replay_header: HeaderName,
    pub(super) remember: Remember,
    pub(super) max_body: usize,
    pub(super) fail_open: bool,
}

impl IdempotencyKeyLayer {
    /// A layer on this engine. `scope` says whose key it is that a request brings.
    ///
    /// While a second layer is alive on the same [unnamed engine](Idempotency#names), requests with a key are answered with
    /// 500. One layer may wrap several services, such as the routes of an application.
    pub fn new(engine: Idempotency, scope: Scope) -> Self {
        let settings = Settings {
            registration: engine.register(OPERATION),
            operation: engine.log_name(OPERATION),
            engine: engine.with_default_retention(RETENTION),
            scope,
            required: true,
            methods: vec![Method::POST, Method::PATCH],
            header: HeaderName::from_static("idempotency-key"),
            replay_header: HeaderName::from_static("idempotency-replayed"),
            remember: Arc::new(is_final),
            max_body: MAX_BODY_BYTES,
            fail_open: false,
        };
        Self { settings }
    }

    /// Lets requests without a key through, unprotected.
    pub fn optional(mut self) -> Self {
        self.settings.required = false;
        self
    }

    /// Which methods are covered. GET, HEAD, PUT and DELETE are idempotent by themselves where they are written well.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.settings.methods = methods.into_iter().collect();
        self
    }

    /// The name of the header with the key.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.header = name;
        self
    }

    /// The name of the header that marks a replayed answer.
    pub fn replay_header(mut self, name: HeaderName) -> Self {
        self.settings.replay_header = name;
        self
    }

    /// Which answers decide the operation. An answer with another status releases the key, so that a retry runs again.
    pub fn remember(mut self, decides: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.settings.remember = Arc::new(decides);
        self
    }

    /// The largest body, in bytes, of a request and of an answer. A larger request is refused with 413. A larger answer
    /// is replaced by a 500 that says so; an operation whose answer would have been remembered stays done.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.settings.max_body = bytes;
        self
    }

    /// Processes requests unprotected while the store is in trouble, instead of refusing them with 503. Repeated requests
    /// then take effect again, and so may one whose claim was applied although the store's answer was lost.
    pub fn fail_open(mut self) -> Self {
        self.settings.fail_open = true;
        self
    }
}

/// Whether a status is the last word on a request: success, redirection, or an error that the same request meets again.
fn is_final(status: StatusCode) -> bool {
    match status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::CONFLICT
        | StatusCode::TOO_EARLY
        | StatusCode::TOO_MANY_REQUESTS => false,
        _ => status.is_success() || status.is_redirection() || status.is_client_error(),
    }
}

impl fmt::Debug for IdempotencyKeyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKeyLayer")
            .field("engine", &self.engine)
            .field("scope", &self.scope)
            .field("required", &self.required)
            .field("methods", &self.methods)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyKeyLayer {
    type Service = IdempotencyKeyService<S>;

    fn layer(&self, inner: S) -> IdempotencyKeyService<S> {
        IdempotencyKeyService { inner, settings: Arc::new(self.settings.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_answers_that_a_retry_may_change_are_not_remembered() {
        let remembered: Vec<u16> = (100..600).filter(|&code| is_final(StatusCode::from_u16(code).unwrap())).collect();
        for code in [200, 201, 204, 302, 400, 404, 410, 422, 499] {
            assert!(remembered.contains(&code), "{code}");
        }
        for code in [100, 401, 403, 408, 409, 425, 429, 500, 502, 503] {
            assert!(!remembered.contains(&code), "{code}");
        }
    }
}
