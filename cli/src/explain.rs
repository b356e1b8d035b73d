//! Explains a record in words, which depend only on the record and the time.

use std::time::Duration;

use lambda_once::{
    clock::Timestamp,
    record::{KeyHash, Record, Status, StoredData},
};
use serde::Serialize;

use crate::{
    advice::{self, Advice},
    state::State,
    time::relative,
};

/// The state of an operation, explained for an operator.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Explanation {
    /// The events so far.
    pub(crate) happened: String,
    /// The holder of the claim.
    pub(crate) holder: String,
    /// The end of this state.
    pub(crate) until: String,
    /// The result that a retry gets.
    pub(crate) retry: String,
    /// The actions that may be taken.
    pub(crate) advice: Vec<Advice>,
}

/// Explains the record of this hash, or its absence, at a time.
pub(crate) fn explain(hash: KeyHash, record: Option<&Record>, margin: Duration, now: Timestamp) -> Explanation {
    let state = State::of(record, margin, now);
    let Some(record) = record.filter(|_| state != State::Absent) else { return absent(record, now) };
    Explanation {
        happened: happened(state, record, now),
        holder: holder(state, record),
        until: until(state, record, margin, now),
        retry: retry(state, record),
        advice: advice::of(state, record, hash),
    }
}

fn absent(expired: Option<&Record>, now: Timestamp) -> Explanation {
    let happened = match expired.and_then(|record| record.expiration) {
        Some(expiration) => format!(
            "The record expired at {}. It is ignored, and the store has not deleted it yet.",
            relative(Timestamp::from_seconds(expiration), now)
        ),
        None => "There is no record: the operation never ran, its last run failed and may be repeated, or its record has \
                 expired. If you expected one, check the scope, the tenant, the name of the operation and the type of the \
                 key. Records of HTTP callers have other hashes, which the log has as `key`."
            .to_owned(),
    };
    Explanation {
        happened,
        holder: "Nobody.".to_owned(),
        until: "A delivery claims it.".to_owned(),
        retry: "It runs, as the first delivery does.".to_owned(),
        advice: Vec::new(),
    }
}

fn happened(state: State, record: &Record, now: Timestamp) -> String {
    let claimed = claimed(record, now);
    let settled = record.settled_at.map_or(String::new(), |at| format!(" at {}", relative(at, now)));
    let lost = "Nobody knows whether the operation took effect.";
    match state {
        State::Absent => String::new(),
        State::Running if record.prior_status == Some(Status::InProgress) => {
            format!("{claimed} It took over from a run that left no outcome. No outcome is recorded yet.")
        }
        State::Running => format!("{claimed} No outcome is recorded yet."),
        State::Foreign => "Another library has claimed it, without a lease. No outcome is recorded.".to_owned(),
        State::Abandoned => format!(
            "{claimed} Its lease ended{} without an outcome: the worker crashed, was cancelled, marked its error as unknown, or \
             could not record the outcome. {lost}",
            ended(record, now)
        ),
        State::HandedBack => format!(
            "A run left no outcome. {claimed} It took over, and released the operation{settled}, for example because of a \
             transient error. {lost}"
        ),
        State::Released => format!(
            "{claimed} It left no outcome. {lost} An operator has released the operation, and no delivery has come since."
        ),
        State::Failed => format!("It failed permanently{settled}. {claimed} {}", result(record)),
        State::Done => format!("It took effect, and was completed{settled}. {claimed} {}", result(record)),
        State::Superseded => {
            format!("A newer operation of its entity had taken effect, so that it took none itself{settled}. {claimed}")
        }
    }
}

/// Describes the last claim.
fn claimed(record: &Record, now: Timestamp) -> String {
    let at = record.claimed_at.map_or(String::new(), |at| format!(" at {}", relative(at, now)));
    match record.attempt {
        0 => format!("A worker claimed it{at}."),
        attempt => format!("A worker claimed it{at}, in attempt {attempt}."),
    }
}

/// Describes the end of a lease that has passed. The lease of a claim that was handed back has no end.
fn ended(record: &Record, now: Timestamp) -> String {
    let lease = record.lease_until.filter(|until| *until > Timestamp::EPOCH);
    lease.map_or(String::new(), |until| format!(" at {}", relative(until, now)))
}

fn result(record: &Record) -> String {
    let what = if record.status == Status::Failed { "text of the failure" } else { "result" };
    match &record.result.data {
        Some(StoredData::Encoded(data)) => {
            format!("The {what} is stored, encoded by the codec {}.", data.codec())
        }
        Some(data) => format!("The {what} is stored ({} bytes).", data.len()),
        None if record.result.dropped => {
            format!("The {what} is not stored: discarded by setting, redacted, too large, or not given.")
        }
        None => format!("There is no {what}."),
    }
}

fn holder(state: State, record: &Record) -> String {
    match (state, record.owner) {
        (State::Running, Some(owner)) => format!("The worker with the claim {}….", &owner.to_hex()[..8]),
        (State::Running | State::Foreign, _) => "A worker that is not known.".to_owned(),
        _ => "Nobody.".to_owned(),
    }
}

fn until(state: State, record: &Record, margin: Duration, now: Timestamp) -> String {
    let expires = record.expiration.map(|at| relative(Timestamp::from_seconds(at), now));
    let record_lasts =
        expires.map_or("The record does not expire.".to_owned(), |at| format!("The record expires at {at}."));
    match state {
        State::Running => format!(
            "The lease ends at {}; {} ms later, for clocks that differ, the claim has lapsed. A worker that still runs may renew it. \
             {record_lasts}",
            record.lease_until.map_or(String::new(), |until| relative(until, now)),
            margin.as_millis(),
        ),
        State::Done | State::Superseded => format!("{record_lasts} A duplicate after that runs again."),
        State::Failed => format!("{record_lasts} A delivery after that runs again."),
        State::Abandoned | State::HandedBack | State::Released => {
            format!("{record_lasts} A delivery after that runs, and the handler does not see that an outcome was lost.")
        }
        State::Absent | State::Foreign => record_lasts,
    }
}

fn retry(state: State, record: &Record) -> String {
    let answer = match state {
        State::Absent => "",
        State::Running | State::Foreign => {
            "It does not run: in progress. A queue reports the message, so that it is redelivered; an HTTP client gets 409."
        }
        State::Abandoned | State::HandedBack => {
            "The policy of the function decides. `Rerun`: it runs, and the handler sees a takeover (`took_over()`). `Refuse`: it does not run: \
             abandoned. A queue reports the message, an HTTP client gets 409 `outcome_unknown`. `Probe`: the function looks the \
             effect up."
        }
        State::Released => {
            "The next delivery runs, under every policy, and the handler sees a takeover (`took_over()`). `Probe` looks the effect up first."
        }
        State::Failed => {
            "It does not run, and gets the recorded failure. A queue treats it by its policy for permanent failures."
        }
        State::Done if record.result.data.is_some() => {
            "It does not run, and gets the recorded result. A queue acknowledges the message."
        }
        State::Done => {
            "It does not run. It sees that the operation is done, without a result. A queue acknowledges the message, an \
             HTTP client gets 410 `response_not_stored`."
        }
        State::Superseded => "It does not run: superseded. A queue acknowledges the message.",
    };
    match record.fingerprint {
        Some(_) => format!("{answer} With another payload it is a mismatch, in HTTP 422."),
        None => answer.to_owned(),
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
