//! Reads and writes strings of canonical JSON, and splits its arrays and objects.

#[cfg(any(feature = "batch", feature = "http", feature = "invocation", feature = "powertools"))]
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

/// Returns the number of bytes before the first that a string must escape: a quote, a backslash or a control character.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let special = below(word, 0x20) | below(word ^ each(b'"'), 1) | below(word ^ each(b'\\'), 1);
        if special != 0 {
            return 8 * i + special.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
    8 * words.len() + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// Returns a word in which each byte is this one.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Marks the word's bytes below `limit`, which is at most 128. The lowest bit set is in the first such byte.
const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(each(limit)) & !word & each(0x80)
}

/// Returns the text of a canonical string. An unpaired surrogate is no character, and becomes
/// [`char::REPLACEMENT_CHARACTER`].
#[cfg(any(feature = "batch", feature = "http", feature = "invocation", feature = "powertools"))]
pub(crate) fn text(string: &[u8]) -> String {
    characters(string).map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Returns the characters of a canonical string, and the codes of its unpaired surrogates.
#[cfg(any(feature = "batch", feature = "http", feature = "invocation", feature = "powertools"))]
pub(crate) fn characters(string: &[u8]) -> impl Iterator<Item = Result<char, u32>> {
    let mut rest = std::str::from_utf8(&string[1..string.len() - 1]).unwrap_or_default();
    std::iter::from_fn(move || {
        if let Some(code) = rest.strip_prefix(r"\u").and_then(|digits| digits.get(..4)) {
            rest = &rest[6..];
            let code = code.bytes().fold(0, |code, digit| code << 4 | u32::from(hex_digit(digit)));
            return Some(char::from_u32(code).ok_or(code));
        }
        rest = rest.strip_prefix('\\').unwrap_or(rest);
        let mut characters = rest.chars();
        let character = characters.next()?;
        rest = characters.as_str();
        Some(Ok(character))
    })
}

/// Returns whether a string in canonical JSON has an unpaired surrogate.
#[cfg(all(feature = "jmespath", any(feature = "batch", feature = "http", feature = "invocation")))]
pub(super) fn has_surrogates(json: &[u8]) -> bool {
    let mut rest = json;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        rest = &rest[at + 1..];
        if rest.starts_with(b"ud") {
            return true;
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    false
}

/// Returns the unescaped bytes of the inner part of a canonical string. An unpaired surrogate is encoded as by UTF-8,
/// in a form that no valid text contains.
pub(super) fn unescaped(string: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = string;
    let (mut surrogate, mut left) = ([0; 2], 0);
    std::iter::from_fn(move || {
        if left > 0 {
            left -= 1;
            return Some(surrogate[1 - left]);
        }
        let (byte, tail) = match rest {
            [b'\\', b'u', b'0', b'0', high, low, tail @ ..] => (hex_digit(*high) << 4 | hex_digit(*low), tail),
            [b'\\', b'u', b'd', digits @ ..] => {
                let (digits, tail) = digits.split_at(3);
                let [high, middle, low] = [0, 1, 2].map(|nth| hex_digit(digits[nth]));
                surrogate = [0x80 | high << 2 | middle >> 2, 0x80 | (middle & 3) << 4 | low];
                left = 2;
                (0xed, tail)
            }
            [b'\\', byte, tail @ ..] | [byte, tail @ ..] => (*byte, tail),
            [] => return None,
        };
        rest = tail;
        Some(byte)
    })
}

/// Returns the value of a digit in a canonical escape, which is valid and in lower case.
fn hex_digit(digit: u8) -> u8 {
    if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 }
}

/// Returns the elements of a canonical array.
pub(crate) fn elements(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = &array[1..array.len() - 1];
    std::iter::from_fn(move || (!rest.is_empty()).then(|| take_value(&mut rest)))
}

/// Returns the names and values of the members of a canonical object.
pub(crate) fn members(object: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = &object[1..object.len() - 1];
    std::iter::from_fn(move || (!rest.is_empty()).then(|| (take_value(&mut rest), take_value(&mut rest))))
}

/// Takes the first value, and the comma or colon behind it.
fn take_value<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let (value, behind) = rest.split_at(value_len(rest));
    *rest = behind.get(1..).unwrap_or_default();
    value
}

/// Returns the length of the canonical value at the start.
fn value_len(bytes: &[u8]) -> usize {
    match bytes.first() {
        Some(b'"') => string_len(bytes),
        Some(b'{' | b'[') => container_len(bytes),
        _ => bytes.iter().position(|byte| matches!(byte, b',' | b'}' | b']')).unwrap_or(bytes.len()),
    }
}

/// Returns the length of the canonical array or object at the start.
fn container_len(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        match bytes[at] {
            b'"' => at += string_len(&bytes[at..]) - 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 1 => return at + 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

/// Returns the length of the canonical string at the start, including its quotes.
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
