//! JSON Pointers (RFC 6901) into canonical JSON.

use super::text::{elements, members, write_string};

/// Returns the value at a JSON Pointer (RFC 6901) in canonical JSON, or `None` if there is none.
pub(crate) fn find<'a>(canonical: &'a [u8], pointer: &Pointer) -> Option<&'a [u8]> {
    let mut value = canonical;
    for token in &pointer.0 {
        value = match value.first()? {
            b'{' => members(value).find(|(name, _)| *name == token.name)?.1,
            b'[' => elements(value).nth(token.index?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// A parsed JSON Pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    /// The token as a member's name, in canonical JSON with its quotes.
    name: Vec<u8>,
    /// The token as an element's index, if it is one (no leading zero, no sign).
    index: Option<usize>,
}

impl Pointer {
    /// Parses a JSON Pointer. Returns `None` if the text is neither empty nor begins with `/`, or contains `~` before
    /// anything except `0` and `1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let tokens = text.strip_prefix('/')?.split('/').map(|token| {
            if token.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
                return None;
            }
            let mut name = Vec::new();
            write_string(&mut name, &token.replace("~1", "/").replace("~0", "~"));
            let is_index = token == "0" || token.starts_with(|first: char| ('1'..='9').contains(&first));
            Some(Token { name, index: if is_index { token.parse().ok() } else { None } })
        });
        tokens.collect::<Option<_>>().map(Self)
    }
}
