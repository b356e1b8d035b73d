//! JSON by RFC 8259, as a tree that keeps the digits of numbers, repeated members and unpaired surrogates.

use std::fmt::Write;

use crate::input::Input;

/// A JSON value. Strings are UTF-16, in which an unpaired surrogate can be represented.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, with its digits.
    Number(String),
    /// A string.
    Text(Vec<u16>),
    /// An array.
    Array(Vec<Json>),
    /// An object, with its members in their order.
    Object(Vec<(Vec<u16>, Json)>),
}

/// Parses a text, or returns `None` if it is not JSON in UTF-8, or nested more than `max_depth` levels deep.
pub fn parse(text: &[u8], max_depth: usize) -> Option<Json> {
    let characters: Vec<char> = std::str::from_utf8(text).ok()?.chars().collect();
    let mut parser = Parser { characters, at: 0, max_depth };
    let value = parser.value(0)?;
    (parser.at == parser.characters.len()).then_some(value)
}

struct Parser {
    characters: Vec<char>,
    at: usize,
    max_depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        self.at += usize::from(is_there);
        is_there
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|character| " \t\r\n".contains(character)) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Option<Json> {
        word.chars().all(|character| self.eat(character)).then_some(value)
    }

    /// Parses a value with the white space around it.
    fn value(&mut self, depth: usize) -> Option<Json> {
        self.space();
        let value = match self.peek()? {
            'n' => self.word("null", Json::Null)?,
            't' => self.word("true", Json::Bool(true))?,
            'f' => self.word("false", Json::Bool(false))?,
            '"' => Json::Text(self.text()?),
            '[' => Json::Array(self.listed(depth, ']', Self::value)?),
            '{' => Json::Object(self.listed(depth, '}', Self::member)?),
            _ => Json::Number(self.number()?),
        };
        self.space();
        Some(value)
    }

    fn member(&mut self, depth: usize) -> Option<(Vec<u16>, Json)> {
        self.space();
        let name = self.text()?;
        self.space();
        if !self.eat(':') {
            return None;
        }
        Some((name, self.value(depth)?))
    }

    fn listed<T>(&mut self, depth: usize, end: char, item: impl Fn(&mut Self, usize) -> Option<T>) -> Option<Vec<T>> {
        if depth == self.max_depth {
            return None;
        }
        self.at += 1;
        self.space();
        let mut items = Vec::new();
        if self.eat(end) {
            return Some(items);
        }
        loop {
            items.push(item(self, depth + 1)?);
            if self.eat(end) {
                return Some(items);
            }
            if !self.eat(',') {
                return None;
            }
        }
    }

    fn number(&mut self) -> Option<String> {
        let start = self.at;
        self.eat('-');
        if !self.eat('0') {
            self.digits()?;
        }
        if self.eat('.') {
            self.digits()?;
        }
        if self.eat('e') || self.eat('E') {
            let _ = self.eat('+') || self.eat('-');
            self.digits()?;
        }
        Some(self.characters[start..self.at].iter().collect())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|character| character.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn text(&mut self) -> Option<Vec<u16>> {
        if !self.eat('"') {
            return None;
        }
        let mut units = Vec::new();
        loop {
            let character = self.peek()?;
            self.at += 1;
            match character {
                '"' => return Some(units),
                '\\' => units.push(self.escaped()?),
                '\0'..' ' => return None,
                _ => units.extend_from_slice(character.encode_utf16(&mut [0; 2])),
            }
        }
    }

    fn escaped(&mut self) -> Option<u16> {
        let character = self.peek()?;
        self.at += 1;
        Some(match character {
            'b' => 8,
            't' => 9,
            'n' => 10,
            'f' => 12,
            'r' => 13,
            '"' | '\\' | '/' => character as u16,
            'u' => {
                let digits: String = self.characters.get(self.at..self.at + 4)?.iter().collect();
                self.at += 4;
                // `from_str_radix` alone would accept a sign.
                digits
                    .chars()
                    .all(|digit| digit.is_ascii_hexdigit())
                    .then(|| u16::from_str_radix(&digits, 16).ok())??
            }
            _ => return None,
        })
    }
}

/// Returns the code points of a string. An unpaired surrogate is its own.
pub fn code_points(units: &[u16]) -> Vec<u32> {
    let decoded = char::decode_utf16(units.iter().copied());
    decoded.map(|unit| unit.map_or_else(|error| u32::from(error.unpaired_surrogate()), u32::from)).collect()
}

impl Json {
    /// Creates a string.
    pub fn text(text: &str) -> Self {
        Self::Text(text.encode_utf16().collect())
    }

