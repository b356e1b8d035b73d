//! The canonical form of random values and texts.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::json;
use crate::key::canonical::{Problem, canonical};

/// Computes the canonical form directly by its rules, regardless of speed.
fn plain(value: &serde_json::Value) -> String {
    use serde_json::Value;
    let string = |text: &str| {
        let character = |c: char| match c {
            '"' | '\\' => format!("\\{c}"),
            '\0'..' ' => format!("\\u{:04x}", u32::from(c)),
            _ => c.to_string(),
        };
        format!("\"{}\"", text.chars().map(character).collect::<String>())
    };
    match value {
        Value::String(text) => string(text),
        Value::Array(elements) => format!("[{}]", elements.iter().map(plain).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let sorted: BTreeMap<_, _> = members.iter().collect();
            let members: Vec<_> =
                sorted.into_iter().map(|(name, value)| format!("{}:{}", string(name), plain(value))).collect();
            format!("{{{}}}", members.join(","))
        }
        other => other.to_string(),
    }
}

/// Returns a random spelling of a value.
fn spelled(value: &serde_json::Value, random: &mut fastrand::Rng) -> String {
    use serde_json::Value;
    let string = |text: &str, random: &mut fastrand::Rng| {
        let mut spelled = String::from('"');
        for c in text.chars() {
            let short = "\"\"\\\\//\u{8}b\u{c}f\nn\rr\tt".chars().collect::<Vec<_>>();
            let short = short.chunks(2).find(|pair| pair[0] == c).map(|pair| pair[1]);
            let must = matches!(c, '"' | '\\' | '\0'..' ');
            match (random.u8(0..4), short) {
                (0, Some(short)) => spelled.extend(['\\', short]),
                (1.., _) if !must => spelled.push(c),
                _ => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let digits = if random.bool() { format!("{unit:04x}") } else { format!("{unit:04X}") };
                        spelled += &format!("\\u{digits}");
                    }
                }
            }
        }
        spelled + "\""
    };
    let space = |random: &mut fastrand::Rng| ["", "", " ", "\n\t", "\r\n  "][random.usize(0..5)];
    let (open, close, mut inner): (_, _, Vec<String>) = match value {
        Value::String(text) => return string(text, random),
        Value::Array(elements) => ("[", "]", elements.iter().map(|element| spelled(element, random)).collect()),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                [string(name, random), spelled(value, random)].join(&format!("{}:{}", space(random), space(random)))
            };
            ("{", "}", members.iter().map(member).collect())
        }
        other => return other.to_string(),
    };
    if open == "{" {
        random.shuffle(&mut inner);
    }
    let inner: Vec<String> = inner.iter().map(|entry| format!("{}{entry}{}", space(random), space(random))).collect();
    format!("{open}{}{}{close}", space(random), inner.join(","))
}

proptest! {
    #[test]
    fn every_spelling_of_a_value_has_the_form_that_the_rules_say(value in json(), seed in any::<u64>()) {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..4 {
            let spelled = spelled(&value, &mut random);
            let form = canonical(spelled.as_bytes()).map(String::from_utf8);
            prop_assert_eq!(form, Ok(Ok(plain(&value))), "{}", spelled);
        }
    }

    #[test]
    fn the_canonical_form_is_the_same_value_and_canonical_itself(value in json()) {
        let form = canonical(serde_json::to_string_pretty(&value).unwrap().as_bytes()).unwrap();
        prop_assert_eq!(&serde_json::from_slice::<serde_json::Value>(&form).unwrap(), &value);
        prop_assert_eq!(&canonical(&form).unwrap(), &form);
    }

    #[test]
    fn a_text_is_taken_if_serde_json_takes_it(text in r#"[ \[\]{}:,"\\0-9a-fnrtulse.eE+-]{0,24}"#) {
        let ours = canonical(text.as_bytes());
        // `serde_json` uses the last of two equal members, and rejects numbers too large for an `f64`.
        match serde_json::from_str::<serde_json::Value>(&text) {
            Ok(_) => {
                let taken = matches!(ours, Ok(_) | Err(Problem::DuplicateMember { .. }));
                prop_assert!(taken);
            }
            Err(error) => prop_assert!(ours.is_err() || error.to_string().starts_with("number out of range")),
        }
    }

    #[test]
    fn integers_of_any_size_keep_apart(a in "[1-9][0-9]{0,40}", b in "[1-9][0-9]{0,40}") {
        prop_assert_eq!(a == b, canonical(a.as_bytes()) == canonical(b.as_bytes()));
    }

    #[test]
    fn no_bytes_crash(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = canonical(&bytes);
    }
}
