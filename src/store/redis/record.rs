//! Reads records from the fields of a hash.

use redis::Value;

use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    record::{Fingerprint, Owner, Record, Status, StoredData, StoredResult},
    store::ResultData,
};

/// The fields of a record, in the order in which the scripts return them.
const FIELDS: [&str; 12] = [
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
    "data",
    "deflated",
];

/// The last fields, which hold the result.
const DATA_FIELDS: usize = 2;

/// The fields to read, with the data of the result or without.
pub(super) fn fields(data: ResultData) -> &'static [&'static str] {
    match data {
        ResultData::Include => &FIELDS,
        ResultData::Omit => &FIELDS[..FIELDS.len() - DATA_FIELDS],
    }
}

/// The record in an answer to `HMGET`; `None` if there is none.
///
/// # Errors
///
/// [`ErrorKind::Format`], temporary, if a field has a value that this version does not know.
pub(super) fn record(answer: Value, operation: &'static str) -> Result<Option<Record>, Error> {
    let Value::Array(values) = answer else { return Err(super::error::unexpected(operation)) };
    if values.iter().all(|value| *value == Value::Nil) {
        return Ok(None);
    }
    let mut values = values.into_iter();
    let mut next = |name| Field { name, value: values.next().unwrap_or(Value::Nil), operation };
    let [status, owner, attempt, prior, lease, expiration, validation, version, dropped, superseded, json, deflated] =
        FIELDS.map(&mut next);
    let (dropped, superseded) = (dropped.value != Value::Nil, superseded.value != Value::Nil);
    let data = match (json.text()?, deflated.value) {
        (Some(json), _) => Some(StoredData::Json(json)),
        (None, Value::BulkString(bytes)) => Some(StoredData::Deflated(bytes)),
        (None, _) => None,
    };
    Ok(Some(Record {
        status: status.known(Status::from_word)?.ok_or_else(|| unknown("status", operation))?,
        owner: owner.text()?.and_then(|hex| Owner::from_hex(&hex)),
        attempt: attempt.number()?.unwrap_or(0),
        prior_status: prior.text()?.and_then(|word| Status::from_word(&word)),
        lease_until: lease.number()?.map(Timestamp::from_millis),
        expiration: expiration.number()?,
        fingerprint: validation.known(Fingerprint::from_hex)?,
        result: StoredResult { data, dropped, superseded },
        version: version.number()?.map_or(0, |version| u32::try_from(version).unwrap_or(u32::MAX)),
    }))
}

struct Field {
    name: &'static str,
    value: Value,
    operation: &'static str,
}

impl Field {
    fn text(self) -> Result<Option<String>, Error> {
        match self.value {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => {
                String::from_utf8(bytes).map(Some).map_err(|_| unknown(self.name, self.operation))
            }
            _ => Err(unknown(self.name, self.operation)),
        }
    }

    fn known<T>(self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Error> {
        let (name, operation) = (self.name, self.operation);
        self.text()?.map(|text| read(&text).ok_or_else(|| unknown(name, operation))).transpose()
    }

    fn number(self) -> Result<Option<u64>, Error> {
        self.known(|digits| digits.parse().ok())
    }
}

fn unknown(field: &str, operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Format,
        ErrorStatus::Temporary,
        operation,
        format!("the record's field `{field}` has a value that this version does not know; finish the deployment"),
    )
}
