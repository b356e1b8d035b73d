//! Mutations of events.

use serde_json::{Map, Value};

use crate::{
    input::Input,
    oracle::base64::{decoded, encoded},
};

/// Changes places of an event. With a small chance, bytes of its text.
pub fn event(text: &str, input: &mut Input<'_>) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_str::<Value>(text) else { return text.as_bytes().to_vec() };
    for _ in 0..input.below(4) {
        // The top level is seldom the interesting one: most changes there make another kind of event.
        match &mut value {
            Value::Object(members) if !members.is_empty() && !input.one_in(16) => {
                let at = input.below(members.len());
                members.values_mut().nth(at).into_iter().for_each(|value| change(value, input));
            }
            whole => change(whole, input),
        }
    }
    let mut text = value.to_string().into_bytes();
    if input.one_in(8) {
        for _ in 0..=input.below(3) {
            bytes(&mut text, input);
        }
    }
    text
}

/// Changes one place of a value, which is chosen level by level.
pub fn change(value: &mut Value, input: &mut Input<'_>) {
    let goes_deeper = !input.one_in(12);
    match value {
        Value::Array(items) if goes_deeper && !items.is_empty() => {
            let at = input.below(items.len());
            match input.below(12) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                2 => items.swap(0, at),
                _ => change(&mut items[at], input),
            }
        }
        Value::Object(members) if goes_deeper && !members.is_empty() => {
            let at = input.below(members.len());
            let name = members.keys().nth(at).cloned().unwrap_or_default();
            match input.below(20) {
                0 => drop(members.remove(&name)),
                1 => drop(members.insert(input.text(8), Value::Null)),
                _ => members.values_mut().nth(at).into_iter().for_each(|value| change(value, input)),
            }
        }
        Value::String(text) if goes_deeper => change_text(text, input),
        _ => *value = any(input),
    }
}

/// Changes a text. Those that contain JSON, in plain or in base64, are often changed within it.
fn change_text(text: &mut String, input: &mut Input<'_>) {
    let within = serde_json::from_str::<Value>(text).ok().filter(|value| value.is_object() || value.is_array());
    if let Some(mut value) = within.filter(|_| !input.one_in(4)) {
        change(&mut value, input);
        *text = value.to_string();
        return;
    }
    let coded = decoded(text).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    if let Some(mut value) = coded.filter(|_| !input.one_in(4)) {
        change(&mut value, input);
        *text = encoded(value.to_string().as_bytes());
        return;
    }
    match input.below(5) {
        0 => text.clear(),
        1 => *text = input.text(24),
        2 => *text = encoded(&input.bytes(12)),
        3 => *text = input.json_number(),
        _ => {
            let mut changed = std::mem::take(text).into_bytes();
            bytes(&mut changed, input);
            *text = String::from_utf8_lossy(&changed).into_owned();
        }
    }
}

/// Changes, inserts, removes or repeats bytes.
pub fn bytes(text: &mut Vec<u8>, input: &mut Input<'_>) {
    let at = input.below(text.len() + 1);
    match input.below(5) {
        0 if at < text.len() => drop(text.remove(at)),
        1 => text.insert(at, input.byte()),
        2 => text.truncate(at),
        3 => {
            let end = text.len().min(at + input.below(16));
            let part = text[at..end].to_vec();
            text.splice(at..at, part);
        }
        _ if at < text.len() => text[at] = input.byte(),
        _ => {}
    }
}

fn any(input: &mut Input<'_>) -> Value {
    match input.below(9) {
        0 => Value::Null,
        1 => Value::Bool(input.one_in(2)),
        2 => input.integer().into(),
        3 => (-(i64::from(input.byte()))).into(),
        4 => (f64::from(input.byte()) / 8.0).into(),
        5 => Value::Array(Vec::new()),
        6 => Value::Object(Map::new()),
        7 => input.integer().to_string().into(),
        _ => input.text(24).into(),
    }
}
