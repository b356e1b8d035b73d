//! Converts DynamoDB items to plain JSON, for keys and payloads.

use std::{cell::OnceCell, collections::HashMap};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::de::DeserializeOwned;
use serde_dynamo::{AttributeValue, Item};

use crate::key::text::write_string;

/// The images of an item in a stream, which are converted to JSON on demand.
pub(super) struct Images {
    pub(super) keys: Item,
    pub(super) new: Option<Item>,
    pub(super) old: Option<Item>,
    json: OnceCell<Vec<u8>>,
}

impl Images {
    pub(super) fn new(keys: Item, new: Option<Item>, old: Option<Item>) -> Self {
        Self { keys, new, old, json: OnceCell::new() }
    }

    pub(super) fn json(&self) -> &[u8] {
        self.json.get_or_init(|| {
            let mut out = br#"{"Keys":"#.to_vec();
            write_map(&mut out, self.keys.inner());
            for (name, image) in [(&br#","NewImage":"#[..], &self.new), (br#","OldImage":"#, &self.old)] {
                if let Some(image) = image {
                    out.extend_from_slice(name);
                    write_map(&mut out, image.inner());
                }
            }
            out.push(b'}');
            out
        })
    }
}

/// Decodes the item as the handler's type.
///
/// A type that describes itself by its input, such as `serde_json::Value`, does not support bytes. If decoding with
/// binary values fails, it is repeated with base64 in their place.
pub(super) fn decode<T: DeserializeOwned>(item: &Item) -> Result<T, serde_dynamo::Error> {
    let error = match serde_dynamo::from_item(item.clone()) {
        Ok(decoded) => return Ok(decoded),
        Err(error) => error,
    };
    let mut has_bytes = false;
    let members = item.inner().iter();
    let text: HashMap<String, AttributeValue> =
        members.map(|(name, value)| (name.clone(), without_bytes(value, &mut has_bytes))).collect();
    if has_bytes { serde_dynamo::from_item(Item::from(text)) } else { Err(error) }
}

fn without_bytes(value: &AttributeValue, has_bytes: &mut bool) -> AttributeValue {
    let mut base64 = |bytes: &Vec<u8>| {
        *has_bytes = true;
        BASE64_STANDARD.encode(bytes)
    };
    match value {
        AttributeValue::B(bytes) => AttributeValue::S(base64(bytes)),
        AttributeValue::Bs(list) => {
            AttributeValue::L(list.iter().map(|bytes| AttributeValue::S(base64(bytes))).collect())
        }
        AttributeValue::L(list) => {
            AttributeValue::L(list.iter().map(|value| without_bytes(value, has_bytes)).collect())
        }
        AttributeValue::M(map) => {
            let members = map.iter().map(|(name, value)| (name.clone(), without_bytes(value, has_bytes)));
            AttributeValue::M(members.collect())
        }
        other => other.clone(),
    }
}

/// Returns a map as JSON, with its members sorted by name.
pub(super) fn of_map(map: &HashMap<String, AttributeValue>) -> String {
    let mut out = Vec::new();
    write_map(&mut out, map);
    String::from_utf8_lossy(&out).into_owned()
}

fn write_map(out: &mut Vec<u8>, map: &HashMap<String, AttributeValue>) {
    let mut members: Vec<_> = map.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    write_all(out, b"{}", members, |out, (name, value)| {
        write_string(out, name);
        out.push(b':');
        write_value(out, value);
    });
}

fn write_value(out: &mut Vec<u8>, value: &AttributeValue) {
    match value {
        AttributeValue::Null(_) => out.extend_from_slice(b"null"),
        AttributeValue::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        AttributeValue::N(number) => write_number(out, number),
        AttributeValue::S(text) => write_string(out, text),
        AttributeValue::B(bytes) => write_bytes(out, bytes),
        AttributeValue::M(map) => write_map(out, map),
        AttributeValue::L(list) => write_all(out, b"[]", list, write_value),
        AttributeValue::Ss(texts) => write_all(out, b"[]", texts, |out, text| write_string(out, text)),
        AttributeValue::Ns(numbers) => write_all(out, b"[]", numbers, |out, number| write_number(out, number)),
        AttributeValue::Bs(list) => write_all(out, b"[]", list, |out, bytes| write_bytes(out, bytes)),
    }
}

fn write_all<T>(
    out: &mut Vec<u8>,
    [open, close]: &[u8; 2],
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut Vec<u8>, T),
) {
    out.push(*open);
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(*close);
}

/// Writes the digits that DynamoDB gave, as a JSON number if they are valid as one.
fn write_number(out: &mut Vec<u8>, number: &str) {
    match serde_json::from_str::<serde::de::IgnoredAny>(number) {
        Ok(_) if number.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
            out.extend_from_slice(number.as_bytes());
        }
        _ => write_string(out, number),
    }
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_string(out, &BASE64_STANDARD.encode(bytes));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics")]

    use super::*;

    #[test]
    fn every_type_of_value_is_plain_json() {
        let item: Item = serde_json::from_str(
            r#"{"z": {"N": "123456789012345678901234567890.5"}, "n": {"N": "-1.50E+2"}, "s": {"S": "a\"b"},
                "bool": {"BOOL": true}, "no": {"BOOL": false}, "null": {"NULL": true}, "b": {"B": "AAEqQQ=="},
                "bs": {"BS": ["AAEqQQ=="]},
                "m": {"M": {"y": {"S": "1"}, "x": {"L": [{"N": "1"}, {"M": {}}]}}}, "ss": {"SS": ["a", "b"]},
                "ns": {"NS": ["1", "+2", " 3", "null"]}}"#,
        )
        .unwrap();
        let images = Images::new(Item::default(), Some(item), None);
        let json = std::str::from_utf8(images.json()).unwrap();
        assert_eq!(
            json,
            r#"{"Keys":{},"NewImage":{"b":"AAEqQQ==","bool":true,"bs":["AAEqQQ=="],"m":{"x":[1,{}],"y":"1"},"n":-1.50E+2,"no":false,"ns":[1,"+2"," 3","null"],"null":null,"s":"a\"b","ss":["a","b"],"z":123456789012345678901234567890.5}}"#
        );
    }

    #[test]
    fn a_binary_value_is_bytes_for_a_type_that_takes_them_else_base64() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Thumbnail {
            image: serde_bytes::ByteBuf,
        }
        let item: Item = serde_json::from_str(
            r#"{"image": {"B": "AAEqQQ=="}, "all": {"BS": ["AAEqQQ==", "Kg=="]}, "n": {"N": "7"},
                "inner": {"M": {"list": {"L": [{"B": "Kg=="}]}}}}"#,
        )
        .unwrap();
        let bytes = vec![0, 1, 42, 65];
        assert_eq!(decode::<Thumbnail>(&item).unwrap(), Thumbnail { image: bytes.into() });
        let json: serde_json::Value = decode(&item).unwrap();
        let expected = serde_json::json!({
            "image": "AAEqQQ==", "all": ["AAEqQQ==", "Kg=="], "n": 7, "inner": { "list": ["Kg=="] },
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn an_error_for_another_item_type_names_the_missing_field() {
        #[derive(Debug, serde::Deserialize)]
        struct Order {
            #[serde(rename = "order_id")]
            _id: String,
        }
        for item in [r#"{"image": {"B": "AAEqQQ=="}}"#, r#"{"n": {"N": "7"}}"#] {
            let item: Item = serde_json::from_str(item).unwrap();
            assert_eq!(decode::<Order>(&item).unwrap_err().to_string(), "missing field `order_id`");
        }
    }
}
