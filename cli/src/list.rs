//! `lambda-once list`.

use anyhow::Result;
use lambda_once::{
    clock::{Clock, SystemClock, Timestamp},
    record::{KeyHash, Record},
};

use crate::{
    args::List,
    output::{self, Ending},
    select::select,
    settings::Settings,
    state::State,
    store,
    text::{columns, json, plain},
    time::span,
    view::View,
};

/// A number of records that fits on a few screens. A JSON list is not limited by default.
const DEFAULT_LIMIT: u64 = 100;

pub(crate) async fn run(list: List, settings: &Settings) -> Result<Ending> {
    let store = store::open(settings).await?;
    let default_limit = (!list.json).then_some(DEFAULT_LIMIT);
    let selected = select(&*store, list.state, &list.filter, settings.margin, default_limit).await?;
    let now = SystemClock.now();
    if list.json {
        for found in &selected.records {
            output::line(&json(&View::of(found.key, &found.record, settings.margin, now))?)?;
        }
    } else if selected.records.is_empty() {
        eprintln!("no such operation");
    } else {
        output::text(&table(selected.records.iter().map(|found| (found.key, &found.record)), settings, now))?;
    }
    if selected.is_cut {
        eprintln!("there are more: raise --limit, or use --json");
    }
    Ok(if selected.records.is_empty() { Ending::Nothing } else { Ending::Done })
}

/// Returns a table of records, with a heading.
pub(crate) fn table<'a>(
    records: impl Iterator<Item = (KeyHash, &'a Record)>,
    settings: &Settings,
    now: Timestamp,
) -> String {
    let mut rows = vec![["STATE", "OPERATION", "CLAIMED", "ATTEMPT", "ID", "LABEL"].map(str::to_owned)];
    rows.extend(records.map(|(hash, record)| {
        [
            State::of(Some(record), settings.margin, now).as_str().to_owned(),
            record.operation.as_deref().map_or("-".to_owned(), plain),
            record.claimed_at.map_or("-".to_owned(), |at| format!("{} ago", span(now.since(at)))),
            record.attempt.to_string(),
            hash.to_hex(),
            record.label.as_deref().map_or(String::new(), plain),
        ]
    }));
    columns(&rows)
}
