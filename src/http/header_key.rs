//! Reads the key from its header.

use http::{HeaderMap, HeaderName};

const MAX_KEY_CHARS: usize = 255;

/// The content of the header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderKey {
    Absent,
    Key(String),
    /// Malformed, for this reason.
    Malformed(&'static str),
}

pub(super) fn read(headers: &HeaderMap, name: &HeaderName) -> HeaderKey {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return HeaderKey::Absent };
    if values.next().is_some() {
        return HeaderKey::Malformed("the header occurs more than once");
    }
    let Ok(text) = value.to_str() else {
        return HeaderKey::Malformed("the key holds characters beyond printable ASCII");
    };
    let text = text.trim_matches([' ', '\t']);
    let key = if text.starts_with('"') { quoted(text) } else { bare(text) };
    match key {
        Err(problem) => HeaderKey::Malformed(problem),
        Ok(key) if key.is_empty() => HeaderKey::Malformed("the key is empty"),
        Ok(key) if key.len() > MAX_KEY_CHARS => HeaderKey::Malformed("the key is longer than 255 characters"),
        Ok(key) => HeaderKey::Key(key),
    }
}

/// A string of RFC 8941, section 3.3.3, without parameters.
fn quoted(text: &str) -> Result<String, &'static str> {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).filter(|_| text.len() > 1);
    let mut characters = inner.ok_or("the key's closing quote is missing, or not at its end")?.chars();
    let mut key = String::new();
    while let Some(character) = characters.next() {
        match character {
            '"' => return Err("a quote within the key must be escaped by a backslash"),
            '\\' => match characters.next() {
                Some(escaped @ ('"' | '\\')) => key.push(escaped),
                _ => return Err("a backslash in the key escapes a quote or a backslash only"),
            },
            ' '..='~' => key.push(character),
            _ => return Err("the key holds characters beyond printable ASCII"),
        }
    }
    Ok(key)
}

fn bare(text: &str) -> Result<String, &'static str> {
    if text.contains([',', '"', ' ', '\t']) {
        return Err("a key without quotes holds no comma, quote or space");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const NAME: HeaderName = HeaderName::from_static("idempotency-key");

    fn parse(value: &str) -> HeaderKey {
        read(&HeaderMap::from_iter([(NAME, HeaderValue::from_bytes(value.as_bytes()).unwrap())]), &NAME)
    }

    #[test]
    fn a_key_is_the_same_with_and_without_quotes() {
        for value in ["8e03978e-40d5", "\"8e03978e-40d5\"", "  \"8e03978e-40d5\"\t"] {
            assert_eq!(parse(value), HeaderKey::Key("8e03978e-40d5".into()));
        }
        assert_eq!(parse(r#""a \"b\" \\ c, d""#), HeaderKey::Key(r#"a "b" \ c, d"#.into()));
        assert_eq!(read(&HeaderMap::new(), &NAME), HeaderKey::Absent);
    }

    // Tests IKH-2.1-1, IKH-5-1.
    #[test]
    fn malformed_keys_are_refused() {
        for value in [
            "",
            "  ",
            "\"\"",
            "\"",
            "\"a",
            "a\"",
            "a,b",
            "a b",
            "\"a\"b\"",
            r#""a\n""#,
            r#""a\""#,
            "\"é\"",
            "é",
            "\"a\";p=1",
        ] {
            assert!(matches!(parse(value), HeaderKey::Malformed(_)), "{value:?}");
        }
        assert!(matches!(parse(&"k".repeat(255)), HeaderKey::Key(_)));
        assert!(matches!(parse(&"k".repeat(256)), HeaderKey::Malformed(_)));
    }

    #[test]
    fn a_repeated_header_is_refused() {
        let mut headers = HeaderMap::new();
        headers.append(NAME, HeaderValue::from_static("a"));
        headers.append(NAME, HeaderValue::from_static("a"));
        assert!(matches!(read(&headers, &NAME), HeaderKey::Malformed(_)));
    }

    /// Returns the value's string without parameters, or `None`, according to another implementation of RFC 8941.
    fn string_by_sfv(value: &str) -> Option<String> {
        let item: sfv::Item = sfv::Parser::new(value).with_version(sfv::Version::Rfc8941).parse().ok()?;
        match item.bare_item {
            sfv::BareItem::String(string) if item.params.is_empty() => Some(string.into()),
            _ => None,
        }
    }

    proptest! {
        // Tests IKH-2.1-1.
        #[test]
        fn quoted_keys_are_those_of_rfc_8941(value in r#" {0,2}"([ -~]|\\[\\"a]|\\|é){0,12}"?( |;a|"){0,2}"#) {
            let expected = string_by_sfv(&value).filter(|key| !key.is_empty());
            match parse(&value) {
                HeaderKey::Key(key) => prop_assert_eq!(Some(key), expected),
                _ => prop_assert_eq!(None, expected),
            }
        }

        #[test]
        fn a_bare_key_is_the_quoted_one(key in "[!#-+\\--~][!-+\\--~]{0,60}") {
            prop_assume!(!key.contains('"'));
            let quoted = format!("\"{}\"", key.replace('\\', "\\\\"));
            prop_assert_eq!(string_by_sfv(&quoted), Some(key.clone()));
            prop_assert_eq!(parse(&key), parse(&quoted));
            prop_assert_eq!(parse(&key), HeaderKey::Key(key));
        }
    }
}
