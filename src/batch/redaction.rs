//! Redacts quotations of the body from the texts of decoder errors.
//!
//! A text is first cut to its maximum length, and the body is scanned once, so that the work grows only with the body.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Write},
};

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use crate::key::NUMBER;

/// The maximum length of a text in characters.
const MAX_CHARS: usize = 200;

/// The length from which a run of bytes of a value counts as a quotation anywhere. A shorter run occurs in any text,
/// and counts only as a word.
const QUOTED_BYTES: usize = 4;

const REDACTED: &str = "…";

/// The number of slots of the filter that skips most of a body.
const SLOTS: usize = 4096;

/// Returns an error's text without the words that quote a value in the body: those that contain [`QUOTED_BYTES`]
/// consecutive bytes of a value, and shorter ones that are a word of a value.
pub(super) fn redacted(said: &dyn Display, body: &[u8]) -> String {
    let mut text = Beginning::default();
    // Writing never fails, so an error comes from the `Display` itself. The part that it has written counts.
    let _ = write!(text, "{said}");
    let text = text.into_text();
    let mut quotations = Quotations::of(&text);
    quotations.look_at_body(body);
    let mut out = String::with_capacity(text.len());
    for (run, is_word) in runs(&text) {
        out.push_str(if is_word && quotations.are_in(run) { REDACTED } else { run });
    }
    out
}

/// A writer that keeps the beginning of a text.
#[derive(Default)]
struct Beginning {
    text: String,
    chars: usize,
    is_cut: bool,
}

impl Write for Beginning {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        match part.char_indices().nth(MAX_CHARS - self.chars) {
            _ if self.is_cut => {}
            Some((end, _)) => {
                self.text.push_str(&part[..end]);
                self.chars = MAX_CHARS;
                self.is_cut = true;
            }
            None => {
                self.text.push_str(part);
                self.chars += part.chars().count();
            }
        }
        Ok(())
    }
}

impl Beginning {
    fn into_text(mut self) -> String {
        if self.is_cut {
            // A word that is cut may be too short to recognize as a quotation.
            if let Some((rest, true)) = runs(&self.text).last()
                && rest.len() < QUOTED_BYTES
            {
                self.text.truncate(self.text.len() - rest.len());
            }
            self.text.push_str(REDACTED);
        }
        self.text
    }
}

/// Splits a text into words and separators, and returns whether each is a word.
fn runs(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_between = is_separator(rest.chars().next()?);
        let len = rest.find(|next| is_separator(next) != is_between).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(len);
        rest = tail;
        Some((run, !is_between))
    })
}

fn is_separator(character: char) -> bool {
    character.is_whitespace() || "\"'`,;()[]{}<>=|".contains(character)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    runs(text).filter_map(|(run, is_word)| is_word.then_some(run))
}

/// Returns the words of a text that are shorter than the shortest quotation.
fn short_words(text: &str) -> impl Iterator<Item = &str> {
    words(text)
        .map(|word| word.trim_matches(['.', ':', '!', '?']))
        .filter(|word| (1..QUOTED_BYTES).contains(&word.len()))
}

/// The parts of a text that may quote a value, and whether a value seen so far contains them.
struct Quotations<'t> {
    /// All parts with the length of the shortest quotation.
    parts: BTreeMap<&'t [u8], bool>,
    /// The slots of these parts.
    slots: Vec<bool>,
    /// The words that are shorter.
    short_words: BTreeMap<&'t str, bool>,
    #[cfg(test)]
    lookups: usize,
}

impl<'t> Quotations<'t> {
    fn of(text: &'t str) -> Self {
        let parts = words(text).flat_map(|word| word.as_bytes().windows(QUOTED_BYTES));
        let parts: BTreeMap<_, _> = parts.map(|part| (part, false)).collect();
        let mut slots = vec![false; SLOTS];
        parts.keys().for_each(|part| slots[slot(part)] = true);
        Self {
            parts,
            slots,
            short_words: short_words(text).map(|word| (word, false)).collect(),
            #[cfg(test)]
            lookups: 0,
        }
    }

    fn are_in(&self, word: &str) -> bool {
        word.as_bytes().windows(QUOTED_BYTES).any(|part| self.parts.get(part) == Some(&true))
            || short_words(word).any(|word| self.short_words.get(word) == Some(&true))
    }

    fn look_at_body(&mut self, body: &[u8]) {
        let mut json = serde_json::Deserializer::from_slice(body);
        let is_json = Values(self).deserialize(&mut json).and_then(|()| json.end()).is_ok();
        if !is_json {
            // Any part of it may be quoted.
            self.look_at(&String::from_utf8_lossy(body));
        }
    }

    fn look_at(&mut self, value: &str) {
        for part in value.as_bytes().windows(QUOTED_BYTES) {
            self.looks_up();
            if self.slots[slot(part)]
                && let Some(is_quoted) = self.parts.get_mut(part)
            {
                *is_quoted = true;
            }
        }
        if self.short_words.is_empty() {
            return;
        }
        for word in short_words(value) {
            self.looks_up();
            if let Some(is_quoted) = self.short_words.get_mut(word) {
                *is_quoted = true;
            }
        }
    }

    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "only the tests count"))]
    fn looks_up(&mut self) {
        #[cfg(test)]
        {
            self.lookups += 1;
        }
    }
}

fn slot(part: &[u8]) -> usize {
    let number = part.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    // The upper bits of a product depend on all bits of its factor.
    (number.wrapping_mul(0x9E37_79B1) >> 20) as usize % SLOTS
}