    /// Returns the value with sorted members, or `None` if an object has one twice.
    pub fn sorted(&self) -> Option<Self> {
        Some(match self {
            Self::Array(items) => Self::Array(items.iter().map(Self::sorted).collect::<Option<_>>()?),
            Self::Object(members) => {
                let sorted = members.iter().map(|(name, value)| Some((name.clone(), value.sorted()?)));
                let mut sorted: Vec<_> = sorted.collect::<Option<_>>()?;
                sorted.sort_by_key(|(name, _)| code_points(name));
                if sorted.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                    return None;
                }
                Self::Object(sorted)
            }
            _ => self.clone(),
        })
    }

    /// Returns the value at a JSON Pointer's names.
    pub fn at(&self, names: &[String]) -> Option<&Self> {
        names.iter().try_fold(self, |value, name| match value {
            Self::Object(members) => {
                let units: Vec<u16> = name.encode_utf16().collect();
                members.iter().find(|(of_member, _)| *of_member == units).map(|(_, value)| value)
            }
            Self::Array(items) => {
                let is_index = name == "0" || !name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit());
                items.get(name.parse::<usize>().ok().filter(|_| is_index)?)
            }
            _ => None,
        })
    }

    /// Returns whether it is `null`, or a string, an array or an object that is empty.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Text(units) => units.is_empty(),
            Self::Array(items) => items.is_empty(),
            Self::Object(members) => members.is_empty(),
            Self::Bool(_) | Self::Number(_) => false,
        }
    }

    /// Returns whether it is empty, or has something empty in it.
    pub fn has_empty(&self) -> bool {
        self.is_empty()
            || match self {
                Self::Array(items) => items.iter().any(Self::has_empty),
                Self::Object(members) => members.iter().any(|(_, value)| value.has_empty()),
                _ => false,
            }
    }

    /// Draws a value.
    pub fn draw(input: &mut Input<'_>, depth: usize) -> Self {
        match input.below(if depth == 0 { 6 } else { 10 }) {
            0 => Self::Null,
            1 => Self::Bool(input.one_in(2)),
            2 | 3 => Self::Number(input.json_number()),
            4 | 5 => Self::Text(draw_text(input)),
            6 | 7 => Self::Array((0..input.below(5)).map(|_| Self::draw(input, depth - 1)).collect()),
            _ => Self::Object((0..input.below(6)).map(|_| (draw_text(input), Self::draw(input, depth - 1))).collect()),
        }
    }

    /// Writes the value in one of its spellings: any white space, escapes and order of members.
    pub fn spell(&self, input: &mut Input<'_>, out: &mut String) {
        space(input, out);
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(digits) => out.push_str(digits),
            Self::Text(units) => spell_text(units, input, out),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    item.spell(input, out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                let first = if members.is_empty() { 0 } else { input.below(members.len()) };
                for i in 0..members.len() {
                    let (name, value) = &members[(first + i) % members.len()];
                    out.push_str(if i > 0 { "," } else { "" });
                    space(input, out);
                    spell_text(name, input, out);
                    space(input, out);
                    out.push(':');
                    value.spell(input, out);
                }
                out.push('}');
            }
        }
        space(input, out);
    }
}

fn draw_text(input: &mut Input<'_>) -> Vec<u16> {
    let mut units: Vec<u16> = input.text(10).encode_utf16().collect();
    if input.one_in(8) {
        units.push(0xd800 | input.number() as u16 & 0x7ff);
    }
    units
}

fn space(input: &mut Input<'_>, out: &mut String) {
    if input.one_in(4) {
        out.push(*input.pick(&[' ', '\t', '\r', '\n']));
    }
}

fn spell_text(units: &[u16], input: &mut Input<'_>, out: &mut String) {
    out.push('"');
    for unit in char::decode_utf16(units.iter().copied()) {
        let Ok(character) = unit.map_err(|error| escape(error.unpaired_surrogate(), input, out)) else { continue };
        let is_required = character < ' ' || character == '"' || character == '\\';
        if is_required || input.one_in(5) {
            character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escape(*unit, input, out));
        } else {
            out.push(character);
        }
    }
    out.push('"');
}

fn escape(unit: u16, input: &mut Input<'_>, out: &mut String) {
    let short = [(8, 'b'), (9, 't'), (10, 'n'), (12, 'f'), (13, 'r'), (0x22, '"'), (0x5c, '\\'), (0x2f, '/')];
    let short = short.into_iter().find(|(of_short, _)| *of_short == unit);
    match (short, input.below(3)) {
        (Some((_, letter)), 0) => {
            out.push('\\');
            out.push(letter);
        }
        (_, 1) => drop(write!(out, "\\u{unit:04X}")),
        _ => drop(write!(out, "\\u{unit:04x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parser_accepts_json_only() {
        for text in ["null", " [1,-0.50e+7] ", r#"{"a":{"b":[]},"a":"\ud800\n\/"}"#, "\"é\u{2028}\""] {
            assert!(parse(text.as_bytes(), 9).is_some(), "{text}");
        }
        for text in
            ["", "nul", "[1,]", "01", "1.", "+1", "1e", "\"\n\"", r#""\x""#, r#""\u+123""#, "{1:2}", "1 2", "[[[1]]]"]
        {
            assert!(parse(text.as_bytes(), 2).is_none(), "{text}");
        }
    }
}
