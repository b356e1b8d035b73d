//! Canonical JSON: the same text for all spellings of a value.
//!
//! ```
//! use lambda_once::key::canonical::canonical;
//!
//! let spelled = canonical(br#"{ "id" : "\u0041", "cents" : 1.50 }"#);
//! assert_eq!(spelled.as_deref(), Ok(&br#"{"cents":1.50,"id":"A"}"#[..]));
//! assert!(canonical(br#"{"id": 1, "id": 2}"#).is_err());
//! ```
//!
//! Members are sorted by name, white space is removed, and strings are written with the fewest escapes. Numbers keep
//! their digits, so that different numbers never share a form, however large they are. RFC 8785 would merge integers
//! beyond 2^53, and with them different orders. For the same reason `1` and `1.0` differ. A member that occurs twice is
//! an error, because parsers disagree about the one that counts. RFC 8259 (8.2) allows an escape of half a surrogate
//! pair, which represents no character, so it stays an escape.
//!
//! The conversion is a single pass over the bytes, without a tree and without copies of strings.

use std::{cmp::Ordering, fmt};

use super::text::{plain_len, unescaped, write_characters};

/// The interpretation of a payload's bytes. The form is part of the hash, so that bytes never equal JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    CanonicalJson,
    Bytes,
}

/// The maximum nesting depth of arrays and objects, which is the same as in `serde_json`.
pub const MAX_DEPTH: usize = 128;

/// The reason why a text has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Not JSON by RFC 8259.
    Syntax {
        /// The offset of the first invalid byte.
        at: usize,
    },
    /// An object that contains the same member twice.
    DuplicateMember {
        /// The offset of the second member's value if it directly follows the first, or else of the end of the object.
        at: usize,
    },
    /// More than [`MAX_DEPTH`] nested arrays and objects.
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

/// Returns the canonical form of a JSON text.
///
/// # Errors
///
/// See [`Problem`]. The error contains no part of the text.
pub fn canonical(text: &[u8]) -> Result<Vec<u8>, Problem> {
    let valid = std::str::from_utf8(text).map_or_else(|error| error.valid_up_to(), str::len);
    // Unsorted members are sorted behind the written text, which needs space.
    let (out, members) = (Vec::with_capacity(2 * text.len()), Vec::with_capacity(MEMBERS));
    let mut writer = Writer { text, valid, at: 0, out, members };
    writer.skip_space();
    writer.value(0)?;
    writer.skip_space();
    match writer.peek() {
        None => Ok(writer.out),
        Some(_) => Err(writer.syntax()),
    }
}

/// Space for the members of most messages, in less than a kibibyte.
const MEMBERS: usize = 20;

struct Writer<'a> {
    text: &'a [u8],
    /// The length of the text that is valid UTF-8.
    valid: usize,
    at: usize,
    out: Vec<u8>,
    /// The members of all objects that are being written, with the members of inner objects last.
    members: Vec<Member>,
}

/// The position in the output of a member of an object that is being written.
#[derive(Clone, Copy)]
struct Member {
    /// The start of its name, at the quote.
    start: usize,
    /// The end of its name, before the quote.
    name_end: usize,
    end: usize,
    /// The first bytes of its unescaped name, padded with zeros. Most names differ there.
    name_begins: u64,
    /// Whether its name has escapes.
    escaped: bool,
}

impl Member {
    /// Creates a member whose name is the last text written, from `start` on.
    fn new(out: &[u8], start: usize, escaped: bool) -> Self {
        let name_end = out.len() - 1;
        let name = &out[start + 1..name_end];
        let mut begins = [0; 8];
        match name.first_chunk() {
            _ if escaped => begins.iter_mut().zip(unescaped(name)).for_each(|(byte, of_name)| *byte = of_name),
            Some(first) => begins = *first,
            None => begins[..name.len()].copy_from_slice(name),
        }
        Self { start, name_end, end: 0, name_begins: u64::from_be_bytes(begins), escaped }
    }

    fn compare_names(&self, other: &Self, out: &[u8]) -> Ordering {
        self.name_begins.cmp(&other.name_begins).then_with(|| {
            let [ours, theirs] = [self, other].map(|member| &out[member.start + 1..member.name_end]);
            if self.escaped || other.escaped { unescaped(ours).cmp(unescaped(theirs)) } else { ours.cmp(theirs) }
        })
    }
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
            Some(b'"') => self.string().map(drop),
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

