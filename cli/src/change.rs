//! The commands `release`, `forget`, `settle` and `redact`, which change records.

use std::time::Duration;

use anyhow::Result;
use lambda_once::{
    clock::{Clock, SystemClock, Timestamp},
    record::{KeyHash, Record, StoredResult},
    store::{
        FinalStatus, ResultData,
        amend::{AmendRequest, Amended, Amendment},
        ordering,
        rules::Change as RecordChange,
    },
};

use crate::{
    apply,
    args::{self, ByKey, How, One, State, Which},
    audit::Audit,
    confirm::is_confirmed,
    id, list,
    output::{self, Ending, Usage},
    result,
    select::select,
    settings::Settings,
    state,
    store::{self, Records},
    time,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The library's retention of message outcomes.
const DEFAULT_RETENTION: Duration = Duration::from_secs(15 * DAY.as_secs());

/// A change to one record.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) record: Record,
    pub(crate) request: AmendRequest,
    /// The record after the change, or `None` if it will be deleted.
    pub(crate) after: Option<Record>,
}

/// The effect of a command on each record.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) name: &'static str,
    amendment: Amendment,
    /// The outcome of a settle, for the question.
    outcome: &'static str,
    /// Whether a settle keeps the record's retention.
    keeps_retention: bool,
}

impl Action {
    fn new(name: &'static str, amendment: Amendment) -> Self {
        Self { name, amendment, outcome: "", keeps_retention: false }
    }

    fn for_record(&self, record: &Record) -> Amendment {
        match &self.amendment {
            Amendment::Settle { outcome, result, .. } if self.keeps_retention => {
                Amendment::Settle { outcome: *outcome, result: result.clone(), retention: retention(record) }
            }
            amendment => amendment.clone(),
        }
    }
}

/// Returns the time for which the record's claim set it to stay, or the library's default if that is longer. A claim may have a shorter
/// retention than an outcome, and a record that expires early lets the effect repeat.
fn retention(record: &Record) -> Duration {
    let expires = record.expiration.map(Timestamp::from_seconds);
    let of_claim = expires.zip(record.claimed_at).map(|(expires, claimed)| expires.since(claimed));
    of_claim.unwrap_or_default().max(DEFAULT_RETENTION)
}

pub(crate) async fn release(change: args::Change, settings: &Settings) -> Result<Ending> {
    run(Action::new("release", Amendment::Release), change.which, State::Abandoned, &change.how, settings).await
}

pub(crate) async fn redact(change: args::Change, settings: &Settings) -> Result<Ending> {
    run(Action::new("redact", Amendment::Redact), change.which, State::Failed, &change.how, settings).await
}

pub(crate) async fn forget(forget: args::Forget, settings: &Settings) -> Result<Ending> {
    let args::Forget { which, state, done, how } = forget;
    let is_filter = which.ids.is_empty() && which.key.is_none();
    let wrong = if is_filter && done {
        Some("operations that are done are forgotten one by one: give their ids or a key")
    } else if is_filter && state.is_none() {
        Some("a filter needs the state of the records to delete: --state abandoned or failed")
    } else if state == Some(State::Running) {
        Some("a live claim is never changed: wait until it has ended or lapsed")
    } else {
        None
    };
    if let Some(why) = wrong {
        return Err(Usage(why.to_owned()).into());
    }
    let action = Action::new("forget", Amendment::Forget { completed: done });
    run(action, which, state.unwrap_or(State::Abandoned), &how, settings).await
}

pub(crate) async fn settle(settle: args::Settle, settings: &Settings) -> Result<Ending> {
    let store = store::open(settings).await?;
    let limit = store.limits().max_result_bytes;
    let (outcome, result, words) = match (&settle.result, &settle.failed) {
        (Some(path), _) => {
            (FinalStatus::Completed, result::from_file(path, limit).map_err(Usage::of)?, " as done, with this result")
        }
        (_, Some(text)) => (FinalStatus::Failed, result::failure(text), " as failed, for this reason"),
        _ => (FinalStatus::Completed, StoredResult::DROPPED, " as done, without a result"),
    };
    let retention = settle.retention.unwrap_or(DEFAULT_RETENTION);
    let amendment = Amendment::Settle { outcome, result, retention };
    let action =
        Action { outcome: words, keeps_retention: settle.retention.is_none(), ..Action::new("settle", amendment) };
    let which = Which {
        ids: settle.id.into_iter().collect(),
        key: settle.by_key.key,
        entity: settle.by_key.entity,
        filter: args::Filter { operation: settle.by_key.operation, ..args::Filter::default() },
        all: false,
    };
    run(action, which, State::Abandoned, &settle.how, settings).await
}

