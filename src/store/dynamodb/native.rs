//! Converts JSON to DynamoDB's native values and back, as the SDK for JavaScript marshals them.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use base64::{Engine, engine::general_purpose::STANDARD};

use crate::key::{
    canonical::canonical,
    text::{elements, members, text, write_string},
};

/// DynamoDB's maximum nesting of lists and maps, including the attribute's value.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html>
const MAX_DEPTH: usize = 32;

/// The maximum number of significant digits of a number.
const MAX_DIGITS: usize = 38;

/// The maximum and the minimum power of ten of a number's first digit.
const MAX_EXPONENT: i64 = 125;
const MIN_EXPONENT: i64 = -130;

/// The overhead of a list or a map in an item, and of each of its values, in bytes.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>
const CONTAINER_BYTES: usize = 3;
const MEMBER_BYTES: usize = 1;

/// Converts a JSON text to a value. Returns `None` if it is not JSON, has no equivalent in DynamoDB, or exceeds
/// `max_bytes`.
pub(super) fn from_json(json: &str, max_bytes: usize) -> Option<AttributeValue> {
    let mut room = Room(max_bytes);
    room.value(&canonical(json.as_bytes()).ok()?, 0)
}

/// The bytes that are left in the item.
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }

    fn value(&mut self, json: &[u8], depth: usize) -> Option<AttributeValue> {
        if depth > MAX_DEPTH {
            return None;
        }
        Some(match json.first()? {
            b'n' => {
                self.take(1)?;
                AttributeValue::Null(true)
            }
            b't' | b'f' => {
                self.take(1)?;
                AttributeValue::Bool(json == b"true")
            }
            b'"' => {
                let text = text(json);
                self.take(text.len())?;
                AttributeValue::S(text)
            }
            b'[' => {
                self.take(CONTAINER_BYTES)?;
                AttributeValue::L(elements(json).map(|element| self.member(element, depth)).collect::<Option<_>>()?)
            }
            b'{' => {
                self.take(CONTAINER_BYTES)?;
                let member = |(name, value): (&[u8], &[u8])| {
                    let name = Some(text(name)).filter(|name| !name.is_empty())?;
                    self.take(name.len())?;
                    Some((name, self.member(value, depth)?))
                };
                AttributeValue::M(members(json).map(member).collect::<Option<HashMap<_, _>>>()?)
            }
            _ => {
                let digits = number(std::str::from_utf8(json).ok()?)?;
                // Two digits per byte, one byte for the exponent, and one for the sign.
                self.take(digits.len().min(MAX_DIGITS).div_ceil(2) + 2)?;
                AttributeValue::N(digits)
            }
        })
    }

    fn member(&mut self, json: &[u8], depth: usize) -> Option<AttributeValue> {
        self.take(MEMBER_BYTES)?;
        self.value(json, depth + 1)
    }
}

/// Returns a number that DynamoDB stores unchanged.
fn number(digits: &str) -> Option<String> {
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole.trim_start_matches('-'), fraction].concat();
    let significant = all.trim_start_matches('0');
    let first =
        i64::try_from(all.len() - fraction.len()).ok()? - 1 - i64::try_from(all.len() - significant.len()).ok()?;
    let first = exponent.parse::<i64>().ok()?.checked_add(first)?;
    let is_zero = significant.is_empty();
    let fits = significant.trim_end_matches('0').len() <= MAX_DIGITS && (MIN_EXPONENT..=MAX_EXPONENT).contains(&first);
    (is_zero || fits).then(|| if is_zero { "0".to_owned() } else { digits.to_owned() })
}

/// Returns the JSON text of a value: numbers with DynamoDB's digits, binary values in Base64, sets as arrays.
pub(super) fn to_json(value: &AttributeValue) -> String {
    let mut out = Vec::new();
    write(&mut out, value);
    String::from_utf8(out).unwrap_or_default()
}

fn write(out: &mut Vec<u8>, value: &AttributeValue) {
    match value {
        AttributeValue::S(string) => write_string(out, string),
        AttributeValue::N(digits) => out.extend_from_slice(digits.as_bytes()),
        AttributeValue::Bool(is_true) => out.extend_from_slice(if *is_true { b"true" } else { b"false" }),
        AttributeValue::B(bytes) => write_string(out, &STANDARD.encode(bytes)),
        AttributeValue::L(values) => write_list(out, values, write),
        AttributeValue::Ss(strings) => write_list(out, strings, |out, string| write_string(out, string)),
        AttributeValue::Ns(numbers) => write_list(out, numbers, |out, digits| out.extend_from_slice(digits.as_bytes())),
        AttributeValue::Bs(values) => {
            write_list(out, values, |out, bytes| write_string(out, &STANDARD.encode(bytes)));
        }
        AttributeValue::M(members) => {
            out.push(b'{');
            let sorted: BTreeMap<_, _> = members.iter().collect();
            for (i, (name, value)) in sorted.into_iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_string(out, name);
                out.push(b':');
                write(out, value);
            }
            out.push(b'}');
        }
        // `NULL`, and unknown types.
        _ => out.extend_from_slice(b"null"),
    }
}

fn write_list<T>(out: &mut Vec<u8>, values: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(out, value);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics")]

    use super::*;

    #[test]
    fn json_comes_back_in_canonical_form() {
        for json in [
            "null",
            "true",
            "false",
            "7",
            "-0.5",
            "1e-130",
            "9.99e125",
            "12345678901234567890123456789012345678",
            "100000000000000000000000000000000000000000000",
            r#""é\"\\\u0001😀""#,
            r#"[1,"a",[],{},null]"#,
            r#"{"a":{"b":[true]},"é":""}"#,
        ] {
            assert_eq!(to_json(&from_json(json, 1000).unwrap()), json);
        }
        assert_eq!(to_json(&from_json(r#" { "b": -0, "a": 0.0e999 } "#, 1000).unwrap()), r#"{"a":0,"b":0}"#);
    }

    #[test]
    fn values_dynamodb_cannot_store_are_refused() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        for json in [
            "1e126",
            "1e-131",
            "123456789012345678901234567890123456789",
            "0.1e127",
            "{\"\":1}",
            "{",
            "",
            "1e99999999999999999999",
        ] {
            assert_eq!(from_json(json, 1000), None, "{json}");
        }
        assert!(from_json(&deep(MAX_DEPTH + 1), 1000).is_some());
        assert_eq!(from_json(&deep(MAX_DEPTH + 2), 1000), None);
        for (json, bytes) in [(r#""abc""#, 3), ("[[]]", 7), (r#"{"ab":true}"#, 7), ("[12,123]", 12)] {
            assert!(from_json(json, bytes).is_some(), "{json}");
            assert_eq!(from_json(json, bytes - 1), None, "{json}");
        }
    }

    #[test]
    fn dynamodb_only_types_become_text_and_arrays() {
        let blob = |bytes: &[u8]| aws_sdk_dynamodb::primitives::Blob::new(bytes);
        assert_eq!(to_json(&AttributeValue::B(blob(b"abc"))), "\"YWJj\"");
        assert_eq!(to_json(&AttributeValue::Bs(vec![blob(b"a"), blob(b"")])), r#"["YQ==",""]"#);
        assert_eq!(to_json(&AttributeValue::Ss(vec!["b".into(), "a".into()])), r#"["b","a"]"#);
        assert_eq!(to_json(&AttributeValue::Ns(vec!["2".into(), "1.5".into()])), "[2,1.5]");
    }
}