    /// Writes members in their original order, and sorts them afterwards if necessary.
    fn object(&mut self, depth: usize) -> Result<(), Problem> {
        if depth > MAX_DEPTH {
            return Err(Problem::TooDeep);
        }
        self.at += 1;
        self.out.push(b'{');
        let first = self.members.len();
        let mut in_order = true;
        self.skip_space();
        if self.peek() != Some(b'}') {
            loop {
                let start = self.out.len();
                let escaped = self.string()?;
                let mut member = Member::new(&self.out, start, escaped);
                self.skip_space();
                self.expect(b':')?;
                self.skip_space();
                if let Some(previous) = self.members[first..].last() {
                    match member.compare_names(previous, &self.out) {
                        Ordering::Equal => return Err(Problem::DuplicateMember { at: self.at }),
                        Ordering::Less => in_order = false,
                        Ordering::Greater => {}
                    }
                }
                self.out.push(b':');
                self.value(depth)?;
                member.end = self.out.len();
                self.members.push(member);
                self.skip_space();
                if self.peek() == Some(b'}') {
                    break;
                }
                self.expect(b',')?;
                self.out.push(b',');
                self.skip_space();
            }
        }
        self.at += 1;
        if !in_order {
            self.sort_members(first)?;
        }
        self.members.truncate(first);
        self.out.push(b'}');
        Ok(())
    }

    /// Sorts the members of the innermost object, which lacks only its closing brace.
    fn sort_members(&mut self, first: usize) -> Result<(), Problem> {
        let Self { out, members, .. } = self;
        let members = &mut members[first..];
        let (body, end) = (members[0].start, out.len());
        members.sort_unstable_by(|a, b| a.compare_names(b, out));
        if members.windows(2).any(|pair| pair[0].compare_names(&pair[1], out) == Ordering::Equal) {
            return Err(Problem::DuplicateMember { at: self.at });
        }
        for member in members {
            if out.len() > end {
                out.push(b',');
            }
            out.extend_from_within(member.start..member.end);
        }
        out.copy_within(end.., body);
        out.truncate(end);
        Ok(())
    }

    /// Writes a string. Returns whether its canonical form has escapes.
    fn string(&mut self) -> Result<bool, Problem> {
        let (text, start) = (self.text, self.at);
        self.expect(b'"')?;
        self.at += plain_len(&text[self.at..]);
        let mut escaped = false;
        // Most strings are written unchanged, including their quotes.
        let mut run = start;
        while self.peek() != Some(b'"') {
            self.out.extend_from_slice(&text[run..self.at]);
            match self.peek() {
                Some(b'\\') => escaped |= self.escape()?,
                _ => return Err(self.syntax()),
            }
            run = self.at;
            self.at += plain_len(&text[run..]);
        }
        if self.valid < self.at {
            return Err(self.syntax());
        }
        self.at += 1;
        self.out.extend_from_slice(&text[run..self.at]);
        Ok(escaped)
    }

    /// Writes an escaped character. Returns whether it is written as an escape.
    fn escape(&mut self) -> Result<bool, Problem> {
        let start = self.at;
        self.at += 1;
        let byte = self.peek().ok_or_else(|| self.syntax())?;
        self.at += 1;
        let character = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => match self.unicode_escape().ok_or(Problem::Syntax { at: start })? {
                Ok(character) => character,
                Err(surrogate) => {
                    self.out.extend_from_slice(format!("\\u{surrogate:04x}").as_bytes());
                    return Ok(true);
                }
            },
            _ => return Err(Problem::Syntax { at: start }),
        };
        let before = self.out.len();
        write_characters(&mut self.out, character.encode_utf8(&mut [0; 4]));
        Ok(self.out[before] == b'\\')
    }

    /// Reads the rest of an escape after `\u`. Returns the character, or the code of a lone surrogate. A high surrogate
    /// forms a character with the escape of a low one that follows.
    fn unicode_escape(&mut self) -> Option<Result<char, u32>> {
        let high = self.four_digits()?;
        let behind = self.at;
        if (0xd800..0xdc00).contains(&high) && self.text[self.at..].starts_with(br"\u") {
            self.at += 2;
            let low = self.four_digits()?;
            if (0xdc00..0xe000).contains(&low) {
                return char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).map(Ok);
            }
            self.at = behind;
        }
        Some(char::from_u32(high).ok_or(high))
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