/// Finds the records, plans the changes, asks for confirmation, and makes them.
async fn run(action: Action, which: Which, state: State, how: &How, settings: &Settings) -> Result<Ending> {
    if !how.dry_run {
        settings.check_changes()?;
    }
    let store = store::open(settings).await?;
    let found = find(&*store, which, state, settings).await?;
    let now = SystemClock.now();
    // An expired record can still exist.
    let is_absent = |record: Option<&Record>| state::State::of(record, settings.margin, now) == state::State::Absent;
    let are_absent = found.iter().all(|(_, record)| is_absent(record.as_ref()));
    let (mut planned, mut refused) = (Vec::new(), 0);
    for (hash, record) in found {
        match plan(&action, hash, record, settings.margin, now) {
            Ok(change) => planned.push(change),
            Err(why) => {
                eprintln!("{hash}: {why}");
                refused += 1;
            }
        }
    }
    let ending = match refused {
        _ if are_absent => Ending::Nothing,
        0 => Ending::Done,
        _ => Ending::Partly,
    };
    if planned.is_empty() {
        eprintln!("nothing to {}", action.name);
        return Ok(ending);
    }
    let records = planned.iter().map(|planned| (planned.request.key, &planned.record));
    let table = list::table(records, settings, now);
    if how.dry_run {
        output::text(&format!("{table}would {} {}{}\n", action.name, counted(planned.len()), action.outcome))?;
        return Ok(ending);
    }
    let mut audit = Audit::open(how.audit.as_deref(), Some(settings.store()?.to_string()))?;
    let question = format!("{} {} in {}{}", action.name, counted(planned.len()), settings.store()?, action.outcome);
    if !how.yes && !is_confirmed(&table, &question).await? {
        eprintln!("nothing was changed");
        return Ok(Ending::Partly);
    }
    let made = apply::apply(&*store, &action, planned, how.rate, settings.margin, &mut audit).await?;
    output::line(&made.to_string())?;
    Ok(if made.are_all_changed() { ending } else { Ending::Partly })
}

/// Returns the records that a command concerns, in their current state.
async fn find(
    store: &dyn Records,
    which: Which,
    state: State,
    settings: &Settings,
) -> Result<Vec<(KeyHash, Option<Record>)>> {
    if !which.ids.is_empty() {
        let mut hashes = Vec::with_capacity(which.ids.len());
        for id in &which.ids {
            let hash = id::parse(id).map_err(Usage::of)?;
            if !hashes.contains(&hash) {
                hashes.push(hash);
            }
        }
        let records = store::read(store, &hashes, ResultData::Omit).await?;
        return Ok(hashes.into_iter().zip(records).collect());
    }
    if which.key.is_some() {
        let by_key = ByKey { operation: which.filter.operation, key: which.key, entity: which.entity };
        let one = One { by_key, id: None };
        return Ok(vec![store::find(store, settings, &one, ResultData::Omit).await?]);
    }
    let selected = select(store, state, &which.filter, settings.margin, None).await?;
    Ok(selected.records.into_iter().map(|found| (found.key, Some(found.record))).collect())
}

/// Returns the change to a record, by the library's rules, or the reason that it has none.
fn plan(
    action: &Action,
    hash: KeyHash,
    record: Option<Record>,
    margin: Duration,
    now: Timestamp,
) -> Result<Planned, String> {
    let record = record.ok_or("there is no record")?;
    let request = AmendRequest { skew_margin: margin, ..AmendRequest::new(hash, &record, action.for_record(&record)) };
    // Without the entity's order marker, which has no influence here.
    match ordering::amend(Some(&record), None, &request, now) {
        Ok((RecordChange::Put(after), _, _)) => Ok(Planned { record, request, after: Some(*after) }),
        Ok((RecordChange::Delete, _, _)) => Ok(Planned { record, request, after: None }),
        Ok((RecordChange::Keep, _, Amended::Gone)) => Err("the record has expired".to_owned()),
        Ok((RecordChange::Keep, ..)) => Err(match record.lease_until {
            Some(until) => format!("it is running until {}: a live claim is never changed", time::relative(until, now)),
            None => "another library has claimed it, without a lease: it can only be forgotten".to_owned(),
        }),
        Err(error) => Err(error.message().to_owned()),
    }
}

fn counted(count: usize) -> String {
    if count == 1 { "1 operation".to_owned() } else { format!("{count} operations") }
}

#[cfg(test)]
mod tests {
    use lambda_once::record::Status;

    use super::*;

    #[test]
    fn the_default_is_the_whole_retention_of_the_claim_or_15_days() {
        let claimed = Timestamp::from_seconds(1_700_000_000);
        for (of_claim, expected) in [(Some(30), 30), (Some(1), 15), (None, 15)] {
            let expires = |days: u32| claimed.after(days * DAY).seconds_rounded_down();
            let expiration = of_claim.map(expires);
            let record = Record { claimed_at: Some(claimed), expiration, ..Record::new(Status::InProgress) };
            assert_eq!(retention(&record), expected * DAY, "{of_claim:?}");
        }
    }
}
