//! Lists that span all pages.

use std::time::Duration;

use anyhow::Result;
use lambda_once::{
    clock::{Clock, SystemClock},
    store::listing::{ListRequest, ListedRecord, ListedState},
};

use crate::{
    args::{Filter, State},
    output::Usage,
    state,
    store::Records,
};

/// The records in a list, and whether the store has more.
#[derive(Debug)]
pub(crate) struct Selected {
    pub(crate) records: Vec<ListedRecord>,
    pub(crate) is_cut: bool,
}

/// Reads all pages of a list, up to the filter's limit. A record on two pages is listed once.
///
/// # Errors
///
/// Returns the errors of the store, or an error for a state that no store lists.
pub(crate) async fn select(
    store: &dyn Records,
    wanted: State,
    filter: &Filter,
    margin: Duration,
    default_limit: Option<u64>,
) -> Result<Selected> {
    let mut request = ListRequest {
        operation: filter.operation.as_deref().map(Into::into),
        older_than: filter.older_than.unwrap_or_default(),
        skew_margin: margin,
        ..ListRequest::new(listed(wanted)?)
    };
    let limit = filter.limit.or(default_limit).map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut records: Vec<ListedRecord> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    loop {
        let page = store.list(&request).await?;
        let now = SystemClock.now();
        for found in page.records {
            let has_label = filter.label.is_none() || filter.label.as_deref() == found.record.label.as_deref();
            // The store's list of operations in progress also contains lapsed ones.
            let is_running = !matches!(
                state::State::of(Some(&found.record), margin, now),
                state::State::Abandoned | state::State::HandedBack | state::State::Released
            );
            if has_label && (wanted != State::Running || is_running) && seen.insert(found.key) {
                records.push(found);
            }
        }
        match page.next {
            Some(next) if records.len() <= limit => request.after = Some(next),
            _ => break,
        }
    }
    let is_cut = records.len() > limit;
    records.truncate(limit);
    Ok(Selected { records, is_cut })
}

fn listed(state: State) -> Result<ListedState> {
    match state {
        State::Abandoned => Ok(ListedState::Lapsed),
        State::Running => Ok(ListedState::InProgress),
        State::Failed => Ok(ListedState::Failed),
        State::Done => {
            let why = "no store lists operations that are done: look one up, by";
            Err(Usage(format!("{why} `lambda-once show --operation NAME --key VALUE`")).into())
        }
    }
}
