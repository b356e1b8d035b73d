//! Reads records from the fields of a hash.

use redis::Value;

use super::field;
use crate::{
    clock::Timestamp,
    error::Error,
    record::{EncodedData, Fingerprint, Owner, Record, Status, StoredData, StoredResult},
    store::ResultData,
};

/// The fields of a record, in the order in which the scripts return them.
const FIELDS: [&str; 19] = [
    "status",
    "owner",
    "attempt",
    "prior_status",
    "in_progress_expiration",
    "expiration",
    "validation",
    "v",
    "result_dropped",
    "superseded",
    "operation",
    "label",
    "sequence",
    "claimed_at",
    "settled_at",
    "released",
    "data",
    "deflated",
    "encoded",
];

/// The number of the last fields, which contain the result.
const DATA_FIELDS: usize = 3;

/// Returns the fields to read, with or without the data of the result.
pub(super) fn fields(data: ResultData) -> &'static [&'static str] {
    match data {
        ResultData::Include => &FIELDS,
        ResultData::Omit => &FIELDS[..FIELDS.len() - DATA_FIELDS],
    }
}

/// Reads the record from a reply to `HMGET`, or returns `None` if there is none.
///
/// # Errors
///
/// [`ErrorKind::Format`](crate::ErrorKind::Format), temporary, if a field has a value that is unknown to this version.
pub(super) fn record(answer: Value, operation: &'static str) -> Result<Option<Record>, Error> {
    let Some(fields) = field::fields(FIELDS, answer, operation)? else { return Ok(None) };
    let [status, owner, attempt, prior, lease, expiration, validation, version, dropped, superseded, details @ ..] =
        fields;
    let [name, label, sequence, claimed_at, settled_at, released, json, deflated, encoded] = details;
    let (dropped, superseded) = (dropped.is_present(), superseded.is_present());
    let data = match (json.text()?, deflated.value) {
        (Some(json), _) => Some(StoredData::Json(json)),
        (None, Value::BulkString(bytes)) => Some(StoredData::Deflated(bytes)),
        (None, _) => encoded.bytes(EncodedData::from_packed)?.map(StoredData::Encoded),
    };
    Ok(Some(Record {
        status: status.required(Status::from_word)?,
        owner: owner.text()?.and_then(|hex| Owner::from_hex(&hex)),
        attempt: attempt.number()?.unwrap_or(0),
        prior_status: prior.text()?.and_then(|word| Status::from_word(&word)),
        lease_until: lease.number()?.map(Timestamp::from_millis),
        expiration: expiration.number()?,
        fingerprint: validation.known(Fingerprint::from_text)?,
        result: StoredResult { data, dropped, superseded },
        version: version.version()?,
        operation: name.text()?.map(Into::into),
        label: label.text()?.map(Into::into),
        sequence: sequence.known(|digits| digits.parse().ok())?,
        claimed_at: claimed_at.number()?.map(Timestamp::from_millis),
        settled_at: settled_at.number()?.map(Timestamp::from_millis),
        released: released.number()?,
        unknown: serde_json::Map::new(),
    }))
}
