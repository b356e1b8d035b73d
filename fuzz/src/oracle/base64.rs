//! Base64 by RFC 4648, section 4.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes, with padding.
pub fn encoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, i| bits << 8 | chunk.get(i).copied().map_or(0, usize::from));
        for i in 0..4 {
            let digit = char::from(ALPHABET[bits >> (18 - 6 * i) & 63]);
            text.push(if i <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

/// Decodes a text with padding, or returns `None` for anything else.
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for chunk in text.as_bytes().chunks(4) {
        let mut bits = 0;
        let digits = chunk.iter().take_while(|byte| **byte != b'=').count();
        for i in 0..4 {
            let byte = *chunk.get(i)?;
            let digit = if i < digits { ALPHABET.iter().position(|digit| *digit == byte)? } else { 0 };
            if i >= digits && byte != b'=' {
                return None;
            }
            bits = bits << 6 | digit;
        }
        if digits < 2 {
            return None;
        }
        bytes.extend_from_slice(&[(bits >> 16) as u8, (bits >> 8) as u8, bits as u8][..digits - 1]);
    }
    (encoded(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4648() {
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(encoded(plain.as_bytes()), text);
            assert_eq!(decoded(text).as_deref(), Some(plain.as_bytes()));
        }
        for text in ["Z", "Zg", "Zg=", "Zh==", "Zg==Zg==", "Z===", "====", "Zm9v "] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }
}
