#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    canonical::{Form, MAX_DEPTH, Problem, canonical},
    delivery::{Body, Delivery},
    hash::{KeyScope, digest, fingerprint},
    pointer::{Pointer, find},
    selector::Key,
    value::{canonical_value, of_value},
};
use crate::{
    error::{Error, ErrorKind},
    record::from_digits,
};

fn text(json: &str) -> String {
    String::from_utf8(canonical(json.as_bytes()).unwrap()).unwrap()
}

#[test]
fn all_spellings_of_a_value_share_one_form() {
    assert_eq!(text(" { \"b\" : [ 1 , true , null ] , \"a\" : \"x\" } "), r#"{"a":"x","b":[1,true,null]}"#);
    assert_eq!(text(r#""\u0041\/\u00e9\ud83d\ude00\n""#), "\"A/é😀\\u000a\"");
    assert_eq!(text(r#"{"z":{"b":1,"a":2},"a":[]}"#), r#"{"a":[],"z":{"a":2,"b":1}}"#);
    assert_eq!(text("{}"), "{}");
}

#[test]
fn names_are_sorted_by_their_unescaped_text() {
    // By their escapes, these would follow `A`.
    let json = r#"{"A":1,"\u0001":2,"\"":3,"!":4,"\u0041\u0001":5,"A!":6,"\\":7,"]":8,"[":9}"#;
    assert_eq!(text(json), r#"{"\u0001":2,"!":4,"\"":3,"A":1,"A\u0001":5,"A!":6,"[":9,"\\":7,"]":8}"#);
    assert_eq!(text(r#"{"a":1,"ab":2,"a\u0000":3}"#), r#"{"a":1,"a\u0000":3,"ab":2}"#);
}

#[test]
fn long_names_that_begin_alike_are_in_order_too() {
    let json = r#"{"order_id_b":1,"order_id":2,"order_id_a":3,"order_i":4,"order_id\u0000":5,"order_id\"":6}"#;
    let in_order = r#"{"order_i":4,"order_id":2,"order_id\u0000":5,"order_id\"":6,"order_id_a":3,"order_id_b":1}"#;
    assert_eq!(text(json), in_order);
    // By its escape, the second would follow the first.
    assert_eq!(text(r#"{"order_idA":1,"order_id\"":2}"#), r#"{"order_id\"":2,"order_idA":1}"#);
    for twice in [r#"{"order_id_b":1,"order_id_a":2,"order_id_b":3}"#, r#"{"order_id_\u0062":1,"a":2,"order_id_b":3}"#]
    {
        assert!(matches!(canonical(twice.as_bytes()), Err(Problem::DuplicateMember { .. })), "{twice}");
    }
}

#[test]
fn special_bytes_in_a_string_are_found_at_every_position() {
    for before in 0..20 {
        for behind in 0..20 {
            // Bytes next to the special ones, and bytes with their highest bit set.
            let [before, behind] = [before, behind].map(|length| "!#[] \u{7f}é\u{80}".chars().cycle().take(length));
            let [before, behind]: [String; 2] = [before.collect(), behind.collect()];
            let json = format!(r#"["{before}","{before}\"{behind}","{before}\\{behind}","{before}\u001f{behind}"]"#);
            assert_eq!(text(&json), json);
            let control = format!("\"{before}\u{1f}{behind}\"");
            let at = before.len() + 1;
            assert_eq!(canonical(control.as_bytes()), Err(Problem::Syntax { at }));
        }
    }
}

#[test]
fn half_of_a_surrogate_pair_stays_an_escape() {
    for (json, form) in [
        (r#""thanks \uD83d""#, r#""thanks \ud83d""#),
        (r#""\uDE00 first""#, r#""\ude00 first""#),
        (r#""\uD83D\uD83D\uDE00""#, r#""\ud83d😀""#),
        (r#""\ud83d\u0041""#, r#""\ud83dA""#),
        (r#""\ud83d\n\ude00""#, r#""\ud83d\u000a\ude00""#),
        (r#""\ud83d\\ude00""#, r#""\ud83d\\ude00""#),
        // They are ordered by their codes, which lie between those of other characters.
        (
            r#"{"\uffff":1,"\uD83D":2,"\ud83c":3,"é":4,"ud83d":5}"#,
            "{\"ud83d\":5,\"é\":4,\"\\ud83c\":3,\"\\ud83d\":2,\"\u{ffff}\":1}",
        ),
    ] {
        assert_eq!(text(json), form);
        assert_eq!(text(form), form);
    }
    for twice in [r#"{"\ud83d":1,"\uD83D":2}"#, r#"{"b\ud83d":1,"a":2,"b\uD83D":3}"#] {
        assert!(matches!(canonical(twice.as_bytes()), Err(Problem::DuplicateMember { .. })), "{twice}");
    }
    let body = r#"{"order_id":"7","note":"thanks \ud83d"}"#;
    assert_eq!(select(&Key::pointer("/order_id"), body).as_deref(), Ok("\"7\""));
    assert_eq!(select(&Key::pointer("/note"), body).as_deref(), Ok(r#""thanks \ud83d""#));
    // As text it could become equal to others.
    assert_eq!(select(&Key::pointer("/note").parse_json("/a"), body), Err(ErrorKind::Payload));
}

#[test]
fn a_non_finite_number_is_an_error_and_never_null() {
    #[derive(serde::Serialize)]
    struct Cents(f64);
    #[derive(serde::Serialize)]
    enum Amount {
        Newtype(f64),
        Tuple(f64, f32),
        Struct { amount: Option<f64> },
    }
    let kind = |found: Result<Vec<u8>, Error>| found.map_err(|error| error.kind());
    for none in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        #[expect(clippy::cast_possible_truncation, reason = "it is not finite in either type")]
        let short = none as f32;
        assert_eq!(kind(of_value(&none)), Err(ErrorKind::Payload));
        for found in [
            canonical_value(&none),
            canonical_value(&short),
            canonical_value(&Cents(none)),
            canonical_value(&("order 7", [1.0, none])),
            canonical_value(&vec![Some(1.0), Some(none)]),
            canonical_value(&BTreeMap::from([("amount", (none,))])),
            canonical_value(&serde_json::json!({ "a": null })).and_then(|_| canonical_value(&Amount::Newtype(none))),
            canonical_value(&Amount::Tuple(1.0, short)),
            canonical_value(&Amount::Struct { amount: Some(none) }),
        ] {
            assert_eq!(kind(found), Err(ErrorKind::Payload));
        }
    }
    let null = |found: Result<Vec<u8>, Error>| String::from_utf8(found.unwrap()).unwrap();
    assert_eq!(null(canonical_value(&(None::<f64>, (), 0.5, "null"))), r#"[null,null,0.5,"null"]"#);
    assert_eq!(null(canonical_value(&Amount::Struct { amount: None })), r#"{"Struct":{"amount":null}}"#);
}

#[test]
fn a_value_that_panics_when_it_is_serialized_is_an_error() {
    struct PanicsAgain;
    impl Drop for PanicsAgain {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("in drop"));
        }
    }
    struct Panics;
    impl serde::Serialize for Panics {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            std::panic::resume_unwind(Box::new(PanicsAgain))
        }
    }
    for found in [of_value(&Panics), of_value(&("order 7", Panics)), canonical_value(&[Panics])] {
        assert_eq!(found.map_err(|error| error.kind()), Err(ErrorKind::Payload));
    }
}

#[test]
fn errors_name_the_byte() {
    for (json, at) in [
        (&b"[1,x]"[..], 3),
        (b"{\"a\" 1}", 5),
        (b"\"ab", 3),
        (b"\"a\x01\"", 2),
        (b"\"a\\x\"", 2),
        (b"\"\\u00e\"", 1),
        (b"\"\\ud83d\\u00e\"", 1),
        (b"[\"a\xff\",1]", 4),
        (b"[\"\xc3\\u00a9\"]", 9),
        (b"[\xff]", 1),
        (b"\"a\"\xff", 3),
        (b"\"", 1),
        (b"\"\\", 2),
    ] {
        assert_eq!(canonical(json), Err(Problem::Syntax { at }), "{}", String::from_utf8_lossy(json));
    }
    assert_eq!(canonical(br#"{"a":1,"a":2}"#), Err(Problem::DuplicateMember { at: 11 }));
    assert_eq!(canonical(br#"[{"b":1,"a":2,"\u0062":3},4]"#), Err(Problem::DuplicateMember { at: 25 }));
}

#[test]
fn numbers_that_differ_never_share_a_form() {
    for (a, b) in [
        ("9007199254740993", "9007199254740992"),
        ("123456789012345678901234567890", "123456789012345678901234567891"),
        ("1", "1.0"),
        ("0.1", "0.10000000000000001"),
        ("-0", "0"),
    ] {
        assert_ne!(text(a), text(b));
    }
}

#[test]
fn a_member_that_occurs_twice_is_an_error() {
    for json in [r#"{"a":1,"a":1}"#, r#"{"a":1,"b":2,"a":3}"#, r#"[{"b":1,"a":2,"\u0062":1}]"#] {
        assert!(matches!(canonical(json.as_bytes()), Err(Problem::DuplicateMember { .. })), "{json}");
    }
}

#[test]
fn deep_nesting_is_an_error_and_not_a_crash() {
    let nested = |depth| [b"[".repeat(depth), b"]".repeat(depth)].concat();
    assert!(canonical(&nested(MAX_DEPTH)).is_ok());
    assert_eq!(canonical(&nested(MAX_DEPTH + 1)), Err(Problem::TooDeep));
    let objects = |depth| [b"{\"a\":".repeat(depth), b"1".to_vec(), b"}".repeat(depth)].concat();
    assert!(canonical(&objects(MAX_DEPTH)).is_ok());
    assert_eq!(canonical(&objects(MAX_DEPTH + 1)), Err(Problem::TooDeep));
    assert_eq!(canonical(&b"[{\"a\":".repeat(1_000_000)), Err(Problem::TooDeep));
}

#[test]
fn invalid_json_is_refused() {
    for bad in [
        "",
        " ",
        "{",
        "[1,]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":1,}",
        "{a:1}",
        "01",
        "1.",
        ".5",
        "+1",
        "-",
        "1e",
        "tru",
        "nul",
        "'x'",
        "\"x",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud83d\\ude0\"",
        "\"\n\"",
        "1 1",
        "{} x",
        "NaN",
        "\u{feff}1",
    ] {
        assert!(matches!(canonical(bad.as_bytes()), Err(Problem::Syntax { .. })), "{bad:?}");
    }
    assert!(canonical(b"\"\xff\"").is_err());
}

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

fn select(key: &Key, body: &str) -> Result<String, ErrorKind> {
    let body = Body::new(body.as_bytes());
    let delivery = Delivery::new(&body, &Some("m-1"));
    key.select(&delivery, &mut Vec::new())
        .map(|key| String::from_utf8(key.to_vec()).unwrap())
        .map_err(|error| error.kind())
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

#[test]
fn debug_shows_no_payload() {
    let body = Body::new(b"\"secret\"");
    let delivery = Delivery::new(&body, &None::<&str>);
    assert!(
        !format!("{delivery:?} {:?}", Key::composite([Key::pointer("/a"), Key::from_fn(|_| Ok(None))]))
            .contains("secret")
    );
}

pub(super) fn json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(|f| json!(f)),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(".*", inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

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
