//! Decodes JSON from a string within JSON.

use std::fmt::Debug;

use super::{canonical::canonical, text::unescaped};
use crate::error::Error;

/// The maximum number of times that a key can decode JSON within a string.
pub(super) const MAX_STEPS: usize = 8;

/// Returns the JSON that a canonical string contains, in canonical form.
pub(super) fn json_in(value: &[u8], selected_by: &impl Debug) -> Result<Vec<u8>, Error> {
    let [b'"', text @ .., b'"'] = value else {
        return Err(Error::payload(format!("{selected_by:?} is not a text that could hold JSON")));
    };
    let text: Vec<u8> = unescaped(text).collect();
    canonical(&text)
        .map_err(|problem| Error::payload(format!("the text at {selected_by:?} is not JSON to look into: {problem}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics")]

    use crate::{
        error::ErrorKind,
        key::{
            delivery::{Body, Delivery},
            selector::Key,
        },
    };

    fn select(key: &Key, body: &str) -> Result<String, ErrorKind> {
        let body = Body::new(body.as_bytes());
        let mut buffer = Vec::new();
        let selected = key.select(&Delivery::new(&body, &None), &mut buffer);
        selected.map(|key| String::from_utf8(key.to_vec()).unwrap()).map_err(|error| error.kind())
    }

    #[test]
    fn a_key_looks_into_json_within_a_text() {
        let body = r#"{"request":"{ \"order\" : {\"id\": 7.0, \"note\": \"\\u0041\"}, \"none\": null, \"again\": \"[1,\\\"x\\\"]\" }","plain":"7}","number":7}"#;
        let request = || Key::pointer("/request");
        assert_eq!(select(&request().parse_json("/order/id"), body).as_deref(), Ok("7.0"), "digits stay");
        assert_eq!(select(&request().parse_json(""), r#"{"request":"[2,1]"}"#).as_deref(), Ok("[2,1]"));
        assert_eq!(select(&request().parse_json("/order/note"), body).as_deref(), Ok("\"A\""));
        assert_eq!(select(&request().parse_json("/again").parse_json("/1"), body).as_deref(), Ok("\"x\""));
        assert_eq!(
            select(&Key::composite([request().parse_json("/order/id"), Key::pointer("/number")]), body).as_deref(),
            Ok("[7.0,7]")
        );
        for missing in
            [request().parse_json("/none"), request().parse_json("/nothing"), Key::pointer("/absent").parse_json("/id")]
        {
            assert_eq!(select(&missing, body), Err(ErrorKind::KeyMissing), "{missing:?}");
        }
        for unfit in [
            Key::pointer("/plain").parse_json("/id"),
            Key::pointer("/number").parse_json("/id"),
            Key::pointer("").parse_json("/id"),
        ] {
            assert_eq!(select(&unfit, body), Err(ErrorKind::Payload), "{unfit:?}");
        }
        assert_eq!(format!("{:?}", request().parse_json("/id")), r#"Key::pointer("/request").parse_json("/id")"#);
    }

    #[test]
    fn steps_into_json_are_checked_and_bounded() {
        let steps = |count| (0..count).fold(Key::pointer("/a"), |key, _| key.parse_json("/a"));
        assert!(steps(8).check().is_ok());
        for wrong in [steps(9), Key::pointer("/a").parse_json("b"), Key::pointer("a").parse_json("/b")] {
            assert_eq!(wrong.check().unwrap_err().kind(), ErrorKind::Config, "{wrong:?}");
        }
        // A text that needs no escapes, however deeply it is quoted.
        let nested =
            (0..8).fold("1".to_owned(), |inner, _| format!(r#"{{"a":{}}}"#, serde_json::to_string(&inner).unwrap()));
        let body = format!(r#"{{"a":{}}}"#, serde_json::to_string(&nested).unwrap());
        assert_eq!(select(&steps(8), &body).as_deref(), Ok("\"1\""));
    }
}
