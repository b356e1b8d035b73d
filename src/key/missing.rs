//! Missing keys, and the policy for them.

use super::text;

/// The policy for a delivery whose key is missing, or partly missing. The HTTP layer has a separate setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// Refuses the delivery without running the handler.
    #[default]
    Reject,
    /// Runs the handler without protection.
    RunUnprotected,
}

/// Returns whether a key in canonical JSON is empty: `null`, or an empty string, array or object.
pub(super) fn is_empty(json: &[u8]) -> bool {
    matches!(json, b"null" | b"\"\"" | b"[]" | b"{}")
}

/// Returns whether a key in canonical JSON is empty, or contains an empty value at any depth.
pub(super) fn is_missing(json: &[u8]) -> bool {
    match json {
        _ if is_empty(json) => true,
        [b'[', ..] => text::elements(json).any(is_missing),
        [b'{', ..] => text::members(json).any(|(_, value)| is_missing(value)),
        _ => false,
    }
}

/// Returns the path of the missing part of a key, as the rest of a JSON Pointer. It is empty for the key itself. The
/// name of an object's member may be the sender's data, such as an address, so it is not quoted.
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
