//! Keys that are missing, and what happens then.

use super::text;

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

/// Whether a key in canonical JSON is nothing: `null`, or an empty string, array or object.
pub(super) fn is_empty(json: &[u8]) -> bool {
    matches!(json, b"null" | b"\"\"" | b"[]" | b"{}")
}

/// Whether a key in canonical JSON is missing, or a part of it: `null`, an empty string, array or object, or one that
/// holds such a thing at any depth.
pub(super) fn is_missing(json: &[u8]) -> bool {
    match json {
        _ if is_empty(json) => true,
        [b'[', ..] => text::elements(json).any(is_missing),
        [b'{', ..] => text::members(json).any(|(_, value)| is_missing(value)),
        _ => false,
    }
}

/// Returns the place at which a part of a key is missing, as the rest of a JSON Pointer: empty if it is the key itself. The name of an
/// object's member may be data of the sender, such as an address, so it is not quoted.
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
pub(super) fn missing_path(json: &[u8]) -> String {
    let (token, part) = match json {
        [b'[', ..] => match text::elements(json).enumerate().find(|(_, part)| is_missing(part)) {
            Some((index, part)) => (index.to_string(), part),
            None => return String::new(),
        },
        [b'{', ..] => match text::members(json).find(|(_, part)| is_missing(part)) {
            Some((_, part)) => ("…".to_owned(), part),
            None => return String::new(),
        },
        _ => return String::new(),
    };
    format!("/{token}{}", missing_path(part))
}
