//! Identifies the caller.

use std::{fmt, sync::Arc};

use http::{HeaderName, request::Parts};

type Identify = dyn Fn(&Parts) -> Caller + Send + Sync;

/// The caller of a request.
pub(super) enum Caller {
    /// The one with this name.
    Known(String),
    /// Nobody authenticated it.
    Anonymous,
    /// It was authenticated, but its caller has no name here. Such callers must not share a scope.
    Unknown,
}

/// Identifies the caller whose key a request brings. One caller is never shown the response to another caller's request.
///
/// Keys are chosen by clients, and may be easy to guess. So the caller, as the service knows it, is a part of every key.
#[derive(Clone)]
pub struct Scope {
    identify: Arc<Identify>,
    anonymous: bool,
}

impl Scope {
    pub(super) fn new(identify: impl Fn(&Parts) -> Caller + Send + Sync + 'static) -> Self {
        Self { identify: Arc::new(identify), anonymous: false }
    }

    /// The value of a header, such as one that a trusted proxy sets. Clients must not be able to set it: the proxy must
    /// replace it. A request that has it more than once is refused with 403; a REST API, a load balancer and an HTTP API
    /// hand over a single value of several, so there it is not noticed.
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

    /// What a function makes of the request, such as a tenant, or the user that a layer outside this one has authenticated
    /// and put among the request's extensions. A request for which it finds nothing, or an empty string, is refused with
    /// 403.
    pub fn from_fn(identify: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::new(move |parts| named(identify(parts)))
    }

    /// One scope for all requests: whoever sends the same key and the same request as somebody else gets that one's answer.
    /// Only for services where that does no harm, such as one with a single caller, or whose clients are known to draw keys
    /// at random.
    pub fn shared() -> Self {
        Self::new(|_| Caller::Anonymous).or_anonymous()
    }

    /// Also admits requests on routes without authentication. They share [one scope](Self::shared).
    /// A request whose caller was authenticated, but is not known by this scope, is still refused with 403. (Mutual TLS of a
    /// REST API does not show: `lambda_http` does not hand over the certificate.)
    #[must_use]
    pub fn or_anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// The bytes that stand for the caller; `None` if the request is to be refused.
    pub(super) fn of(&self, parts: &Parts) -> Option<Vec<u8>> {
        match (self.identify)(parts) {
            Caller::Known(caller) => Some([b"caller ", caller.as_bytes()].concat()),
            Caller::Anonymous => self.anonymous.then(|| b"anonymous".to_vec()),
            Caller::Unknown => None,
        }
    }
}

/// A caller whose name is empty was looked for, and has none.
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
