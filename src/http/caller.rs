//! Identifies the caller.

use std::{fmt, sync::Arc};

use http::{HeaderName, header, request::Parts, uri::Authority};

use super::fingerprint::original_uri;

type Identify = dyn Fn(&Parts) -> Identified + Send + Sync;

/// The caller of a request.
pub(super) enum Identified {
    /// Identified by this name.
    Known(String),
    /// Not authenticated.
    Anonymous,
    /// Authenticated, but without a name. Such callers must not share a scope.
    Unknown,
}

/// Identifies the caller whose key a request brings. One caller is never shown the response to another caller's request.
///
/// Clients choose their keys, and some are easy to guess. Therefore the caller is part of every key.
#[derive(Clone)]
pub struct Caller {
    identify: Arc<Identify>,
    anonymous: bool,
    per_host: bool,
}

impl Caller {
    pub(super) fn new(identify: impl Fn(&Parts) -> Identified + Send + Sync + 'static) -> Self {
        Self { identify: Arc::new(identify), anonymous: false, per_host: false }
    }

    /// Identifies the caller by a header that a trusted proxy sets. The proxy must replace any value that a client sends. A
    /// request that repeats the header is refused with 403, except behind a REST API, an HTTP API or a load balancer, which
    /// pass on a single value.
    pub fn header(name: HeaderName) -> Self {
        Self::new(move |parts| {
            let mut values = parts.headers.get_all(&name).iter();
            let Some(value) = values.next() else { return Identified::Anonymous };
            match value.to_str() {
                Ok(value) if values.next().is_none() => named(Some(value.to_owned())),
                _ => Identified::Unknown,
            }
        })
    }

    /// Identifies the caller by a function of the request, such as its tenant, or the user that an outer layer has
    /// authenticated and put into the extensions. If it returns `None` or an empty string, the request is refused with 403.
    pub fn from_fn(identify: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::new(move |parts| named(identify(parts)))
    }

    /// Lets all requests share one scope, so callers that send the same key and the same request get the same response.
    /// Only for services with a single caller, or whose clients are known to generate random keys.
    pub fn shared() -> Self {
        Self::new(|_| Identified::Anonymous).or_anonymous()
    }

    /// Also admits requests on routes without authentication. They share [one scope](Self::shared).
    /// A request that was authenticated but has no name in this scope is still refused with 403, and so is one with an API key of
    /// a REST API, unless the scope is [`api_key`](Self::api_key). Mutual TLS on a REST API
    /// cannot be detected, because `lambda_http` drops the certificate.
    #[must_use]
    pub fn or_anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// Separates hosts, for services whose tenants each have a host, such as `acme.example.com`. The same key from the same
    /// caller on another host is then a different operation. Without it, a request to another host is a retry, because the
    /// host is not [compared](super#comparison-of-requests).
    ///
    /// The host comes from the target URI (RFC 9110, section 7.1). It is taken from the authority of the request line
    /// or of `:authority`, otherwise from the `Host` header (RFC 9112, section 3.2.2 and RFC 9113, section 8.3.1). It
    /// is lower-cased. A trailing dot is removed, and so is port 80 or 443, because the scheme is not known behind a
    /// proxy that terminates TLS. A request without a host is refused with 403, and so is one whose `Host` is needed
    /// and is repeated or malformed. Behind a proxy that changes the host, use [`from_fn`](Self::from_fn).
    #[must_use]
    pub fn per_host(mut self) -> Self {
        self.per_host = true;
        self
    }

    /// Returns the caller's part of the key, or `None` if the request is to be refused.
    pub(super) fn of(&self, parts: &Parts) -> Option<Vec<u8>> {
        let caller = match (self.identify)(parts) {
            Identified::Known(caller) => [b"caller ", caller.as_bytes()].concat(),
            Identified::Anonymous if self.anonymous => b"anonymous".to_vec(),
            Identified::Anonymous | Identified::Unknown => return None,
        };
        if !self.per_host {
            return Some(caller);
        }
        // A host contains no space.
        Some([b"host ", host(parts)?.as_bytes(), b" ", &caller].concat())
    }
}

/// Returns the host of the target URI and its port, unless that is a default one.
fn host(parts: &Parts) -> Option<String> {
    let of_header;
    let authority = match original_uri(parts).authority() {
        Some(authority) => authority,
        None => {
            let mut values = parts.headers.get_all(header::HOST).iter();
            let value = values.next().filter(|value| !value.as_bytes().contains(&b'@'))?;
            of_header = Authority::try_from(value.as_bytes()).ok().filter(|_| values.next().is_none())?;
            &of_header
        }
    };
    let host = authority.host();
    let after_user = authority.as_str().rsplit('@').next()?;
    let port = after_user.strip_prefix(host)?.strip_prefix(':');
    // With the dot the name is fully qualified, and denotes the same host.
    let host = host.strip_suffix('.').unwrap_or(host);
    let port = match port {
        _ if host.is_empty() => return None,
        None | Some("") => None,
        Some(port) => Some(port.parse::<u16>().ok()?),
    };
    let host = host.to_ascii_lowercase();
    Some(match port {
        None | Some(80 | 443) => host,
        Some(port) => format!("{host}:{port}"),
    })
}

/// Distinguishes an empty name from a missing one: the caller was looked up, and has no name.
fn named(caller: Option<String>) -> Identified {
    match caller {
        None => Identified::Anonymous,
        Some(caller) if caller.is_empty() => Identified::Unknown,
        Some(caller) => Identified::Known(caller),
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("anonymous", &self.anonymous)
            .field("per_host", &self.per_host)
            .finish_non_exhaustive()
    }
}
