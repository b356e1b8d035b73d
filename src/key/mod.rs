//! Keys: how they are selected from a delivery, and hashed.
//!
//! A `Key` selects the part of a delivery that identifies the operation. What it selects is put into canonical form
//! ([`canonical`]) and hashed together with its scope, so that no store and no log ever sees the plain key.
//!
//! A key that selects nothing is an error, never the hash of nothing: otherwise all deliveries without a key would
//! share one record, and all but the first would be dropped. Nothing means: no such member, `null`, or an empty string,
//! array or object. Of a combined key, and of a key that is an array or an object, each part must be something. What
//! happens then is up to [`MissingKey`](crate::MissingKey).

pub mod canonical;
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
pub(crate) mod delivery;
#[cfg(all(feature = "jmespath", any(feature = "batch", feature = "http", feature = "invocation")))]
mod expression;
mod finite;
pub(crate) mod hash;
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
mod json_text;
pub(crate) mod missing;
#[cfg(any(feature = "batch", feature = "http"))]
pub(crate) mod order_selector;
#[cfg(any(feature = "batch", feature = "invocation"))]
pub(crate) mod payload;
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
mod pointer;
#[cfg(feature = "powertools")]
pub(crate) mod powertools;
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
pub(crate) mod selector;
#[cfg(all(test, any(feature = "batch", feature = "invocation")))]
mod tests;
pub(crate) mod text;
pub(crate) mod value;

#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
pub use delivery::Delivery;
