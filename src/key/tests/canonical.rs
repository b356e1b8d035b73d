//! The canonical form of JSON texts, and the errors of invalid ones.

use super::select;
use crate::{
    error::ErrorKind,
    key::{
        canonical::{MAX_DEPTH, Problem, canonical},
        selector::Key,
    },
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