/// Scans each value in JSON. Names of members are skipped, because they belong to the type and not to the sender.
struct Values<'q, 't>(&'q mut Quotations<'t>);

impl<'t> Values<'_, 't> {
    fn again(&mut self) -> Values<'_, 't> {
        Values(self.0)
    }

    fn look_at(self, value: &dyn Display) {
        self.0.look_at(&value.to_string());
    }
}

impl<'de> DeserializeSeed<'de> for Values<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Values<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.look_at(&number);
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.look_at(&number);
        Ok(())
    }

    fn visit_f64<E>(mut self, number: f64) -> Result<(), E> {
        // Very large and very small numbers can be written in several ways.
        if let Some(number) = Number::from_f64(number) {
            self.again().look_at(&number);
        }
        self.again().look_at(&format_args!("{number:e}"));
        self.look_at(&number);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.look_at(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element_seed(self.again())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key()? {
            match name {
                Name::Member => members.next_value_seed(self.again())?,
                Name::Number => {
                    let digits: String = members.next_value()?;
                    self.again().look_at(&digits);
                    if let Ok(number) = digits.parse() {
                        self.again().visit_f64(number)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The name of an object's member.
enum Name {
    Member,
    /// That of the object as which a number is read.
    Number,
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;

        impl Visitor<'_> for Names {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a member")
            }

            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(if name == NUMBER { Name::Number } else { Name::Member })
            }
        }

        deserializer.deserialize_identifier(Names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str, body: &[u8]) -> String {
        super::redacted(&text, body)
    }

    #[test]
    fn text_that_quotes_nothing_of_the_body_is_kept() {
        assert_eq!(redacted("schema 7 is not known", b"\0\0\0\0\x07avro"), "schema 7 is not known");
        assert_eq!(redacted("missing field `order_id`", br#"{"id":"A"}"#), "missing field `order_id`");
        assert_eq!(redacted("the version is too old", br#"{"version":12}"#), "the version is too old");
    }

    #[test]
    fn quoted_values_of_the_body_are_redacted() {
        let body = br#"{"card":"4111 1111 1111 1111","cents":995,"name":"J\u00fcrgen","tags":[{"note":"secret-7"}]}"#;
        for (text, said) in [
            ("invalid type: string \"secret-7\", expected u64", "invalid type: string \"…\", expected u64"),
            ("invalid value: integer `995`, expected a char", "invalid value: integer `…`, expected a char"),
            ("no card 4111 1111 1111 1111.", "no card … … … …"),
            ("who is Jürgen?", "who is …"),
            ("note=secret", "note=…"),
            ("note:secret-8", "…"),
        ] {
            assert_eq!(redacted(text, body), said);
        }
        assert_eq!(redacted("bad line: Meier;Hans", b"Meier;Hans;7"), "bad line: …;…");
    }

    #[test]
    fn short_words_of_values_are_left_out() {
        for body in [&br#"{"name":"Li Wu","amount":0.5}"#[..], b"name: Li Wu, amount: 0.5"] {
            assert_eq!(redacted("no customer Li Wu.", body), "no customer … …");
            assert_eq!(redacted("0.5 is too little", body), "… is too little");
        }
        for value in ["Wuhan", "secret-7"] {
            let body = serde_json::to_vec(&[value]).unwrap();
            assert_eq!(redacted("schema 7 of Wu", &body), "schema 7 of Wu", "in {value} they are no words");
        }
    }

    #[test]
    fn numbers_are_left_out_however_they_are_written() {
        let plain = "[1e21, 1.50, -995]".to_owned();
        // As with `serde_json/arbitrary_precision`.
        let number = |digits: &str| format!(r#"{{"{NUMBER}":"{digits}"}}"#);
        let as_maps = format!("[{}]", ["1e21", "1.50", "-995"].map(number).join(","));
        for body in [plain, as_maps] {
            for text in ["1e+21", "1e21", "1000000000000000000000", "1.5", "-995"] {
                assert_eq!(redacted(text, body.as_bytes()), REDACTED, "{text} in {body}");
            }
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = redacted(&"ä".repeat(1_000), b"{}");
        assert_eq!((long.chars().count(), long.ends_with(REDACTED)), (201, true));
    }

    #[test]
    fn a_truncated_word_reveals_nothing_of_a_value() {
        for hidden in 0..12 {
            let text = format!("{} Hummel", "x".repeat(MAX_CHARS - hidden));
            let said = redacted(&text, br#"{"name":"Hummel"}"#);
            assert!(!said.contains('H'), "{said}");
        }
    }

    #[test]
    fn the_number_of_lookups_is_linear_in_the_body() {
        const MIB: usize = 1024 * 1024;
        let lines: String = (0..MIB / 16).map(|line| format!("{line:07},name{line:03x}\n")).collect();
        let json = serde_json::to_string(&lines.split('\n').collect::<Vec<_>>()).unwrap();
        for body in [lines, json, "a".repeat(MIB), "a ".repeat(MIB / 2)] {
            let mut text = Beginning::default();
            for _ in 0..2 {
                text.write_str(&body).unwrap();
            }
            let text = text.into_text();
            assert!(text.chars().count() <= MAX_CHARS + 1);
            let mut quotations = Quotations::of(&text);
            assert!(quotations.parts.len() + quotations.short_words.len() <= text.len());
            quotations.look_at_body(body.as_bytes());
            // Twice if most of it looks like JSON.
            assert!(quotations.lookups <= 4 * body.len(), "{} lookups in {}", quotations.lookups, body.len());
        }
    }
}
