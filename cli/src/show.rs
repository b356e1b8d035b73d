//! `lambda-once show`.

use anyhow::Result;
use lambda_once::{
    clock::{Clock, SystemClock},
    key::canonical::canonical,
    record::{KeyHash, Record},
    store::ResultData,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    advice,
    args::{One, Show},
    explain::{Explanation, explain},
    output::{self, Ending},
    result,
    settings::Settings,
    state::State,
    store,
    text::{json, plain, wrapped},
    view::View,
};

#[derive(Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    record: Option<View<'a>>,
    #[serde(flatten)]
    absent: Option<Absent>,
    #[serde(flatten)]
    explanation: &'a Explanation,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_result: Option<Value>,
}

/// The JSON output if there is no record.
#[derive(Serialize)]
struct Absent {
    id: String,
    state: &'static str,
}

pub(crate) async fn run(show: Show, settings: &Settings) -> Result<Ending> {
    let store = store::open(settings).await?;
    let one = One { id: show.one.id.or(show.hash), ..show.one };
    let (hash, record) = store::find(&*store, settings, &one, ResultData::Include).await?;
    let now = SystemClock.now();
    let explanation = explain(hash, record.as_ref(), settings.margin, now);
    let state = State::of(record.as_ref(), settings.margin, now);
    let stored = match &record {
        Some(record) if show.show_result => Some(result::text(&record.result)?),
        _ => None,
    };
    if show.json {
        let record = record.as_ref().map(|record| View::of(hash, record, settings.margin, now));
        let absent = record.is_none().then(|| Absent { id: hash.to_hex(), state: state.as_str() });
        let stored_result = stored.and_then(Result::ok).map(|text| value(&text));
        output::line(&json(&Json { record, absent, explanation: &explanation, stored_result })?)?;
    } else {
        output::text(&page(hash, record.as_ref(), state, &explanation, stored))?;
    }
    Ok(if state == State::Absent { Ending::Nothing } else { Ending::Done })
}

/// Returns a stored result as JSON, or as text if this parser does not accept it, or loses a part of it: digits, or a member that
/// occurs twice.
fn value(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(value) if canonical(value.to_string().as_bytes()) == canonical(text.as_bytes()) => value,
        _ => text.into(),
    }
}

const INDENT: usize = 15;

fn page(
    hash: KeyHash,
    record: Option<&Record>,
    state: State,
    explanation: &Explanation,
    stored: Option<Result<String, String>>,
) -> String {
    let operation =
        record.and_then(|record| record.operation.as_deref()).map_or(String::new(), |name| plain(name) + " ");
    let mut page = format!("{operation}{hash}: {}\n\n", state.as_str());
    let mut row = |name: &str, text: &str| {
        page.push_str(&format!("{name:INDENT$}{}\n", wrapped(text, INDENT)));
    };
    if let Some(label) = record.and_then(|record| record.label.as_deref()) {
        row("label", &plain(label));
    }
    row("what happened", &explanation.happened);
    row("who holds it", &explanation.holder);
    row("until when", &explanation.until);
    row("a retry", &explanation.retry);
    if let Some(stored) = stored {
        row("result", &stored.map_or_else(|why| why, |text| plain(&text)));
    }
    page.push_str(&advice::rows(
        &explanation.advice,
        match state {
            State::Absent => "Nothing: there is no record to change.",
            _ => "Wait. A live claim is never changed.",
        },
    ));
    page
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_shown_as_json() {
        let text = r#"{ "order": 12345678901234567890, "cents": -0.5, "name": "\u00e9", "items": [null, {}] }"#;
        let expected = json!({ "order": 12345678901234567890_u64, "cents": -0.5, "name": "é", "items": [null, {}] });
        assert_eq!(value(text), expected);
    }

    #[test]
    fn a_result_that_the_parser_would_change_is_shown_as_text() {
        for text in [
            r#"{"id":123456789012345678901234567890}"#,
            "0.12345678901234567890",
            r#"{"id":1,"id":2}"#,
            r#""\ud800""#,
            "not JSON",
        ] {
            assert_eq!(value(text), text);
        }
    }
}
