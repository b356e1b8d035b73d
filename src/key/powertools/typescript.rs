//! JSON text as written by `JSON.stringify(deepSort(value))`.

use super::number;
use crate::key::text::{characters, elements, members, text};

/// The largest array index of ECMAScript. Greater numbers are ordinary names.
/// <https://tc39.es/ecma262/#array-index>
const MAX_INDEX: u32 = u32::MAX - 1;

/// Writes a value in canonical JSON.
pub(super) fn write(out: &mut Vec<u8>, json: &[u8]) {
    match json.first() {
        Some(b'"') => write_string(out, json),
        Some(b'[') => {
            out.push(b'[');
            for (i, element) in elements(json).enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write(out, element);
            }
            out.push(b']');
        }
        Some(b'{') => write_object(out, json),
        Some(b'-' | b'0'..=b'9') => out.extend(number::typescript(&String::from_utf8_lossy(json)).bytes()),
        _ => out.extend_from_slice(json),
    }
}

/// Writes an object: array indices first and in order, then names in the order in which `deepSort` adds them.
fn write_object(out: &mut Vec<u8>, json: &[u8]) {
    let mut sorted: Vec<(Place, &[u8], &[u8])> = members(json)
        // Assigning to it sets the prototype, and adds no member.
        .filter(|(name, _)| *name != br#""__proto__""#)
        .map(|(name, value)| (Place::of(&text(name)), name, value))
        .collect();
    sorted.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    out.push(b'{');
    for (i, (_, name, value)) in sorted.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_string(out, name);
        out.push(b':');
        write(out, value);
    }
    out.push(b'}');
}

/// The position of a member in its object.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Index(u32),
    /// Sorted by the UTF-16 code units of the name in lower case.
    Name(Vec<u16>),
}

impl Place {
    fn of(name: &str) -> Self {
        let is_canonical = name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
        match name.parse() {
            Ok(index) if is_canonical && index <= MAX_INDEX => Self::Index(index),
            _ => Self::Name(name.to_lowercase().encode_utf16().collect()),
        }
    }
}

/// Writes a string. Only quotes, backslashes, control characters and unpaired surrogates are escaped.
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
            '\0'..' ' => out.extend(format!("\\u{:04x}", u32::from(character)).bytes()),
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}
