//! Canonical JSON against an independent parser.

use lambda_once::key::canonical::{MAX_DEPTH, Problem, canonical};
use lambda_once_fuzz::{
    input::Input,
    json::{Json, code_points, parse},
    mutate, target,
};

target!(
    /// A value, in two spellings. One of them may be damaged.
    values,
    |bytes| {
        let mut input = Input::new(bytes);
        let value = Json::draw(&mut input, 4);
        let [mut first, mut second] = [String::new(), String::new()];
        value.spell(&mut input, &mut first);
        value.spell(&mut input, &mut second);
        let mut text = first.into_bytes();
        let is_damaged = input.one_in(3);
        if is_damaged {
            mutate::bytes(&mut text, &mut input);
        }
        let form = compared(&text);
        if !is_damaged {
            assert_eq!(form.as_ref().ok(), compared(second.as_bytes()).as_ref().ok(), "two spellings of a value: {text:?}, {second:?}");
        }
        kind(&form)
    }
);

target!(
    /// Damaged documents.
    documents,
    |bytes| {
        let mut input = Input::new(bytes);
        let files = [
            include_str!("../../../events/sqs-batch.json"),
            include_str!("../../../events/mq-active.json"),
            include_str!("../../../tests/batch/envelopes/events/s3-in-sns-in-sqs.json"),
        ];
        let start = input.below(200);
        let mut text = input.pick(&files).as_bytes().to_vec();
        text.truncate(text.len() - start % text.len());
        for _ in 0..input.below(4) {
            mutate::bytes(&mut text, &mut input);
        }
        kind(&compared(&text))
    }
);

target!(
    /// Deeply nested arrays and objects.
    nesting,
    |bytes| {
        let mut input = Input::new(bytes);
        let depth = MAX_DEPTH - 3 + input.below(6);
        let closing: Vec<bool> = (0..depth).map(|_| input.one_in(2)).collect();
        let mut text: String = closing.iter().map(|is_array| if *is_array { "[" } else { "{\"a\":" }).collect();
        text.push('1');
        text.extend(closing.iter().rev().map(|is_array| if *is_array { ']' } else { '}' }));
        let form = compared(text.as_bytes());
        assert_eq!(form.is_ok(), depth <= MAX_DEPTH);
        format!("{depth}")
    }
);

fn kind(form: &Result<Vec<u8>, Problem>) -> String {
    let kind = match form {
        Ok(form) => return format!("{:?}", form.len().checked_ilog2()),
        Err(Problem::Syntax { at }) => return format!("syntax {:?}", at.checked_ilog2()),
        Err(Problem::DuplicateMember { .. }) => "duplicate member",
        Err(_) => "too deep",
    };
    kind.to_owned()
}

/// Returns the canonical form, after a comparison with the oracle.
fn compared(text: &[u8]) -> Result<Vec<u8>, Problem> {
    let form = canonical(text);
    let sorted = parse(text, MAX_DEPTH).map(|value| value.sorted());
    match &form {
        Ok(form) => {
            let sorted = sorted.flatten().expect("the oracle refuses what has a canonical form");
            assert_eq!(parse(form, MAX_DEPTH), Some(sorted), "the form is another value, or unsorted");
            assert_eq!(canonical(form).as_ref(), Ok(form), "the canonical form of the canonical form");
            assert!(is_short(form), "{}", String::from_utf8_lossy(form));
        }
        Err(Problem::DuplicateMember { at }) => {
            assert!(*at <= text.len());
            // A repeated member is found before the rest is read.
            assert!(!matches!(sorted, Some(Some(_))), "the members differ");
        }
        Err(Problem::Syntax { at }) => {
            assert!(sorted.is_none() && *at <= text.len());
            let is_text = std::str::from_utf8(text).is_ok();
            // The first part alone can be continued, or the byte before would have been reported.
            assert!(
                !is_text
                    || text.get(*at).is_none_or(|byte| parse(&[&text[..*at], &[*byte]].concat(), MAX_DEPTH).is_none())
            );
        }
        Err(Problem::TooDeep) => assert!(sorted.is_none()),
        Err(other) => panic!("an unknown problem: {other}"),
    }
    form
}

/// Returns whether a form has no white space outside of strings, and escapes only characters that must be escaped
/// in JSON, and code units that are no character.
fn is_short(form: &[u8]) -> bool {
    let characters: Vec<char> = std::str::from_utf8(form).unwrap().chars().collect();
    let (mut is_within, mut at) = (false, 0);
    while at < characters.len() {
        match characters[at] {
            '"' => is_within = !is_within,
            '\\' => {
                let escape: String = characters[at..].iter().take(12).collect();
                let Some(Json::Text(units)) = (1..=12).find_map(|n| {
                    let escape: String = escape.chars().take(n).collect();
                    parse(format!("\"{escape}\"").as_bytes(), 1)
                }) else {
                    return false;
                };
                let required =
                    |code: u32| code < 0x20 || [0x22, 0x5c].contains(&code) || (0xd800..0xe000).contains(&code);
                if !code_points(&units).iter().all(|code| required(*code)) {
                    return false;
                }
                at += if escape.starts_with("\\u") { 5 } else { 1 };
            }
            ' ' | '\t' | '\n' | '\r' if !is_within => return false,
            _ => {}
        }
        at += 1;
    }
    true
}
