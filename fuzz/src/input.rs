//! Draws values from the bytes of a case.

/// Characters that separate, quote, escape or end something in the formats under test, and some beyond ASCII.
const SPECIAL: [char; 40] = [
    '"',
    '\\',
    '/',
    '~',
    '#',
    ':',
    ',',
    ';',
    '=',
    '?',
    '&',
    '%',
    '+',
    '-',
    '.',
    '_',
    '@',
    '[',
    ']',
    '{',
    '}',
    '(',
    ')',
    '\'',
    '*',
    '<',
    ' ',
    '\t',
    '\n',
    '\r',
    '\0',
    '\u{7f}',
    '\u{80}',
    'é',
    'ß',
    '\u{2028}',
    '\u{e000}',
    '\u{fffd}',
    '\u{1f600}',
    '\u{10ffff}',
];

/// The bytes of a case. Once they are used up, others follow that depend only on them, because most random cases are
/// short. Behind no bytes, each one is 0.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
    /// The state of a xorshift generator.
    state: u64,
}

impl<'a> Input<'a> {
    /// Creates an input of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mixed =
            |state: u64, byte: &u8| (state ^ u64::from(*byte)).wrapping_add(1).wrapping_mul(0x0000_0100_0000_01b3);
        Self { rest: bytes, state: bytes.iter().fold(0, mixed) }
    }

    /// Draws a byte.
    pub fn byte(&mut self) -> u8 {
        if let Some((byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            return *byte;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 32) as u8
    }

    /// Draws a number.
    pub fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// Draws a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        let wide = if end <= 0x100 { usize::from(self.byte()) } else { self.number() as usize };
        wide % end
    }

    /// Returns `true` in one of `n` cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    /// Draws one of some values.
    pub fn pick<'b, T>(&mut self, values: &'b [T]) -> &'b T {
        &values[self.below(values.len())]
    }

    /// Draws up to `most` bytes.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.byte()).collect()
    }

    /// Draws a text of up to `most` characters, with more of the special ones than chance would give.
    pub fn text(&mut self, most: usize) -> String {
        (0..self.below(most + 1)).map(|_| self.character()).collect()
    }

    /// Draws a character.
    pub fn character(&mut self) -> char {
        match self.byte() {
            byte @ 0..0x80 => char::from(b'!' + byte % (b'~' - b'!' + 1)),
            byte @ 0x80..0xf0 => SPECIAL[usize::from(byte - 0x80) % SPECIAL.len()],
            _ => char::from_u32(self.number() as u32 % 0x11_0000).unwrap_or('\u{d7ff}'),
        }
    }

    /// Draws an integer near a boundary, or any.
    pub fn integer(&mut self) -> u64 {
        let boundaries =
            [0, 1, 127, 255, 1 << 15, 1 << 31, u64::from(u32::MAX), 1 << 52, 1 << 53, 1 << 62, 1 << 63, u64::MAX];
        match self.byte() {
            byte @ 0..64 => u64::from(byte),
            64..192 => {
                let boundary = *self.pick(&boundaries);
                boundary.wrapping_add(u64::from(self.byte() % 5)).wrapping_sub(2)
            }
            _ => self.number(),
        }
    }

    /// Draws a number as JSON spells it, with forms that a parser may change.
    pub fn json_number(&mut self) -> String {
        let sign = if self.one_in(4) { "-" } else { "" };
        let whole = match self.below(3) {
            0 => self.integer().to_string(),
            1 => (0..=self.below(40)).map(|_| char::from(b'1' + self.byte() % 9)).collect(),
            _ => "0".to_owned(),
        };
        let fraction = if self.one_in(2) {
            let digits: String = (0..=self.below(20)).map(|_| char::from(b'0' + self.byte() % 10)).collect();
            format!(".{digits}")
        } else {
            String::new()
        };
        let exponent = if self.one_in(4) {
            format!("{}{}{}", self.pick(&["e", "E"]), self.pick(&["", "+", "-"]), self.below(400))
        } else {
            String::new()
        };
        format!("{sign}{whole}{fraction}{exponent}")
    }
}
