//! Keys of messages, as the functions select them.

use std::{borrow::Borrow, collections::BTreeMap, fmt, str::FromStr};

use anyhow::{Context, Result};
use lambda_once::key::canonical::canonical;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::{RawValue, to_raw_value};

use super::message::Message;

/// Selects a part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    /// `Key::pointer`, by the names and indexes on the way.
    Pointer(Vec<String>),
    /// `Key::message_attribute`
    Attribute(String),
    /// `Key::message_id`
    MessageId,
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const USAGE: &str = "write a JSON Pointer such as /order_id, attribute:NAME or message-id";
        match text {
            "message-id" => Ok(Self::MessageId),
            "" => Ok(Self::Pointer(Vec::new())),
            _ => match (text.strip_prefix('/'), text.strip_prefix("attribute:")) {
                (Some(pointer), _) => {
                    let names = pointer.split('/').map(|name| name.replace("~1", "/").replace("~0", "~"));
                    Ok(Self::Pointer(names.collect()))
                }
                (None, Some(name)) if !name.is_empty() => Ok(Self::Attribute(name.to_owned())),
                _ => Err(USAGE.to_owned()),
            },
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(names) => names.iter().try_for_each(|name| write!(f, "/{name}")),
            Self::Attribute(name) => write!(f, "attribute:{name}"),
            Self::MessageId => f.write_str("message-id"),
        }
    }
}

/// Returns the key of a message. Several selectors are one `Key::composite`.
///
/// # Errors
///
/// Returns an error if the message lacks a part of the key, or if its body is not JSON.
pub(crate) fn key(selectors: &[Selector], message: &Message) -> Result<Box<RawValue>> {
    let body = canonical(message.body.as_bytes());
    let mut parts = Vec::with_capacity(selectors.len());
    for selector in selectors {
        let part = match selector {
            Selector::MessageId => to_raw_value(message.original_id())?,
            Selector::Attribute(name) => to_raw_value(message.text(name).with_context(|| missing(selector))?)?,
            Selector::Pointer(names) => {
                let body = body.as_ref().map_err(|problem| anyhow::anyhow!("the body cannot be read: {problem}"))?;
                let whole: &RawValue = serde_json::from_slice(body)?;
                find(whole, names).with_context(|| missing(selector))?.to_owned()
            }
        };
        parts.push(part);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { to_raw_value(&parts)? })
}

fn missing(selector: &Selector) -> String {
    format!("the message has nothing at {selector}")
}

/// Returns a part of JSON with its digits, which a parsed number may lose.
fn find<'a>(value: &'a RawValue, names: &[String]) -> Option<&'a RawValue> {
    let mut value = value;
    for name in names {
        value = match value.get().as_bytes().first()? {
            b'{' => serde_json::from_str::<BTreeMap<Name, &RawValue>>(value.get()).ok()?.remove(name.as_bytes())?,
            b'[' => {
                let index: usize = name.parse().ok().filter(|index: &usize| index.to_string() == *name)?;
                serde_json::from_str::<Vec<&RawValue>>(value.get()).ok()?.into_iter().nth(index)?
            }
            _ => return None,
        };
    }
    Some(value)
}

/// The name of a member, which no text can represent if it has an unpaired surrogate.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Name(Vec<u8>);

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl de::Visitor<'_> for Bytes {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a member")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Name, E> {
                Ok(Name(bytes.to_vec()))
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(selectors: &[&str], body: &str) -> Result<String> {
        let selectors: Vec<_> = selectors.iter().map(|text| text.parse().unwrap()).collect();
        let message = Message { id: "m-1".into(), body: body.into(), ..Message::default() };
        Ok(key(&selectors, &message)?.get().to_owned())
    }

    #[test]
    fn a_pointer_keeps_type_and_digits() {
        let body = r#"{"a": {"b/c": [1, "1", 1.0, 123456789012345678901234567890]}}"#;
        for (index, expected) in ["1", "\"1\"", "1.0", "123456789012345678901234567890"].iter().enumerate() {
            assert_eq!(selected(&[&format!("/a/b~1c/{index}")], body).unwrap(), *expected);
        }
        for missing in ["/b", "/a/b~1c/4", "/a/b~1c/01", "/a/b~1c/0/0"] {
            assert!(selected(&[missing], body).is_err(), "{missing}");
        }
    }

    #[test]
    fn a_member_beside_the_key_may_have_an_unpaired_surrogate() {
        let body = r#"{"\ud83d": 1, "order": {"\udc00x": [], "id": "7\ud800"}}"#;
        assert_eq!(selected(&["/order/id"], body).unwrap(), r#""7\ud800""#);
        assert!(selected(&["/\u{fffd}"], body).is_err());
    }

    #[test]
    fn several_selectors_are_one_key() {
        assert_eq!(selected(&["/a", "message-id"], r#"{"a": 7}"#).unwrap(), r#"[7,"m-1"]"#);
        assert_eq!(selected(&["message-id"], "not JSON").unwrap(), "\"m-1\"");
        assert!(selected(&["/a"], "not JSON").is_err());
        assert!(selected(&["attribute:order"], "{}").is_err());
    }

    #[test]
    fn other_selectors_are_refused() {
        for bad in ["order_id", "attribute:", "deduplication-id"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad}");
        }
    }
}
