#![allow(clippy::unwrap_used, reason = "a test panics")]

use super::{Expression, tree};
use crate::{
    error::{Error, ErrorKind},
    key::{
        canonical::canonical,
        delivery::{Body, Delivery},
        hash::KeyScope,
        payload::Payload,
        selector::Key,
    },
};

fn look_up(key: &Key, body: &str) -> Result<String, Error> {
    let body = Body::new(body.as_bytes());
    let mut buffer = Vec::new();
    let found = key.select(&Delivery::new(&body, &None), &mut buffer)?;
    Ok(String::from_utf8(found.to_vec()).unwrap())
}

fn select(expression: &str, body: &str) -> Result<String, ErrorKind> {
    look_up(&Key::jmespath(expression), body).map_err(|error| error.kind())
}

#[test]
fn expressions_select_as_jmespath_specifies() {
    let body = r#"{"user":{"id":7,"name":"bob"},"items":[{"sku":"b","n":2},{"sku":"a","n":1}],"tags":[["x"],["y"]]}"#;
    for (expression, found) in [
        ("user.id", "7"),
        ("\"user\".\"name\"", "\"bob\""),
        ("user", r#"{"id":7,"name":"bob"}"#),
        ("items[0].sku", "\"b\""),
        ("items[-1].sku", "\"a\""),
        ("items[*].sku", r#"["b","a"]"#),
        ("items[::-1].sku", r#"["a","b"]"#),
        ("items[?n > `1`].sku", r#"["b"]"#),
        ("items[?sku == 'a'] | [0].n", "1"),
        ("sort_by(items, &sku)[*].n", "[1,2]"),
        ("tags[]", r#"["x","y"]"#),
        ("user.*", r#"[7,"bob"]"#),
        ("[user.id, items[0].sku]", r#"[7,"b"]"#),
        ("{who: user.id, what: items[].sku}", r#"{"what":["b","a"],"who":7}"#),
        ("join('/', [user.name, to_string(user.id)])", "\"bob/7\""),
        ("length(items)", "2"),
        ("nothing || user.name", "\"bob\""),
        ("not_null(nothing, user.id)", "7"),
        ("to_number(user.id)", "7"),
        ("to_string(user.name)", "\"bob\""),
        ("user.id == `7`", "true"),
        ("`{\"a\": [1.0, \"x\"]}`", r#"{"a":[1.0,"x"]}"#),
    ] {
        assert_eq!(select(expression, body).as_deref(), Ok(found), "{expression}");
    }
    assert_eq!(select("@", "[1]").as_deref(), Ok("[1]"));
    assert_eq!(select("id", "not json"), Err(ErrorKind::Payload));
    assert_eq!(select("id", r#"{"id":1,"id":1}"#), Err(ErrorKind::Payload));
}

#[test]
fn an_expression_and_a_pointer_select_the_same_key() {
    for value in [
        "0",
        "-0",
        "1e5",
        "12.50",
        "1E400",
        "-1e400",
        "1e-400",
        "18446744073709551616",
        "\"\\n\\\"\\u0001\\u00e9😀\"",
        r#"{"b":1.0,"a":[true,false,{"\"":0.10000000000000001,"\u0001":-9007199254740993}]}"#,
    ] {
        let body = format!(r#"{{"a":{{"id":{value}}}}}"#);
        let pointed = look_up(&Key::pointer("/a/id"), &body).unwrap();
        assert_eq!(select("a.id", &body), Ok(pointed));
    }
}

#[test]
fn numbers_that_differ_never_share_a_form() {
    for (a, b) in [
        ("9007199254740993", "9007199254740992"),
        ("18446744073709551615", "18446744073709551614"),
        ("18446744073709551617", "18446744073709551616"),
        ("123456789012345678901234567890", "123456789012345678901234567891"),
        ("1", "1.0"),
        ("0.1", "0.10000000000000001"),
        ("-0", "0"),
        ("1e400", "1e401"),
        ("1e-400", "1e-401"),
    ] {
        for expression in [
            "id",
            "[id]",
            "{id: id}",
            "[[id], id][]",
            "[id, id][0:1]",
            "[*].id || @.id",
            "not_null(none, id)",
            "values(@)",
            "merge(`{\"x\": 1}`, @)",
            "reverse([id])",
            "sort([id, `0.5`])",
            "sort_by([@], &id)",
            "max([id])",
            "min_by([@], &id)",
            "map(&id, [@])",
            "to_array(id)",
            "to_string(id)",
            "to_string(@)",
            "to_number(to_string(id))",
            "join('-', ['order', to_string(id)])",
            "powertools_json(to_string(@)).id",
            "powertools_json(text).id",
            "to_number(powertools_json(text).text)",
        ] {
            let find = |id| {
                let text = format!(r#"{{\"id\":{id},\"text\":\"{id}\"}}"#);
                select(expression, &format!(r#"{{"id":{id},"text":"{text}"}}"#)).unwrap()
            };
            assert_ne!(find(a), find(b), "{expression} of {a} and {b}");
        }
    }
}

#[test]
fn a_missing_part_is_refused_in_a_list_and_is_text_to_a_function() {
    let (whole, part) = (r#"{"shop":"s","number":7}"#, r#"{"shop":"s"}"#);
    let joined = "join('/', [shop, to_string(number)])";
    assert_eq!(select(joined, whole).as_deref(), Ok("\"s/7\""));
    assert_eq!(select(joined, part).as_deref(), Ok("\"s/null\""), "docs/settings.md warns of it");
    assert_eq!(select("[shop, number]", part), Err(ErrorKind::KeyMissing));
    let all = Key::composite([Key::pointer("/shop"), Key::jmespath("number")]);
    let of = |body| look_up(&all, body).map_err(|error| error.kind());
    assert_eq!(of(whole).as_deref(), Ok("[\"s\",7]"));
    assert_eq!(of(part), Err(ErrorKind::KeyMissing));
}

#[test]
fn a_computed_number_that_may_not_be_exact_is_an_error() {
    for id in ["9007199254740992", "9007199254740993", "-9007199254740993", "123456789012345678901", "1e300"] {
        let body = format!(r#"{{"id":{id}}}"#);
        for expression in ["abs(id)", "sum([id])", "[floor(id)]", "{a: avg([id, id])}", "to_string(ceil(id))"] {
            assert_eq!(select(expression, &body), Err(ErrorKind::Payload), "{expression} of {id}");
        }
    }
    assert_eq!(select("`123456789012345678901`", "{}"), Err(ErrorKind::Payload));
    assert_eq!(select("&id", r#"{"id":1}"#), Err(ErrorKind::Payload));
    assert_eq!(select("sum([id, `1`])", r#"{"id":1}"#).as_deref(), Ok("2.0"));
    assert_eq!(select("length(id)", r#"{"id":"abc"}"#).as_deref(), Ok("3"));
}

/// As with `serde_json/arbitrary_precision`.
#[test]
fn a_literal_number_that_the_parser_reads_as_an_object_is_a_number() {
    let number = |digits: &str| format!(r#"{{"$serde_json::private::Number":"{digits}"}}"#);
    for (read, plain) in [("1", "1"), ("-7", "-7"), ("1.0", "1.0"), ("18446744073709551615", "18446744073709551615")] {
        let literal = number(read);
        let expression = format!(r#"`{{"a":[{literal},"x"]}}`"#);
        assert_eq!(select(&expression, "{}").unwrap(), format!(r#"{{"a":[{plain},"x"]}}"#));
        let filter = format!("[?id == `{literal}`].id | [0]");
        assert_eq!(select(&filter, &format!(r#"[{{"id":{plain}}}]"#)).as_deref(), Ok(plain));
        assert_eq!(select(&format!("@ && [?!(id == `{literal}`)].id | [0]"), r#"[{"id":2}]"#).as_deref(), Ok("2"));
    }
    assert_eq!(select(&format!("`{}`", number("123456789012345678901")), "{}"), Err(ErrorKind::Payload));
    let named = r#"{"$serde_json::private::Number":"seven"}"#;
    assert_eq!(select(&format!("`{named}`"), "{}").as_deref(), Ok(named));
}

#[test]
fn a_number_beyond_every_float_is_compared_as_the_nearest_one() {
    for (expression, id) in [("id > `1e300`", "1e400"), ("id < `-1e300`", "-1e400")] {
        assert_eq!(select(expression, &format!(r#"{{"id":{id}}}"#)).as_deref(), Ok("true"), "{id}");
    }
}

#[test]
fn a_search_leaves_nothing_behind() {
    for (expression, body) in [("id", r#"{"id":1e5,"other":0.5}"#), ("abs(@)", "[1e5]"), ("none", "[1e5]")] {
        let _ = select(expression, body);
        assert_eq!(tree::remembered(), 0, "{expression}");
    }
}

#[test]
fn a_number_that_is_gone_leaves_its_digits_to_no_other() {
    // New nodes may reuse the addresses of numbers that have been dropped.
    let computed = vec!["length('abc')"; 30].join(", ");
    let found = select(&format!("[length(powertools_json(text)), {computed}]"), r#"{"text":"[1e5,2e5]"}"#);
    assert_eq!(found, Ok(format!("[2,{}]", vec!["3"; 30].join(","))));
}

#[test]
fn a_key_that_is_not_found_is_missing() {
    for body in ["{}", r#"{"id":null}"#, r#"{"id":""}"#, r#"{"id":[]}"#, r#"{"id":{"a":[1,null]}}"#, "[]", "1"] {
        assert_eq!(select("id", body), Err(ErrorKind::KeyMissing), "{body}");
    }
    for expression in ["[user, id]", "{a: user, b: id}", "items[*].id", "powertools_json(text).id", "user.id"] {
        assert_eq!(select(expression, r#"{"user":"bob"}"#), Err(ErrorKind::KeyMissing), "{expression}");
    }
    for value in ["0", "false", "[0]"] {
        assert_eq!(select("id", &format!(r#"{{"id":{value}}}"#)).as_deref(), Ok(value));
    }
}

#[test]
fn an_invalid_expression_is_a_configuration_error() {
    for bad in
        ["", "/order_id", "a b", "a[", "nowhere(id)", "[id, {a: items[?nowhere(@)] | &b}]", "map(&nowhere(@), a)"]
    {
        let key = Key::jmespath(bad);
        assert_eq!(key.check().unwrap_err().kind(), ErrorKind::Config, "{bad}");
        assert_eq!(select(bad, r#"{"id":1}"#), Err(ErrorKind::Config), "{bad}");
        assert_eq!(Key::composite([Key::pointer("/id"), key]).check().unwrap_err().kind(), ErrorKind::Config);
    }
    for good in ["id", "a[?b > `1` && !c].d | [0]", "map(&powertools_json(@), to_array(a))", "{a: b, c: d || e}"] {
        assert!(Key::jmespath(good).check().is_ok(), "{good}");
    }
}

#[test]
fn json_within_a_text_is_looked_up_too() {
    let body = r#"{"Type":"Notification","Message":"{\"id\": \"A\", \"n\": [1, 2]}","plain":"text"}"#;
    assert_eq!(select("powertools_json(Message).id", body).as_deref(), Ok("\"A\""));
    assert_eq!(select("powertools_json(Message).[id, n[1]]", body).as_deref(), Ok(r#"["A",2]"#));
    assert_eq!(select("powertools_json(plain).id", body), Err(ErrorKind::Payload));
    assert_eq!(select("powertools_json(@).id", body), Err(ErrorKind::Payload), "it is no text");
    assert_eq!(select("powertools_json(text)", r#"{"text":"{\"a\":1,\"a\":2}"}"#), Err(ErrorKind::Payload));
}

/// The results of Powertools for Python: see tools/tests/powertools.py.
#[test]
fn encoded_text_is_found_as_powertools_does() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/vectors/powertools.json")).unwrap();
    let vectors = vectors["expressions"].as_array().unwrap();
    assert!(vectors.len() > 25);
    for vector in vectors {
        let [expression, body] = ["expression", "json"].map(|name| vector[name].as_str().unwrap());
        // In a list, an empty text is also found.
        let found = match select(&format!("{{found: {expression}, n: `1`}}"), body) {
            Ok(json) => Some(json),
            Err(ErrorKind::KeyMissing) => Some(r#"{"found":"","n":1}"#.to_owned()),
            Err(kind) => {
                assert_eq!(kind, ErrorKind::Payload, "{vector}");
                None
            }
        };
        let theirs = vector["python"]["found"].as_str().map(|found| canonical(found.as_bytes()).unwrap());
        let theirs = theirs.map(|found| format!(r#"{{"found":{},"n":1}}"#, String::from_utf8(found).unwrap()));
        assert_eq!(found, theirs, "{vector}");
    }
    for expression in ["powertools_base64(none)", "powertools_base64_gzip(none).id"] {
        assert_eq!(select(expression, "{}"), Err(ErrorKind::KeyMissing), "{expression}");
    }
    assert_eq!(select("powertools_base64(v)", r#"{"v":1}"#), Err(ErrorKind::Payload));
}

#[test]
fn a_payload_part_must_be_present() {
    let hasher = KeyScope { function: "f", engine: None, operation: "sqs", tenant: None }.hasher();
    let fingerprint = |body: &str| {
        let body = Body::new(body.as_bytes());
        let part = Payload::Part(Key::jmespath("detail.{id: id, n: n}"));
        part.check().unwrap();
        part.fingerprint(&body, &Delivery::new(&body, &None), &hasher).map_err(|error| error.kind())
    };
    let first = fingerprint(r#"{"detail":{"id":1,"n":""},"at":1}"#).unwrap();
    assert_eq!(fingerprint(r#"{"at":2,"detail":{"n":"","id":1}}"#), Ok(first));
    assert_ne!(fingerprint(r#"{"detail":{"id":1.0,"n":""}}"#), Ok(first));
    assert_eq!(fingerprint(r#"{"at":1}"#), Err(ErrorKind::Payload));
    let bad = Payload::Part(Key::jmespath("a b"));
    assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn errors_hold_nothing_of_the_body() {
    let body = r#"{"list":["hidden"],"text":"hidden","id":123456789012345678901}"#;
    for expression in [
        "abs(text)",
        "join('', list[0])",
        "powertools_json(text)",
        "powertools_base64(text)",
        "powertools_base64_gzip('YQ==')",
        "sort_by(list, &abs(@))",
        "abs(id)",
        "nothing",
    ] {
        let error = format!("{:?}", look_up(&Key::jmespath(expression), body).unwrap_err());
        assert!(error.contains(expression) && !error.contains("hidden") && !error.contains("1234"), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn any_body_comes_back_as_it_was(body in crate::key::tests::json()) {
        let form = canonical(body.to_string().as_bytes()).unwrap();
        for expression in ["@", "powertools_json(to_string([@]))[0]"] {
            let found = Expression::new(expression).search(&form).unwrap();
            proptest::prop_assert_eq!(&found, &form);
        }
    }
}

#[test]
fn half_of_a_surrogate_pair_does_not_merge_two_keys() {
    let body = r#"{"order_id":"7","note":"thanks \ud83d","\ud83c":{"id":1},"replaced":"\ufffd"}"#;
    assert_eq!(select("order_id", body).as_deref(), Ok("\"7\""));
    assert_eq!(select("[order_id, length(note)]", body).as_deref(), Ok("[\"7\",8]"));
    for merged in ["note", "[order_id, note]", "@", "join('/', [order_id, note])", "keys(@)"] {
        assert_eq!(select(merged, body), Err(ErrorKind::Payload), "{merged}");
    }
    assert_eq!(select("a", r#"{"a":"\ufffd","b":"\\ud83d"}"#).as_deref(), Ok("\"\u{fffd}\""));
    // In JSON within the body, in plain and in base64.
    let inner = r#"{"json":"{\"id\":\"\\ud83d\"}","base64":"eyJpZCI6Ilx1ZDgzZCJ9"}"#;
    for merged in ["powertools_json(json).id", "powertools_json(powertools_base64(base64)).id"] {
        assert_eq!(select(merged, inner), Err(ErrorKind::Payload), "{merged}");
    }
    // The next expression does not remember it.
    assert_eq!(select("a", r#"{"a":"\ufffd"}"#).as_deref(), Ok("\"\u{fffd}\""));
}
