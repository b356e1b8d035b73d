#![allow(clippy::unwrap_used, reason = "a test panics")]

use serde_json::Value;

use super::*;
use crate::key::canonical::canonical;

/// The hashes that the packages themselves compute: see tools/tests/powertools.py.
fn vectors() -> Vec<Value> {
    let vectors: Value = serde_json::from_str(include_str!("../../../tests/vectors/powertools.json")).unwrap();
    vectors["hashes"].as_array().unwrap().clone()
}

fn text_of(dialect: Dialect, json: &str) -> String {
    String::from_utf8(dialect.text(&canonical(json.as_bytes()).unwrap())).unwrap()
}

fn check(dialect: Dialect, name: &str) {
    let vectors = vectors();
    assert!(vectors.len() > 200);
    for vector in &vectors {
        let json = vector["json"].as_str().unwrap();
        let (text, hash) = (vector[name]["text"].as_str().unwrap(), vector[name]["hash"].as_str().unwrap());
        assert_eq!(text_of(dialect, json), text, "{json}");
        let keys = PowertoolsKeys::new(dialect, "p");
        let key = keys.hash(&canonical(json.as_bytes()).unwrap());
        assert_eq!(keys.written(key.halves().0), hash, "{json}");
    }
}

#[test]
fn python_hashes_the_same_text() {
    check(Dialect::Python, "python");
}

#[test]
fn typescript_hashes_the_same_text() {
    check(Dialect::TypeScript, "typescript");
}

#[test]
fn names_that_differ_in_case_alone_have_one_order_however_they_were_sent() {
    let one = text_of(Dialect::TypeScript, r#"{"a":1,"A":2,"b":3}"#);
    assert_eq!(one, r#"{"A":2,"a":1,"b":3}"#);
    assert_eq!(text_of(Dialect::TypeScript, r#"{"A":2,"a":1,"b":3}"#), one);
}

#[test]
fn a_key_depends_on_its_prefix() {
    let of = |dialect, prefix| PowertoolsKeys::new(dialect, prefix).hash(b"7");
    let key = of(Dialect::Python, "orders.app.handler");
    assert_eq!(key, of(Dialect::Python, "orders.app.handler"));
    assert_ne!(key, of(Dialect::Python, "orders.app.refund"));
    assert!(PowertoolsKeys::new(Dialect::Python, "orders.app.handler").made(&key));
    assert!(!PowertoolsKeys::new(Dialect::Python, "orders.app.refund").made(&key));
    // The MD5 of `7`, by md5sum.
    assert_eq!(&key.to_hex()[..32], "8f14e45fceea167a5a36dedd4bea2543");
}

#[test]
fn a_fingerprint_is_read_as_it_is_written() {
    for dialect in [Dialect::Python, Dialect::TypeScript] {
        let keys = PowertoolsKeys::new(dialect, "p");
        let fingerprint = keys.fingerprint(Form::CanonicalJson, br#"{"a":1}"#);
        assert_eq!(keys.read_validation(&keys.validation(&fingerprint)), Some(fingerprint));
        for other in ["", "8f14e45fceea167a5a36dedd4bea2543f", "z", "jxTkX87qFnpaNt7dS+olQw", "QQ=="] {
            assert_eq!(keys.read_validation(other), None, "{other}");
        }
    }
}
