//! The key in an `Idempotency-Key` header: a string of RFC 8941, section 3.3.3, without parameters, or a bare key.

const MAX_CHARACTERS: usize = 255;

/// Returns the key, or `None` if the value is malformed.
pub fn key(value: &[u8]) -> Option<Vec<u8>> {
    let start = value.iter().position(|byte| !matches!(byte, b' ' | b'\t'))?;
    let end = value.iter().rposition(|byte| !matches!(byte, b' ' | b'\t'))?;
    let value = &value[start..=end];
    let key = match value {
        [b'"', rest @ ..] => string(rest)?,
        _ => value.iter().all(|byte| matches!(byte, 0x21..=0x7e) && !b",\"".contains(byte)).then(|| value.to_vec())?,
    };
    (1..=MAX_CHARACTERS).contains(&key.len()).then_some(key)
}

/// Parses by the algorithm in section 4.2.5, from behind the opening quote. The closing one must be the last byte.
fn string(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    loop {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        match byte {
            b'"' => return rest.is_empty().then_some(key),
            b'\\' => {
                let (escaped @ (b'"' | b'\\'), behind) = rest.split_first()? else { return None };
                rest = behind;
                key.push(*escaped);
            }
            0x20..=0x7e => key.push(*byte),
            _ => return None,
        }
    }
}

/// Returns a quoted spelling of a key.
pub fn quoted(key: &[u8]) -> Vec<u8> {
    let mut value = vec![b'"'];
    for byte in key {
        if matches!(byte, b'"' | b'\\') {
            value.push(b'\\');
        }
        value.push(*byte);
    }
    value.push(b'"');
    value
}
