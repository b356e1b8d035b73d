//! Where the key of an operation comes from, and how it is hashed.
//!
//! A `Key` selects the part of a delivery that identifies the operation. What it selects is put into canonical form
//! ([`canonical`]) and hashed together with its scope, so that no store and no log ever sees the plain key.
//!
//! A key that selects nothing is an error, never the hash of nothing: otherwise all deliveries without a key would
//! share one record, and all but the first would be dropped. Nothing means: no such member, `null`, or an empty string,
//! array or object. Of a combined key, and of a key that is an array or an object, each part must be something. What
//! happens then is up to [`MissingKey`].

use serde::Serialize;

use crate::error::Error;

pub mod canonical;
#[cfg(all(feature = "jmespath", any(feature = "batch", feature = "invocation")))]
mod expression;
pub(crate) mod hash;
#[cfg(any(feature = "batch", feature = "invocation"))]
mod payload;
#[cfg(any(feature = "batch", feature = "invocation"))]
mod pointer;
#[cfg(any(feature = "batch", feature = "invocation"))]
mod selector;
#[cfg(all(test, any(feature = "batch", feature = "invocation")))]
mod tests;

#[cfg(any(feature = "batch", feature = "invocation"))]
pub use payload::Payload;
#[cfg(any(feature = "batch", feature = "invocation"))]
pub(crate) use selector::{Body, Envelope};
#[cfg(any(feature = "batch", feature = "invocation"))]
pub use selector::{Delivery, Key};

/// What happens to a delivery whose key is missing, or partly missing. The HTTP layer has a setting of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is refused: the handler does not run.
    #[default]
    Reject,
    /// The handler runs without protection.
    RunUnprotected,
}

/// A key given as a value, in canonical JSON.
pub(crate) fn of_value<K: Serialize + ?Sized>(key: &K) -> Result<Vec<u8>, Error> {
    let json = canonical_value(key)?;
    if is_missing(&json) {
        return Err(Error::key_missing("the key, or a part of it, is null or empty"));
    }
    Ok(json)
}

/// Whether a key in canonical JSON is missing, or a part of it: `null`, an empty string, array or object, or one that
/// holds such a thing at any depth.
fn is_missing(json: &[u8]) -> bool {
    match json {
        b"null" | b"\"\"" | b"[]" | b"{}" => true,
        [b'[', ..] => canonical::entries(json).any(is_missing),
        [b'{', ..] => canonical::entries(json).any(|entry| is_missing(canonical::member_value(entry))),
        _ => false,
    }
}

/// A value in canonical JSON.
pub(crate) fn canonical_value<V: Serialize + ?Sized>(value: &V) -> Result<Vec<u8>, Error> {
    let text = serde_json::to_vec(value).map_err(|source| Error::payload("not serialisable").with_source(source))?;
    canonical::canonical(&text).map_err(|problem| Error::payload(problem.to_string()))
}
