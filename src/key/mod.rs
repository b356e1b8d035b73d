//! Selects keys from deliveries, and hashes them.
//!
//! ```
//! use lambda_once::Key;
//!
//! let order = Key::pointer("/detail/order_id");                    // a member of a JSON payload
//! let message = Key::message_id();                                 // the id that the event source gave it
//! let of_tenant = Key::composite([Key::header("tenant"), order]);  // both together
//! ```
//!
//! A `Key` selects the part of a delivery that identifies the operation. The selected value is converted to canonical
//! form ([`canonical`]) and hashed together with its scope, so that no store and no log ever contains the plain key.
//!
//! A key that selects nothing is an error, and is never hashed. Otherwise all deliveries without a key would share one
//! record, and all but the first would be dropped. A key selects nothing if the member does not exist or is `null`, or
//! an empty string, array or object. In a combined key, or a key that is an array or object, this applies to each part.
//! The policy for missing keys is [`MissingKey`](crate::MissingKey).

/// The only member of the object as which `serde_json` reads a number, if any crate of the build turns on its feature
/// `arbitrary_precision`.
pub(crate) const NUMBER: &str = "$serde_json::private::Number";

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
