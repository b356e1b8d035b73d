//! JSON text as Python's `json.dumps(value, sort_keys=True)` writes it.

use super::number;
use crate::key::text::{elements, members, text};

/// Of a value in canonical JSON, which has the members in the order that Python sorts them in: that of their code points.
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

/// What is not printable ASCII is escaped, with the digits in lower case.
fn write_string(out: &mut Vec<u8>, string: &[u8]) {
    out.push(b'"');
    for character in text(string).chars() {
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
