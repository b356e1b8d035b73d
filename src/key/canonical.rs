//! Canonical JSON: one text for all spellings of the same value.
//!
//! Members are sorted by name, white space is dropped, strings are written with the fewest escapes. Numbers keep the
//! digits they were written with, so that two numbers that differ never share a form, however large they are: RFC 8785
//! would merge integers beyond 2^53, and with them two different orders. `1` and `1.0` stay apart for the same reason.
//! A member that occurs twice is an error, since readers disagree on which one counts.
//!
//! One pass over the bytes, without a tree.

use std::fmt;

/// How deeply arrays and objects may be nested: the limit that `serde_json` has as well.
pub const MAX_DEPTH: usize = 128;

/// Why a text is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Not JSON by RFC 8259, from this byte on.
    Syntax {
        /// The offset of the byte.
        at: usize,
    },
    /// An object has the same member twice; the second one's value begins at this byte.
    DuplicateMember {
        /// The offset of the byte.
        at: usize,
    },
    /// More than [`MAX_DEPTH`] arrays and objects within each other.
    TooDeep,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { at } => write!(f, "not JSON at byte {at}"),
            Self::DuplicateMember { at } => write!(f, "a member occurs twice in one object, at byte {at}"),
            Self::TooDeep => write!(f, "nested more than {MAX_DEPTH} levels deep"),
        }
    }
}

/// The canonical form of a JSON text.
///
/// # Errors
///
/// See [`Problem`]. No part of the text is in the error.
pub fn canonical(text: &[u8]) -> Result<Vec<u8>, Problem> {
    let mut writer = Writer { text, at: 0, out: Vec::with_capacity(text.len()) };
    writer.skip_space();
    writer.value(0)?;
    writer.skip_space();
    match writer.peek() {
        None => Ok(writer.out),
        Some(_) => Err(writer.syntax()),
    }
}

struct Writer<'a> {
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

/// A member of an object that is being written: where its value lies in the output.
struct Member {
    name: String,
    start: usize,
    end: usize,
}

impl Writer<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn syntax(&self) -> Problem {
        Problem::Syntax { at: self.at }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Problem> {
        if self.peek() != Some(byte) {
            return Err(self.syntax());
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<(), Problem> {
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => {
                let string = self.string()?;
                write_string(&mut self.out, &string);
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            _ => Err(self.syntax()),
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Problem> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.syntax());
        }
        self.at += word.len();
        self.out.extend_from_slice(word);
        Ok(())
    }

    fn number(&mut self) -> Result<(), Problem> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.out.extend_from_slice(&self.text[start..self.at]);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Problem> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.syntax()) } else { Ok(()) }
    }

    fn array(&mut self, depth: usize) -> Result<(), Problem> {
        if depth > MAX_DEPTH {
            return Err(Problem::TooDeep);
        }
        self.at += 1;
        self.out.push(b'[');
        self.skip_space();
        if self.peek() != Some(b']') {
            loop {
                self.value(depth)?;
                self.skip_space();
                if self.peek() == Some(b']') {
                    break;
                }
                self.expect(b',')?;
                self.out.push(b',');
                self.skip_space();
            }
        }
        self.at += 1;
        self.out.push(b']');
        Ok(())
    }

    /// Members are written in the order they come, and put in order afterwards if they were not.
    fn object(&mut self, depth: usize) -> Result<(), Problem> {
        if depth > MAX_DEPTH {
            return Err(Problem::TooDeep);
        }
        self.at += 1;
        self.out.push(b'{');
        let body = self.out.len();
        let mut members: Vec<Member> = Vec::new();
        let mut in_order = true;
        self.skip_space();
        if self.peek() != Some(b'}') {
            loop {
                let name = self.string()?;
                self.skip_space();
                self.expect(b':')?;
                self.skip_space();
                if let Some(previous) = members.last() {
                    if name == previous.name {
                        return Err(Problem::DuplicateMember { at: self.at });
                    }
                    in_order &= name > previous.name;
                    self.out.push(b',');
                }
                let start = self.out.len();
                write_string(&mut self.out, &name);
                self.out.push(b':');
                self.value(depth)?;
                members.push(Member { name, start, end: self.out.len() });
                self.skip_space();
                if self.peek() == Some(b'}') {
                    break;
                }
                self.expect(b',')?;
                self.skip_space();
            }
        }
        self.at += 1;
        if !in_order {
            self.sort_members(body, members)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn sort_members(&mut self, body: usize, mut members: Vec<Member>) -> Result<(), Problem> {
        members.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if members.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err(Problem::DuplicateMember { at: self.at });
        }
        let mut sorted = Vec::with_capacity(self.out.len() - body);
        for member in &members {
            if !sorted.is_empty() {
                sorted.push(b',');
            }
            sorted.extend_from_slice(&self.out[member.start..member.end]);
        }
        self.out.truncate(body);
        self.out.append(&mut sorted);
        Ok(())
    }

    fn string(&mut self) -> Result<String, Problem> {
        self.expect(b'"')?;
        let mut decoded = Vec::new();
        loop {
            let run = self.at;
            while matches!(self.peek(), Some(byte) if byte != b'"' && byte != b'\\' && byte >= 0x20) {
                self.at += 1;
            }
            decoded.extend_from_slice(&self.text[run..self.at]);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape(&mut decoded)?,
                _ => return Err(self.syntax()),
            }
        }
        let end = self.at;
        self.at += 1;
        String::from_utf8(decoded).map_err(|_| Problem::Syntax { at: end })
    }

    fn escape(&mut self, decoded: &mut Vec<u8>) -> Result<(), Problem> {
        let start = self.at;
        self.at += 1;
        let byte = self.peek().ok_or_else(|| self.syntax())?;
        self.at += 1;
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let character = self.unicode_escape().ok_or(Problem::Syntax { at: start })?;
                decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(Problem::Syntax { at: start }),
        };
        decoded.push(plain);
        Ok(())
    }

    /// After `\u`. A high surrogate must be followed by the escape of a low one; neither may stand alone.
    fn unicode_escape(&mut self) -> Option<char> {
        let high = self.four_digits()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high);
        }
        if !self.text[self.at..].starts_with(br"\u") {
            return None;
        }
        self.at += 2;
        let low = self.four_digits()?;
        if !(0xdc00..0xe000).contains(&low) {
            return None;
        }
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
    }

    fn four_digits(&mut self) -> Option<u32> {
        let mut number = 0;
        for _ in 0..4 {
            number = number << 4 | char::from(self.peek()?).to_digit(16)?;
            self.at += 1;
        }
        Some(number)
    }
}

pub(crate) fn write_string(out: &mut Vec<u8>, string: &str) {
    out.push(b'"');
    for &byte in string.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(br#"\""#),
            b'\\' => out.extend_from_slice(br"\\"),
            0x00..0x20 => {
                out.extend_from_slice(br"\u00");
                out.extend([byte >> 4, byte & 0xf].map(|nibble| b"0123456789abcdef"[usize::from(nibble)]));
            }
            _ => out.push(byte),
        }
    }
    out.push(b'"');
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
            b'"' => {
                at += 1;
                while bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
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
