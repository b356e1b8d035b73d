//! JSON text as written by Python's `json.dumps(value, sort_keys=True)`.

use super::number;
use crate::key::text::{characters, elements, members};

/// Writes a value in canonical JSON, whose members already have Python's order, which is by code points.
pub(super) fn write(out: &mut Vec<u8>, json: &[u8]) {
    match json.first() {
        Some(b'"') => write_string(out, json),
        Some(b'[') => {
            out.push(b'[');
            for (i, element) in elements(json).enumerate() {
                if i > 0 {
                    out.extend_from_slice(b", ");
                }
                write(out, element);
            }
            out.push(b']');
        }
        Some(b'{') => {
            out.push(b'{');
            for (i, (name, value)) in members(json).enumerate() {
                if i > 0 {
                    out.extend_from_slice(b", ");
                }
                write_string(out, name);
                out.extend_from_slice(b": ");
                write(out, value);
            }
            out.push(b'}');
        }
        Some(b'-' | b'0'..=b'9') => out.extend(number::python(&String::from_utf8_lossy(json)).bytes()),
        _ => out.extend_from_slice(json),
    }
}

/// Writes a string. Characters other than printable ASCII are escaped, with lowercase digits.
fn write_string(out: &mut Vec<u8>, string: &[u8]) {
    out.push(b'"');
    for character in characters(string) {
        let character = match character {
            Ok(character) => character,
            Err(surrogate) => {
                out.extend(format!("\\u{surrogate:04x}").bytes());
                continue;
            }
        };
        match character {
            '"' => out.extend_from_slice(br#"\""#),
            '\\' => out.extend_from_slice(br"\\"),
            '\n' => out.extend_from_slice(br"\n"),
            '\r' => out.extend_from_slice(br"\r"),
            '\t' => out.extend_from_slice(br"\t"),
            '\u{c}' => out.extend_from_slice(br"\f"),
            '\u{8}' => out.extend_from_slice(br"\b"),
            ' '..='~' => out.push(character as u8),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    out.extend(format!("\\u{unit:04x}").bytes());
                }
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::canonical::canonical;

    #[test]
    fn half_of_a_surrogate_pair_is_an_escape() {
        let json = canonical(br#"["\uD83D","\ud83d\ude00","\u00e9"]"#).expect("it is JSON");
        let (mut python, mut typescript) = (Vec::new(), Vec::new());
        write(&mut python, &json);
        crate::key::powertools::typescript::write(&mut typescript, &json);
        assert_eq!(String::from_utf8_lossy(&python), r#"["\ud83d", "\ud83d\ude00", "\u00e9"]"#);
        assert_eq!(String::from_utf8_lossy(&typescript), "[\"\\ud83d\",\"😀\",\"é\"]");
    }
}
