//! Texts of a decoder's errors, without what they quote of the body.

use serde_json::Value;

/// Longer texts are cut.
const MAX_CHARS: usize = 200;

/// A shorter part of a value is no quotation: it occurs in any text.
const SHORTEST_PART: usize = 4;

const REDACTED: &str = "…";

/// The text, with each word left out that is a value in the body, or a part of one.
pub(super) fn redacted(text: &str, body: &[u8]) -> String {
    let values = Values::of(body);
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = rest.find(|next| is_separator(next) != is_separator(first)).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(len);
        let is_quoted = !is_separator(first) && values.have(run.trim_end_matches(['.', ':', '!', '?']));
        out.push_str(if is_quoted { REDACTED } else { run });
        rest = tail;
    }
    match out.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => out[..end].to_owned() + REDACTED,
        None => out,
    }
}

fn is_separator(character: char) -> bool {
    character.is_whitespace() || "\"'`,;()[]{}<>=|".contains(character)
}

/// The values of a body.
enum Values<'a> {
    Json(Vec<String>),
    /// Not JSON: any part of it counts.
    Bytes(&'a [u8]),
}

impl<'a> Values<'a> {
    fn of(body: &'a [u8]) -> Self {
        let Ok(json) = serde_json::from_slice::<Value>(body) else { return Self::Bytes(body) };
        let (mut values, mut open) = (Vec::new(), vec![json]);
        while let Some(value) = open.pop() {
            match value {
                Value::Array(elements) => open.extend(elements),
                Value::Object(members) => open.extend(members.into_iter().map(|(_, value)| value)),
                Value::String(text) => values.push(text),
                Value::Number(number) => values.push(number.to_string()),
                Value::Null | Value::Bool(_) => {}
            }
        }
        Self::Json(values)
    }

    fn have(&self, word: &str) -> bool {
        let is_part = word.len() >= SHORTEST_PART;
        match self {
            Self::Json(values) => values.iter().any(|value| value == word || is_part && value.contains(word)),
            Self::Bytes(body) => is_part && body.windows(word.len()).any(|part| part == word.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_says_by_itself_is_told() {
        assert_eq!(redacted("schema 7 is not known", b"\0\0\0\0\x07avro"), "schema 7 is not known");
        assert_eq!(redacted("missing field `order_id`", br#"{"id":"A"}"#), "missing field `order_id`");
        assert_eq!(redacted("the version is too old", br#"{"version":12}"#), "the version is too old");
    }

    #[test]
    fn what_it_quotes_of_the_bodys_values_is_left_out() {
        let body = br#"{"card":"4111 1111 1111 1111","cents":995,"name":"J\u00fcrgen","tags":[{"note":"secret-7"}]}"#;
        for (text, said) in [
            ("invalid type: string \"secret-7\", expected u64", "invalid type: string \"…\", expected u64"),
            ("invalid value: integer `995`, expected a char", "invalid value: integer `…`, expected a char"),
            ("no card 4111 1111 1111 1111.", "no card … … … …"),
            ("who is Jürgen?", "who is …"),
            ("note=secret", "note=…"),
        ] {
            assert_eq!(redacted(text, body), said);
        }
        assert_eq!(redacted("bad line: Meier;Hans", b"Meier;Hans;7"), "bad line: …;…");
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = redacted(&"ä".repeat(1_000), b"{}");
        assert_eq!((long.chars().count(), long.ends_with(REDACTED)), (201, true));
    }
}
