//! Records as JSON.

use std::time::Duration;

use lambda_once::{
    clock::Timestamp,
    record::{KeyHash, Record, StoredData},
};
use serde::Serialize;

use crate::{state::State, time::instant};

/// The content of a record, without its result. Times are in UTC.
#[derive(Debug, Serialize)]
pub(crate) struct View<'a> {
    id: String,
    state: &'static str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    attempt: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    released_attempt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'static str>,
}

impl<'a> View<'a> {
    pub(crate) fn of(hash: KeyHash, record: &'a Record, margin: Duration, now: Timestamp) -> Self {
        Self {
            id: hash.to_hex(),
            state: State::of(Some(record), margin, now).as_str(),
            status: record.status.as_str(),
            operation: record.operation.as_deref(),
            label: record.label.as_deref(),
            attempt: record.attempt,
            claimed_at: record.claimed_at.map(instant),
            lease_until: record.lease_until.map(instant),
            settled_at: record.settled_at.map(instant),
            expires_at: record.expiration.map(|at| instant(Timestamp::from_seconds(at))),
            released_attempt: record.released,
            sequence: record.sequence.map(|sequence| sequence.to_digits()),
            result: result(record),
        }
    }

    /// Returns the view without the label, for audit lines.
    pub(crate) fn for_audit(self) -> Self {
        Self { label: None, ..self }
    }
}

/// Returns whether there is a result. Lists do not contain the data.
fn result(record: &Record) -> Option<&'static str> {
    match &record.result.data {
        Some(StoredData::Encoded(_)) => Some("encoded"),
        Some(_) => Some("stored"),
        None if record.result.dropped => Some("dropped"),
        None => None,
    }
}
