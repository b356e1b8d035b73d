//! Identifies the caller.

use std::{any::TypeId, fmt, sync::Arc};

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
    form: Form,
    identify: Arc<Identify>,
    anonymous: bool,
    per_host: bool,
}

/// The function that made a caller.
#[derive(Clone)]
enum Form {
    /// With its argument, if it has one.
    Named(&'static str, Option<Arc<str>>),
    /// Includes the type if the closure captures nothing, so that the type identifies it.
    Closure(Option<TypeId>),
}

impl Caller {
    pub(super) fn new(name: &'static str, identify: impl Fn(&Parts) -> Identified + Send + Sync + 'static) -> Self {
        Self { form: Form::Named(name, None), identify: Arc::new(identify), anonymous: false, per_host: false }
    }

    /// Returns the same caller, which was made by a function with this argument.
    pub(super) fn of_argument(mut self, argument: &str) -> Self {
        if let Form::Named(_, given) = &mut self.form {
            *given = Some(argument.into());
        }
        self
    }

    /// Returns what distinguishes it from callers that are identified otherwise. A closure that captures something, or a
    /// function pointer, equals only its clones.
    pub(super) fn identity(&self) -> impl fmt::Debug + '_ {
        let (closure, function) = match self.form {
            Form::Closure(Some(closure)) => (Some(closure), None),
            Form::Closure(None) => (None, Some(Arc::as_ptr(&self.identify).cast::<()>())),
            Form::Named(..) => (None, None),
        };
        (self, closure, function)
    }

    /// Identifies the caller by a header that a trusted proxy sets. The proxy must replace any value that a client sends. A
    /// request that repeats the header is refused with 403, except behind a REST API, an HTTP API or a load balancer, which
    /// pass on a single value.
    pub fn header(name: HeaderName) -> Self {
        let argument = name.clone();
        let identify = move |parts: &Parts| {
            let mut values = parts.headers.get_all(&name).iter();
            let Some(value) = values.next() else { return nobody(parts) };
            match value.to_str() {
                Ok(value) if values.next().is_none() => named(value.to_owned()),
                _ => Identified::Unknown,
            }
        };
        Self::new("header", identify).of_argument(argument.as_str())
    }

    /// Identifies the caller by a function of the request, such as its tenant, or the user that an outer layer has
    /// authenticated and put into the extensions. If it returns `None` or an empty string, the request is refused with 403.
    ///
    /// A closure that captures something, or a function pointer, equals only its clones. If a layer is created for each event,
    /// clone one caller.
    pub fn from_fn<F: Fn(&Parts) -> Option<String> + Send + Sync + 'static>(identify: F) -> Self {
        let form = Form::Closure((size_of::<F>() == 0).then(TypeId::of::<F>));
        let identify = move |parts: &Parts| identify(parts).map_or_else(|| nobody(parts), named);
        Self { form, ..Self::new("from_fn", identify) }
    }

    /// Lets all requests share one scope, so callers that send the same key and the same request get the same response.
    /// Only for services with a single caller, or whose clients are known to generate random keys.
    pub fn shared() -> Self {
        Self::new("shared", |_| Identified::Anonymous).or_anonymous()
    }

    /// Also admits requests on routes without authentication. They share [one scope](Self::shared).
    /// A request that was authenticated but has no name in this scope is still refused with 403, and so is one with an API key of
    /// a REST API, unless the scope is [`api_key`](Self::api_key). With [`header`](Self::header) and [`from_fn`](Self::from_fn)
    /// that includes a request whose header is absent or whose function returns `None`, although an authorizer has identified
    /// its caller.
    ///
    /// Mutual TLS on a REST API cannot be detected, because `lambda_http` drops the certificate, and neither can authentication
    /// outside of API Gateway, function URLs, load balancers and VPC Lattice. If an outer layer has authenticated a caller
    /// without a name, let `from_fn` return an empty string.
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

/// Returns a caller that was looked up. One with an empty name must not share a scope.
fn named(caller: String) -> Identified {
    if caller.is_empty() { Identified::Unknown } else { Identified::Known(caller) }
}

/// Returns the caller of a request that has no name in a scope. The front door may have authenticated it nevertheless.
fn nobody(parts: &Parts) -> Identified {
    #[cfg(feature = "http-lambda")]
    return super::authorizer::unnamed(parts);
    #[cfg(not(feature = "http-lambda"))]
    {
        let _ = parts;
        Identified::Anonymous
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.form {
            Form::Named(name, None) => write!(f, "Caller::{name}()")?,
            Form::Named(name, Some(argument)) => write!(f, "Caller::{name}({argument:?})")?,
            Form::Closure(_) => f.write_str("Caller::from_fn(..)")?,
        }
        f.write_str(if self.anonymous { ".or_anonymous()" } else { "" })?;
        f.write_str(if self.per_host { ".per_host()" } else { "" })
    }
}
