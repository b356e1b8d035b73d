//! Splits multipart bodies into parts (RFC 2046, section 5.1), so that the boundary, which may change with each attempt, is not
//! compared.

use http::HeaderValue;

/// The longest boundary.
const MAX_BOUNDARY: usize = 70;

/// Returns the preamble, the parts with their headers, and the epilogue, or `None` if the body is malformed. Two bodies with the
/// same pieces differ only in their boundaries. No piece contains its own boundary, because some parsers would find another part
/// there.
pub(super) fn pieces<'a>(content_type: &HeaderValue, body: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    let dashed = [b"--", &boundary(content_type.as_bytes())?[..]].concat();
    let delimiter = [b"\r\n", &dashed[..]].concat();
    let (preamble, mut rest) = match body.strip_prefix(&dashed[..]) {
        Some(rest) => (&b""[..], rest),
        None => split_at(body, &delimiter)?,
    };
    let mut pieces = vec![preamble];
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            pieces.push(after_line(end).or_else(|| without_padding(end).is_empty().then_some(b""))?);
            let has_boundary = |piece: &&[u8]| piece.windows(dashed.len()).any(|bytes| bytes == dashed);
            return (!pieces.iter().any(has_boundary)).then_some(pieces);
        }
        let begin = after_line(rest)?;
        // Parsers disagree on a delimiter line right after another.
        if begin.starts_with(&dashed) {
            return None;
        }
        let (part, next) = split_at(begin, &delimiter)?;
        pieces.push(part);
        rest = next;
    }
}

/// Returns the bytes after the line of a delimiter, whose padding is ignored.
fn after_line(rest: &[u8]) -> Option<&[u8]> {
    without_padding(rest).strip_prefix(b"\r\n")
}

fn without_padding(rest: &[u8]) -> &[u8] {
    let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &rest[padding..]
}

/// Splits at the first `delimiter`, which begins with a carriage return.
fn split_at<'a>(bytes: &'a [u8], delimiter: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut from = 0;
    loop {
        from += bytes.get(from..)?.iter().position(|&byte| byte == b'\r')?;
        if let Some(rest) = bytes[from..].strip_prefix(delimiter) {
            return Some((&bytes[..from], rest));
        }
        from += 1;
    }
}

/// The boundary of a content type; `None` unless it has exactly one, and that is well-formed.
fn boundary(content_type: &[u8]) -> Option<Vec<u8>> {
    let mut rest = &content_type[content_type.iter().position(|&byte| byte == b';')?..];
    let mut found = None;
    while !rest.is_empty() {
        rest = rest.strip_prefix(b";")?.trim_ascii_start();
        if rest.is_empty() || rest.starts_with(b";") {
            continue;
        }
        let equals = rest.iter().position(|byte| matches!(byte, b'=' | b';'))?;
        let (name, value) = (&rest[..equals], rest[equals..].strip_prefix(b"=")?);
        let value_of_parameter;
        (value_of_parameter, rest) = value_and_rest(value)?;
        if name.eq_ignore_ascii_case(b"boundary") && found.replace(value_of_parameter).is_some() {
            return None;
        }
    }
    found.filter(|boundary| is_boundary(boundary))
}

/// Returns a parameter's value, quoted or not, and the rest after it, which is empty or the next parameter.
fn value_and_rest(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(mut rest) = text.strip_prefix(b"\"") else {
        let (value, rest) = text.split_at(text.iter().position(|&byte| byte == b';').unwrap_or(text.len()));
        return Some((value.trim_ascii_end().to_vec(), rest));
    };
    let mut value = Vec::new();
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => {
                rest = rest.trim_ascii_start();
                return (rest.is_empty() || rest.starts_with(b";")).then_some((value, rest));
            }
            b'\\' => {
                let (&escaped, after) = rest.split_first()?;
                value.push(escaped);
                rest = after;
            }
            byte => value.push(byte),
        }
    }
}

