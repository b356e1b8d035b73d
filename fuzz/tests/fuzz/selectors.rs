//! Keys by JSON Pointer and JMESPath against an independent lookup, and sequences.

use std::future::ready;

use lambda_once::{Failure, Key, order::Sequence, record::KeyHash, testing};
use lambda_once_fuzz::{
    input::Input,
    json::{Json, code_points, parse},
    mutate, target,
};
use serde::de::IgnoredAny;

use crate::run;

/// Returns the key that a function of a queue selects from a body.
fn selected(key: Key, body: &str) -> Option<KeyHash> {
    run(async {
        let service = testing::engine().sqs(key, |_: IgnoredAny| ready(Ok::<_, Failure>(())));
        // An invalid expression fails before any record.
        testing::deliver(&service, &testing::sqs::batch([testing::bytes(body)])).await.records.first()?.key
    })
}

/// Draws the names on the way to a value within this one. Sometimes they lead nowhere.
fn way(value: &Json, input: &mut Input<'_>) -> Vec<String> {
    let (name, value) = match value {
        _ if input.one_in(8) => return vec![input.text(3)],
        Json::Object(members) if !members.is_empty() => {
            let (name, value) = &members[input.below(members.len())];
            (code_points(name).into_iter().filter_map(char::from_u32).collect(), value)
        }
        Json::Array(items) if !items.is_empty() => {
            let at = input.below(items.len());
            (at.to_string(), &items[at])
        }
        _ => return Vec::new(),
    };
    [vec![name], way(value, input)].concat()
}

fn document(input: &mut Input<'_>) -> (Json, String) {
    let value = Json::draw(input, 4);
    let mut body = String::new();
    value.spell(input, &mut body);
    (value, body)
}

target!(
    /// A pointer and the oracle find the same value, with all digits.
    pointers,
    |bytes| {
        let mut input = Input::new(bytes);
        let (value, body) = document(&mut input);
        let names = way(&value, &mut input);
        let pointer: String = names.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect();
        let found = selected(Key::pointer(&pointer), &body);
        // A whole body may have something empty in it.
        let is_missing = if names.is_empty() { Json::is_empty } else { Json::has_empty };
        let expected = value.sorted().and_then(|value| value.at(&names).filter(|value| !is_missing(value)).cloned());
        assert_eq!(found.is_some(), expected.is_some(), "{pointer:?} in {body:?}");
        if let Some(expected) = expected {
            // The value alone, in another spelling, is the same key.
            let mut alone = String::new();
            expected.spell(&mut input, &mut alone);
            assert_eq!(selected(Key::pointer(""), &alone), found, "{pointer:?} in {body:?}");
        }
        format!("{} {}", found.is_some(), names.len())
    }
);

target!(
    /// Expressions of JMESPath. A path of names finds the same value as a pointer.
    expressions,
    |bytes| {
        let mut input = Input::new(bytes);
        let (value, body) = document(&mut input);
        if input.one_in(2) {
            let seeds = ["a.b[0]", "[id, to_string(n)]", "join('-', [a, b])", "a[?b > `1`].c | [0]", "powertools_json(a).b", "a || b && !c"];
            let mut text = input.pick(&seeds).as_bytes().to_vec();
            for _ in 0..input.below(4) {
                mutate::bytes(&mut text, &mut input);
            }
            let found = selected(Key::jmespath(&String::from_utf8_lossy(&text)), &body);
            return format!("any {}", found.is_some());
        }
        let names = way(&value, &mut input);
        let pointer: String = names.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect();
        let is_through_objects = (0..names.len()).all(|depth| matches!(value.at(&names[..depth]), Some(Json::Object(_))));
        if names.is_empty() || !is_through_objects || body.contains('\\') {
            return "no path".to_owned();
        }
        let quoted = names.iter().map(|name| serde_json::to_string(name).unwrap()).collect::<Vec<_>>().join(".");
        assert_eq!(selected(Key::jmespath(&quoted), &body), selected(Key::pointer(&pointer), &body), "{quoted} in {body:?}");
        format!("path {}", names.len())
    }
);

target!(
    /// Sequences are digits, and have the order of numbers.
    sequences,
    |bytes| {
        let mut input = Input::new(bytes);
        let mut draw = || {
            let zeros = "0".repeat(input.below(8) * input.below(3));
            let digits: String = (0..=input.below(70)).map(|_| char::from(b'0' + input.byte() % 10)).collect();
            let text = format!("{zeros}{digits}");
            if input.one_in(8) { input.text(8) } else { text }
        };
        let texts = [draw(), draw()];
        let sequences = texts.each_ref().map(|text| text.parse::<Sequence>().ok());
        for (text, sequence) in texts.iter().zip(&sequences) {
            let is_valid = (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            assert_eq!(sequence.is_some(), is_valid, "{text:?}");
        }
        let [Some(first), Some(second)] = sequences else { return "invalid".to_owned() };
        let order = |text: &String| (text.trim_start_matches('0').len(), text.trim_start_matches('0').to_owned());
        assert_eq!(first.cmp(&second), order(&texts[0]).cmp(&order(&texts[1])), "{texts:?}");
        let json = serde_json::to_vec(&first).unwrap();
        assert!(parse(&json, 1).is_some());
        assert_eq!(serde_json::from_slice::<Sequence>(&json).unwrap(), first);
        "valid".to_owned()
    }
);
