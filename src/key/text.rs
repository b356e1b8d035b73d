//! Strings of canonical JSON, written and read back, and the parts of its arrays and objects.

#[cfg(any(feature = "batch", feature = "invocation"))]
pub(crate) fn write_string(out: &mut Vec<u8>, string: &str) {
    out.reserve(string.len() + 2);
    out.push(b'"');
    write_characters(out, string);
    out.push(b'"');
}

pub(super) fn write_characters(out: &mut Vec<u8>, characters: &str) {
    let mut rest = characters.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_len(rest));
        out.extend_from_slice(plain);
        let Some((&byte, tail)) = special.split_first() else { return };
        if byte < 0x20 {
            out.extend_from_slice(br"\u00");
            out.extend([byte >> 4, byte & 0xf].map(|nibble| b"0123456789abcdef"[usize::from(nibble)]));
        } else {
            out.extend([b'\\', byte]);
        }
        rest = tail;
    }
}

/// The number of bytes before the first that a string does not hold as it is: a quote, a backslash, a control character.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20).unwrap_or(bytes.len())
}

/// The text that a canonical string stands for.
#[cfg(all(feature = "jmespath", any(feature = "batch", feature = "invocation")))]
pub(crate) fn text(string: &[u8]) -> String {
    let bytes: Vec<u8> = unescaped(&string[1..string.len() - 1]).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The bytes that the inner part of a canonical string stands for.
pub(super) fn unescaped(string: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = string;
    std::iter::from_fn(move || {
        let (byte, tail) = match rest {
            [b'\\', b'u', b'0', b'0', high, low, tail @ ..] => (hex_digit(*high) << 4 | hex_digit(*low), tail),
            [b'\\', byte, tail @ ..] | [byte, tail @ ..] => (*byte, tail),
            [] => return None,
        };
        rest = tail;
        Some(byte)
    })
}

/// Of a canonical escape, so that it is one.
fn hex_digit(digit: u8) -> u8 {
    if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 }
}

/// The elements of a canonical array, or the `name:value` pairs of a canonical object.
pub(crate) fn entries(container: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = &container[1..container.len() - 1];
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = value_len(rest);
        if rest.get(end) == Some(&b':') {
            end += 1;
            end += value_len(&rest[end..]);
        }
        let entry = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(entry)
    })
}

/// The value of a `name:value` pair of a canonical object.
pub(crate) fn member_value(entry: &[u8]) -> &[u8] {
    &entry[value_len(entry) + 1..]
}

/// The length of the canonical value that the bytes begin with.
pub(crate) fn value_len(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at += string_len(&bytes[at..]) - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            b',' | b':' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
        if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
            return at;
        }
    }
    at
}

/// The length of the canonical string that the bytes begin with, with its quotes.
fn string_len(bytes: &[u8]) -> usize {
    let mut at = 1;
    loop {
        at += plain_len(&bytes[at..]);
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
}
