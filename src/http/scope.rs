//! Identifies the caller.

use std::{fmt, sync::Arc};

use http::{HeaderName, request::Parts};

type Identify = dyn Fn(&Parts) -> Caller + Send + Sync;

/// The caller of a request.
pub(super) enum Caller {
    /// Identified by this name.
    Known(String),
    /// Not authenticated.
    Anonymous,
    /// Authenticated, but without a name. Such callers must not share a scope.
    Unknown,
}

/// Identifies the caller whose key a request brings. One caller is never shown the response to another caller's request.
///
/// Clients choose their keys, and some are easy to guess. The caller, as the service knows it, is therefore part of every key.
#[derive(Clone)]
pub struct Scope {
    identify: Arc<Identify>,
    anonymous: bool,
}

impl Scope {
    pub(super) fn new(identify: impl Fn(&Parts) -> Caller + Send + Sync + 'static) -> Self {
        Self { identify: Arc::new(identify), anonymous: false }
    }

    /// Identifies the caller by a header that a trusted proxy sets. The proxy must replace any value that a client sends. A
    /// request that repeats the header is refused with 403, except behind a REST API, an HTTP API or a load balancer, which
    /// pass on a single value.
    pub fn header(name: HeaderName) -> Self {
        Self::new(move |parts| {
            let mut values = parts.headers.get_all(&name).iter();
            let Some(value) = values.next() else { return Caller::Anonymous };
            match value.to_str() {
                Ok(value) if values.next().is_none() => named(Some(value.to_owned())),
                _ => Caller::Unknown,
            }
        })
    }

    /// Identifies the caller by a function of the request, such as its tenant, or the user that an outer layer has
    /// authenticated and put into the extensions. If it returns `None` or an empty string, the request is refused with 403.
    pub fn from_fn(identify: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::new(move |parts| named(identify(parts)))
    }

    /// All requests share one scope: callers that send the same key and the same request get the same response. Only for
    /// services with a single caller, or whose clients are known to generate random keys.
    pub fn shared() -> Self {
        Self::new(|_| Caller::Anonymous).or_anonymous()
    }

    /// Also admits requests on routes without authentication. They share [one scope](Self::shared).
    /// A request that was authenticated but has no name in this scope is still refused with 403. Mutual TLS on a REST API
    /// cannot be detected, because `lambda_http` drops the certificate.
    #[must_use]
    pub fn or_anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// Returns the caller's part of the key, or `None` if the request is to be refused.
    pub(super) fn of(&self, parts: &Parts) -> Option<Vec<u8>> {
        match (self.identify)(parts) {
            Caller::Known(caller) => Some([b"caller ", caller.as_bytes()].concat()),
            Caller::Anonymous => self.anonymous.then(|| b"anonymous".to_vec()),
            Caller::Unknown => None,
        }
    }
}

/// An empty name is not a missing one: the caller was looked up, and has no name.
fn named(caller: Option<String>) -> Caller {
    match caller {
        None => Caller::Anonymous,
        Some(caller) if caller.is_empty() => Caller::Unknown,
        Some(caller) => Caller::Known(caller),
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("anonymous", &self.anonymous).finish_non_exhaustive()
    }
}
