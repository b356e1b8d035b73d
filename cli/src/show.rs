//! `lambda-once show`.

use anyhow::Result;
use lambda_once::{
    clock::{Clock, SystemClock},
    record::{KeyHash, Record},
    store::ResultData,
};
use serde::Serialize;

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
    stored_result: Option<serde_json::Value>,
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
        // Data that this parser does not accept as JSON is shown as text.
        let stored_result = stored.and_then(Result::ok).map(|text| serde_json::from_str(&text).unwrap_or(text.into()));
        output::line(&json(&Json { record, absent, explanation: &explanation, stored_result })?)?;
    } else {
        output::text(&page(hash, record.as_ref(), state, &explanation, stored))?;
    }
    Ok(if state == State::Absent { Ending::Nothing } else { Ending::Done })
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
