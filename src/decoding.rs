//! Decodes JSON into the handler's type, and describes failures without a value of the payload.

use std::{error::Error as StdError, fmt};

use serde::{
    de::{self, DeserializeOwned, Deserializer, Visitor},
    forward_to_deserialize_any,
};
use serde_json::error::Category;

/// JSON that does not decode into a type, with the names of that type's fields.
#[derive(Debug)]
pub(crate) struct DecodeError {
    source: serde_json::Error,
    fields: &'static [&'static str],
}

/// Decodes JSON.
///
/// # Errors
///
/// The error of `serde_json`, with the names of the fields of `T`.
#[cfg(any(feature = "batch", test))]
pub(crate) fn decode<T: DeserializeOwned>(json: &[u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(json).map_err(|source| DecodeError { source, fields: fields_of::<T>() })
}

/// Decodes JSON text like [`decode`], without checking the encoding.
pub(crate) fn decode_text<T: DeserializeOwned>(json: &str) -> Result<T, DecodeError> {
    serde_json::from_str(json).map_err(|source| DecodeError { source, fields: fields_of::<T>() })
}

impl DecodeError {
    /// Describes the error in the JSON: the field of the handler's type, the expected type, and the position.
    ///
    /// `serde_json`'s own text may quote a value. Only the parts from the type are kept: expected types, and names of
    /// fields.
    pub(crate) fn describe(&self, subject: &str, json: &[u8]) -> String {
        describe(&self.source, self.fields, subject, json)
    }
}

/// Describes an error like [`DecodeError::describe`]. `fields` is empty if the type's fields are unknown.
pub(crate) fn describe(error: &serde_json::Error, fields: &[&str], subject: &str, json: &[u8]) -> String {
    let text = error.to_string();
    // A value that is the whole text may have no position.
    let place = match error.line() {
        0 => String::new(),
        line => format!(" at line {line} column {}", error.column()),
    };
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let mut out = match error.classify() {
        Category::Syntax | Category::Eof => format!("the {subject} is not JSON"),
        _ if text.starts_with("missing field `") => format!("the {subject} has a {text}"),
        _ => {
            let field = field_at(json, error.line(), error.column());
            let field = fields.iter().find(|name| Some(name.as_bytes()) == field);
            let field = field.map(|name| format!("in the field `{name}`"));
            let expected = expected(text).map(|expected| format!("expected {expected}"));
            let details: Vec<String> = field.into_iter().chain(expected).collect();
            let colon = if details.is_empty() { "" } else { ": " };
            format!("the {subject} does not match the handler's type{colon}{}", details.join(", "))
        }
    };
    out.push_str(&place);
    out
}

/// Returns the expectation of the type, in `serde`'s words. The part before it may quote the value.
fn expected(text: &str) -> Option<&str> {
    // No expectation follows. The name before these words is the sender's.
    if text.ends_with("`, there are no fields") || text.ends_with("`, there are no variants") {
        return None;
    }
    let starts = ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant `", "unknown field `"];
    if !starts.iter().any(|start| text.starts_with(start)) {
        return None;
    }
    text.rsplit_once(", expected ").map(|(_, expected)| expected)
}

/// Returns the name of the outermost object's member that contains this position.
fn field_at(json: &[u8], line: usize, column: usize) -> Option<&[u8]> {
    let start: usize = json.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    let read = json.get(..start + column)?;
    let (mut depth, mut name, mut text) = (0_u32, None, 0..0);
    let mut index = 0;
    while index < read.len() {
        match read[index] {
            b'"' => {
                let begun = index + 1;
                index = begun;
                while index < read.len() && read[index] != b'"' {
                    index += if read[index] == b'\\' { 2 } else { 1 };
                }
                text = begun..index.min(read.len());
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b':' if depth == 1 => name = Some(text.clone()),
            _ => {}
        }
        index += 1;
    }
    name.filter(|_| depth > 0).map(|name| &read[name])
}

/// Returns the names of a struct's fields, or none for any other type.
fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    match T::deserialize(FieldNames) {
        Ok(_) => &[],
        Err(Found(fields)) => fields,
    }
}

/// A deserializer without a value that returns the fields which a struct requests.
struct FieldNames;

#[derive(Debug)]
struct Found(&'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames {
    type Error = Found;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Found> {
        Err(Found(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Found> {
        Err(Found(fields))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Found> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Found> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

impl de::Error for Found {
    fn custom<M: fmt::Display>(_: M) -> Self {
        Self(&[])
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no value")
    }
}

impl StdError for Found {}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl StdError for DecodeError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only decoded")]
    struct Order {
        order_id: u64,
        #[serde(default)]
        lines: Vec<Line>,
        #[serde(default)]
        notes: HashMap<String, u8>,
        #[serde(default)]
        currency: Option<Currency>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only decoded")]
    struct Line {
        quantity: i32,
    }

    #[derive(Debug, Deserialize)]
    enum Currency {
        Eur,
        Usd,
    }

    fn said<T: DeserializeOwned + fmt::Debug>(json: &str) -> String {
        decode::<T>(json.as_bytes()).unwrap_err().describe("body", json.as_bytes())
    }

    #[test]
    fn an_error_names_the_field_and_the_expected_type_but_no_value() {
        let wrong = "the body does not match the handler's type";
        for (json, expected) in [
            (
                "{\"order_id\":\"secret\"}",
                format!("{wrong}: in the field `order_id`, expected u64 at line 1 column 20"),
            ),
            (
                "{\"x\":\"}:\\\"\",\n \"order_id\":7,\n \"lines\":[{\"quantity\":\"a, expected secret\"}]}",
                format!("{wrong}: in the field `lines`, expected i32 at line 3 column 42"),
            ),
            (
                "{\"order_id\":7,\"currency\":\"secret\"}",
                format!("{wrong}: in the field `currency`, expected `Eur` or `Usd` at line 1 column 33"),
            ),
            (
                "{\"lines\":[],\n\n\"order_id\":\"secret\"}",
                format!("{wrong}: in the field `order_id`, expected u64 at line 3 column 19"),
            ),
            ("{\"order_id\":-7}", format!("{wrong}: in the field `order_id`, expected u64 at line 1 column 14")),
            ("{\"notes\":{\"secret\":300}}", format!("{wrong}: in the field `notes`, expected u8 at line 1 column 22")),
            ("[]", format!("{wrong}: expected struct Order with 4 elements at line 1 column 2")),
            ("{}", "the body has a missing field `order_id` at line 1 column 2".to_owned()),
            ("{\"order_id\":secret}", "the body is not JSON at line 1 column 13".to_owned()),
        ] {
            assert_eq!(said::<Order>(json), expected, "{json}");
        }
    }

    #[test]
    fn names_of_a_map_are_not_quoted() {
        let json = "{\"alice@example.com\":300}";
        assert_eq!(
            said::<HashMap<String, u8>>(json),
            "the body does not match the handler's type: expected u8 at line 1 column 24"
        );
    }

    #[test]
    fn a_name_is_not_quoted_if_the_type_has_none() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct NoField {}

        #[derive(Debug, Deserialize)]
        enum NoVariant {}

        let wrong = "the body does not match the handler's type";
        let name = r#""a, expected secret""#;
        assert_eq!(said::<NoField>(&format!("{{{name}:1}}")), format!("{wrong} at line 1 column 21"));
        assert_eq!(said::<NoVariant>(name), format!("{wrong} at line 1 column 20"));
    }

    #[test]
    fn a_text_of_the_types_own_is_not_quoted() {
        #[derive(Debug)]
        struct Own;

        impl<'de> Deserialize<'de> for Own {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Err(de::Error::custom(format!("{text}, expected {text}")))
            }
        }

        assert_eq!(said::<Own>("\"secret\""), "the body does not match the handler's type");
    }

    #[test]
    fn an_error_about_the_whole_object_names_no_field() {
        #[derive(Debug)]
        struct Whole;

        impl<'de> Visitor<'de> for Whole {
            type Value = Self;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an order")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
                while members.next_entry::<String, u64>()?.is_some() {}
                Err(de::Error::custom("it is too old"))
            }
        }

        impl<'de> Deserialize<'de> for Whole {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_struct("Whole", &["order_id"], Self)
            }
        }

        let wrong = "the body does not match the handler's type";
        assert_eq!(said::<Whole>("{\"order_id\":7}"), format!("{wrong} at line 1 column 14"));
    }

    #[test]
    fn fields_are_those_of_the_struct_inside() {
        #[derive(Deserialize)]
        #[expect(dead_code, reason = "only decoded")]
        struct Wrapped(Order);

        assert_eq!(fields_of::<Option<Wrapped>>(), ["order_id", "lines", "notes", "currency"]);
        assert!(fields_of::<Vec<Order>>().is_empty() && fields_of::<()>().is_empty());
    }
}
