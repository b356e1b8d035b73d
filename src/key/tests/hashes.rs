//! Hashes of keys and payloads.

use crate::{
    key::{
        canonical::Form,
        delivery::Body,
        hash::{KeyScope, digest, fingerprint},
    },
    record::from_digits,
};

#[test]
fn keys_of_different_scopes_never_meet() {
    let scope = |function, engine, operation, tenant: Option<&str>| {
        KeyScope { function, engine, operation, tenant: tenant.map(str::as_bytes) }.hasher().hash(b"\"k\"")
    };
    let all = [
        scope("f", None, "a", None),
        scope("f", None, "b", None),
        scope("g", None, "a", None),
        scope("fa", None, "", None),
        scope("f", None, "a", Some("")),
        scope("f", None, "a", Some("t")),
        scope("f", Some(""), "a", None),
        scope("f", Some("a"), "a", None),
        scope("f", Some("a"), "b", None),
        scope("f", Some("b"), "a", None),
        scope("f", Some("ab"), "", None),
        scope("f", Some("a"), "t", None),
        scope("f", Some("a"), "", Some("t")),
    ];
    for (i, a) in all.iter().enumerate() {
        assert!(all[i + 1..].iter().all(|b| a != b));
    }
}

#[test]
fn hashes_are_those_of_every_version() {
    // Other values would make all records unfindable. These were computed by a different implementation of SHA-256.
    let scope = |tenant| KeyScope { function: "f", engine: None, operation: "sqs", tenant };
    let key = "2fa1fb015ac270aeb7b1090ab4a35833f4ee5cc9654ce1e6bccf16c10e2f9817";
    assert_eq!(scope(None).hasher().hash(b"\"a\"").to_hex(), key);
    let hasher = scope(Some(b"t".as_slice())).hasher();
    let key = "1ee6601dd2ea88d6394a3666e46b136245fb51061bbe7bf62c938b5f413ef827";
    assert_eq!([hasher.hash(b"\"a\"").to_hex(), hasher.hash(b"\"a\"").to_hex()], [key, key]);
    let named = KeyScope { engine: Some("orders"), ..scope(Some(b"t".as_slice())) };
    assert_eq!(
        named.hasher().hash(b"\"a\"").to_hex(),
        "b1a82a55d7f3da0e2485ec2f4fc8f03658ca50cccd316c25a0d49736a90ed1a1"
    );
    let json = "de08067ff58b6868410d0c1218bb72c100000000000000000000000000000001";
    assert_eq!(fingerprint(Form::CanonicalJson, b"[1]").to_text(), json);
    assert_eq!(Body::new(b" [ 1 ] ").fingerprint(&scope(None).hasher()).to_text(), json);
    let bytes = from_digits("0edead7960a08ca7fd9a28da9b9fdbd24831e031a168d11a19550e0d6210ffa5");
    assert_eq!(Some(digest(Form::Bytes, &[b"a", b"bc"])), bytes);
}

#[test]
fn bytes_and_json_never_share_a_fingerprint() {
    assert_ne!(fingerprint(Form::Bytes, b"1"), fingerprint(Form::CanonicalJson, b"1"));
    assert_ne!(digest(Form::Bytes, &[b"ab", b"c"]), digest(Form::Bytes, &[b"a", b"bc"]));
}
