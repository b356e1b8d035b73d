//! Code shared by the stores on servers, for chunks of a call, claim settings, passwords and TLS.

#[cfg(any(feature = "dynamodb", feature = "postgres", feature = "redis"))]
pub(super) mod chunks;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) mod password;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) mod terms;
#[cfg(any(feature = "postgres-tls", feature = "redis-tls"))]
pub(super) mod tls;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) mod untrusted;
