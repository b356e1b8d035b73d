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

/// Whether a key in canonical JSON is missing, or a part of it: `null`, an empty string, array or object, or one that
/// holds such a thing at any depth.
pub(super) fn is_missing(json: &[u8]) -> bool {
    match json {
        b"null" | b"\"\"" | b"[]" | b"{}" => true,
        [b'[', ..] => text::elements(json).any(is_missing),
        [b'{', ..] => text::members(json).any(|(_, value)| is_missing(value)),
        _ => false,
    }
}