/// Whether a boundary is 1 to 70 of the characters that RFC 2046 allows. Many clients do not quote characters that a token
/// cannot contain.
fn is_boundary(text: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    (1..=MAX_BOUNDARY).contains(&text.len()) && text.iter().all(is_allowed) && !text.ends_with(b" ")
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn of(boundary: &str, body: &str) -> Option<Vec<String>> {
        let content_type = HeaderValue::from_str(&format!("multipart/form-data; boundary={boundary}")).unwrap();
        let pieces = pieces(&content_type, body.as_bytes())?;
        Some(pieces.into_iter().map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect())
    }

    #[test]
    fn a_body_is_taken_apart_at_its_boundary() {
        let two = "--x\r\nA: 1\r\n\r\none\r\n--x\r\n\r\ntwo\r\n\r\n--x--\r\n";
        let pieces = ["", "A: 1\r\n\r\none", "\r\ntwo\r\n", ""];
        assert_eq!(of("x", two).unwrap(), pieces);
        assert_eq!(of("\"a 'b?\"", &two.replace("--x", "--a 'b?")).unwrap(), pieces);
        assert_eq!(of("\"\\x\" ; charset=utf-8", two).unwrap(), pieces);
        assert_eq!(of("x;;charset=\"a;boundary=b\"; ", two).unwrap(), pieces);
        assert_eq!(of("----=_Part/1", &two.replace("--x", "------=_Part/1")).unwrap(), pieces);
        // Padding, no last line break, a preamble and an epilogue.
        assert_eq!(of("x", "--x \t\r\n\r\none\r\n--x-- ").unwrap(), ["", "\r\none", ""]);
        assert_eq!(of("x", "pre\r\n--x\r\n\r\none\r\n--x--\r\nepi\r\n").unwrap(), ["pre", "\r\none", "epi\r\n"]);
        assert_eq!(of("x", "--x--").unwrap(), ["", ""]);
    }

    #[test]
    fn a_malformed_multipart_body_is_not_split() {
        const GOOD: &str = "--x\r\n\r\none\r\n--x--\r\n";
        assert!(of("x", GOOD).is_some());
        for body in [
            "",
            "one",
            "--x",
            "--x\r\n",
            "--x\r\n\r\none",
            "--x\r\n\r\none\r\n--x",
            "--x\r\n\r\none\r\n--x-",
            "--x\r\n\r\none\r\n--xy--",
            "--x\r\n\r\none\r\n--x--y",
            "--x\n\none\n--x--\n",
            "--x\r\n--x--",
            "junk--x\r\n--x\r\n\r\none\r\n--x--",
            "--x\r\n\r\none\n--x\n\ntwo\r\n--x--",
        ] {
            assert_eq!(of("x", body), None, "{body:?}");
        }
        let long = "y".repeat(71);
        assert_eq!(of(&long, &GOOD.replace('x', &long)), None);
        assert!(of(&long[..70], &GOOD.replace('x', &long[..70])).is_some());
        for boundary in ["", "\"\"", "\"x", "\"x \"", "\"x\" y", "x; boundary=x", "x; Boundary=y", "*", "x;y"] {
            assert_eq!(of(boundary, &GOOD.replace('x', boundary.trim_matches('"'))), None, "{boundary}");
        }
        let content_type = HeaderValue::from_static("multipart/form-data");
        assert_eq!(pieces(&content_type, GOOD.as_bytes()), None);
    }

    /// A body with these parts, between which no boundary of these tests occurs.
    fn built(boundary: &str, parts: &[String]) -> String {
        let parts: String = parts.iter().map(|part| format!("--{boundary}\r\n{part}\r\n")).collect();
        format!("{parts}--{boundary}--\r\n")
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_parts_whatever_the_boundary(
            boundary in "[0-9A-Za-z'+_,./:=?()-]{1,70}", parts in vec("[\r\n a;:-]{0,12}", 0..4),
        ) {
            prop_assume!(parts.iter().all(|part| !format!("{part}\r\n").contains(&format!("--{boundary}"))));
            let pieces = of(&format!("\"{boundary}\""), &built(&boundary, &parts)).unwrap();
            prop_assert_eq!(&pieces[1..pieces.len() - 1], &parts[..]);
        }

        #[test]
        fn no_header_and_no_body_makes_it_fail(header in "[ -~]{0,40}", body in vec(any::<u8>(), 0..60)) {
            let content_type = HeaderValue::from_str(&format!("multipart/form-data;{header}")).unwrap();
            let _ = pieces(&content_type, &body);
        }
    }
}
