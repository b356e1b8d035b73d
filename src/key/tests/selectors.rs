//! Keys that are selected from deliveries, and keys that are missing.

use super::select;
use crate::{
    error::ErrorKind,
    key::{
        canonical::canonical,
        delivery::{Body, Delivery},
        pointer::{Pointer, find},
        selector::Key,
        value::of_value,
    },
};

#[test]
fn pointers_resolve_as_rfc_6901_specifies() {
    // The example document and the pointers of RFC 6901, section 5.
    let document = br#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#;
    let json = canonical(document).unwrap();
    for (pointer, value) in [
        ("/foo", Some(r#"["bar","baz"]"#)),
        ("/foo/0", Some("\"bar\"")),
        ("/foo/1", Some("\"baz\"")),
        ("/foo/2", None),
        ("/foo/01", None),
        ("/foo/-", None),
        ("/foo/+1", None),
        ("/", Some("0")),
        ("/a~1b", Some("1")),
        ("/c%d", Some("2")),
        ("/e^f", Some("3")),
        ("/g|h", Some("4")),
        ("/i\\j", Some("5")),
        ("/k\"l", Some("6")),
        ("/ ", Some("7")),
        ("/m~0n", Some("8")),
        ("/m~0n/x", None),
        ("/nothing", None),
    ] {
        let found = find(&json, &Pointer::parse(pointer).unwrap());
        assert_eq!(found, value.map(str::as_bytes), "{pointer}");
    }
    assert_eq!(find(&json, &Pointer::parse("").unwrap()), Some(&json[..]));
    for bad in ["order_id", "#/a", "/a~", "/a~2"] {
        assert_eq!(Pointer::parse(bad), None, "{bad}");
        assert_eq!(Key::pointer(bad).check().unwrap_err().kind(), ErrorKind::Config);
    }
}

#[test]
fn a_missing_key_is_an_error_and_never_the_hash_of_nothing() {
    let key = Key::pointer("/id");
    for body in ["{}", r#"{"id":null}"#, r#"{"id":""}"#, r#"{"id":[]}"#, r#"{"id":{"a":[1,null]}}"#, "[]", "1"] {
        assert_eq!(select(&key, body), Err(ErrorKind::KeyMissing), "{body}");
    }
    assert_eq!(select(&key, "not json"), Err(ErrorKind::Payload));
    assert_eq!(select(&Key::from_fn(|_| Ok(None)), "{}"), Err(ErrorKind::KeyMissing));
    assert_eq!(select(&Key::from_fn(|_| Ok(Some(String::new()))), "{}"), Err(ErrorKind::KeyMissing));
    assert_eq!(select(&Key::from_fn(|_| Err("no".into())), "{}"), Err(ErrorKind::Payload));
}

#[test]
fn falsy_values_are_keys() {
    for value in ["0", "false", "-0", "[0]", r#"{"":0}"#] {
        assert_eq!(select(&Key::pointer("/id"), &format!(r#"{{"id":{value}}}"#)).as_deref(), Ok(value));
    }
}

#[test]
fn a_partly_missing_key_is_missing() {
    let key = Key::composite([Key::pointer("/user"), Key::pointer("/order")]);
    assert_eq!(select(&key, r#"{"user":"bob","order":1}"#).as_deref(), Ok(r#"["bob",1]"#));
    for body in [r#"{"order":1}"#, r#"{"user":null,"order":1}"#, r#"{"user":"bob"}"#] {
        assert_eq!(select(&key, body), Err(ErrorKind::KeyMissing), "{body}");
    }
    assert_eq!(Key::composite([]).check().unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(of_value(&("bob", None::<u32>)).unwrap_err().kind(), ErrorKind::KeyMissing);
    assert_eq!(of_value(&("a", (None::<u8>, 1))).unwrap_err().kind(), ErrorKind::KeyMissing);
    assert_eq!(of_value(&serde_json::json!({ "tenant": null, "id": 1 })).unwrap_err().kind(), ErrorKind::KeyMissing);
    assert_eq!(of_value(&serde_json::json!({})).unwrap_err().kind(), ErrorKind::KeyMissing);
    assert_eq!(of_value("").unwrap_err().kind(), ErrorKind::KeyMissing);
    assert_eq!(of_value(&None::<u32>).unwrap_err().kind(), ErrorKind::KeyMissing);
    assert_eq!(of_value(&("bob", 7)).unwrap(), br#"["bob",7]"#);
}

#[test]
fn a_whole_body_is_a_key_whatever_it_holds() {
    let body = r#"{"time":null,"items":[],"detail":{"id":7,"name":""}}"#;
    let canonical = r#"{"detail":{"id":7,"name":""},"items":[],"time":null}"#;
    assert_eq!(select(&Key::pointer(""), body).as_deref(), Ok(canonical));
    for nothing in ["null", "\"\"", "[]", "{}"] {
        assert_eq!(select(&Key::pointer(""), nothing), Err(ErrorKind::KeyMissing), "{nothing}");
    }
}

#[test]
fn a_partly_missing_key_is_reported_with_its_path() {
    let said = |pointer: &str, body: &str| {
        let (body, mut buffer) = (Body::new(body.as_bytes()), Vec::new());
        Key::pointer(pointer).select(&Delivery::new(&body, &None), &mut buffer).unwrap_err().to_string()
    };
    let body = r#"{"order":{"id":7,"a/b":[1,{"c~":null}]},"empty":""}"#;
    assert!(said("/order", body).ends_with("`null` or something empty at `/order/…/1/…`"), "without names of the body");
    assert!(said("/empty", body).ends_with("`null` or something empty at `/empty`"));
    assert!(said("/ordre", body).ends_with("nothing at `/ordre`"));
}

#[test]
fn the_message_id_is_a_key() {
    assert_eq!(select(&Key::message_id(), "not json").as_deref(), Ok("\"m-1\""));
    assert!(Key::message_id().select(&Delivery::new(&Body::new(b"{}"), &None::<&str>), &mut Vec::new()).is_err());
    assert!(Key::message_id().select(&Delivery::new(&Body::new(b"{}"), &Some("")), &mut Vec::new()).is_err());
}

#[test]
fn debug_shows_no_payload() {
    let body = Body::new(b"\"secret\"");
    let delivery = Delivery::new(&body, &None::<&str>);
    assert!(
        !format!("{delivery:?} {:?}", Key::composite([Key::pointer("/a"), Key::from_fn(|_| Ok(None))]))
            .contains("secret")
    );
}
