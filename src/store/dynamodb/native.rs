//! JSON as DynamoDB's own values, and back: as the SDK for JavaScript marshals them.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use base64::{Engine, engine::general_purpose::STANDARD};

use crate::key::{
    canonical::canonical,
    text::{elements, members, text, write_string},
};

/// How deeply DynamoDB lets lists and maps be nested, the attribute's own value included.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html>
const MAX_DEPTH: usize = 32;

/// How many digits a number may have that count.
const MAX_DIGITS: usize = 38;

/// The largest power of ten of a number's first digit, and the smallest.
const MAX_EXPONENT: i64 = 125;
const MIN_EXPONENT: i64 = -130;

/// The value of a JSON text; `None` if DynamoDB holds no such value, or if it is no JSON.
pub(super) fn from_json(json: &str) -> Option<AttributeValue> {
    value(&canonical(json.as_bytes()).ok()?, 0)
}

fn value(json: &[u8], depth: usize) -> Option<AttributeValue> {
    if depth > MAX_DEPTH {
        return None;
    }
    Some(match json.first()? {
        b'n' => AttributeValue::Null(true),
        b't' => AttributeValue::Bool(true),
        b'f' => AttributeValue::Bool(false),
        b'"' => AttributeValue::S(text(json)),
        b'[' => AttributeValue::L(elements(json).map(|element| value(element, depth + 1)).collect::<Option<_>>()?),
        b'{' => {
            let member = |(name, member): (&[u8], &[u8])| Some((text(name), value(member, depth + 1)?));
            AttributeValue::M(members(json).map(member).collect::<Option<HashMap<_, _>>>()?)
        }
        _ => AttributeValue::N(number(std::str::from_utf8(json).ok()?)?),
    })
}

/// A number that DynamoDB holds without changing it.
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

/// The JSON text of a value: numbers with the digits that DynamoDB has, binary values in Base64, sets as arrays.
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
        // `NULL`, and types that are not known yet.
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
