//! Converts items into records.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use super::schema::Schema;
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    record::{NEWEST_KNOWN_VERSION, Owner, RECORD_VERSION, Record, Status, StoredResult},
    store::ResultData,
};

pub(super) type Item = HashMap<String, AttributeValue>;

/// The value of `prior_status` if the claim replaced no record.
pub(super) const NO_STATUS: &str = "NONE";

pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(super) fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// Returns the number of attempts in an attribute: a non-negative number, rounded down. Returns `None` for anything
/// else.
pub(super) fn attempts(value: &AttributeValue) -> Option<u64> {
    let digits = value.as_n().ok()?;
    // A float becomes the nearest integer in range.
    digits
        .parse()
        .ok()
        .or_else(|| digits.parse::<f64>().ok().filter(|number| *number >= 0.0).map(|number| number as u64))
}

/// Returns the version that this library writes into records and marks.
pub(super) fn written_version() -> AttributeValue {
    number(RECORD_VERSION.into())
}

/// Returns the newest version of records and marks that this library replaces.
pub(super) fn newest_known_version() -> AttributeValue {
    number(NEWEST_KNOWN_VERSION.into())
}

/// Returns the version of an item's format, or 0 if it has none. Returns `None` if it is not a number.
pub(super) fn version(value: Option<&AttributeValue>) -> Option<u32> {
    let Some(value) = value else { return Some(0) };
    let version: u64 = value.as_n().ok()?.parse().ok()?;
    Some(u32::try_from(version).unwrap_or(u32::MAX))
}

impl Schema {
    /// Returns whether the item counts as absent at `now`, whatever else it contains.
    pub(super) fn is_expired(&self, item: &Item, now: Timestamp) -> bool {
        let expiration = item.get(&self.names.expiration).and_then(|value| value.as_n().ok()?.parse::<f64>().ok());
        expiration.is_some_and(|expiration| expiration <= now.seconds_rounded_down() as f64)
    }

    /// Converts an item to a record, with or without the data of its result.
    pub(super) fn record(&self, item: &Item, data: ResultData, operation: &'static str) -> Result<Record, Error> {
        let names = &self.names;
        let unknown = |attribute: &str| {
            Error::new(
                ErrorKind::Format,
                ErrorStatus::Temporary,
                operation,
                format!(
                    "the record's attribute `{attribute}` has contents that this version does not know; finish the deployment"
                ),
            )
        };
        let text = |name: &String| item.get(name).and_then(|value| value.as_s().ok());
        let number = |name: &String| match item.get(name) {
            None => Ok(None),
            Some(AttributeValue::N(digits)) => digits.parse().map(Some).map_err(|_| unknown(name)),
            Some(_) => Err(unknown(name)),
        };
        let is_set = |name: &String| item.get(name) == Some(&AttributeValue::Bool(true));
        // AWS Powertools may use these names with a different meaning.
        let detail = |name: &String| text(name).filter(|_| self.has_details());
        let time = |name: &String| match self.has_details() {
            true => Ok(number(name)?.map(Timestamp::from_millis)),
            false => Ok(None),
        };
        let status = text(&names.status).and_then(|word| Status::from_word(word));
        let fingerprint = match item.get(&names.validation) {
            None => None,
            Some(value) => Some(self.read_validation(value).ok_or_else(|| unknown(&names.validation))?),
        };
        let status = status.ok_or_else(|| unknown(&names.status))?;
        let is_dropped = is_set(&names.result_dropped);
        let data = match item.get(&names.data) {
            _ if data == ResultData::Omit => None,
            Some(value) => Some(self.read_data(value)),
            None if status == Status::Completed && !is_dropped => self.absent_data(),
            None => None,
        };
        Ok(Record {
            status,
            owner: text(&names.owner).and_then(|hex| Owner::from_hex(hex)),
            attempt: match item.get(&names.attempt) {
                Some(value) => attempts(value).ok_or_else(|| unknown(&names.attempt))?,
                None => 0,
            },
            prior_status: text(&names.prior_status).and_then(|word| Status::from_word(word)),
            lease_until: number(&names.in_progress_expiration)?.map(Timestamp::from_millis),
            expiration: number(&names.expiration)?,
            fingerprint,
            result: StoredResult { data, dropped: is_dropped, superseded: is_set(&names.superseded) },
            version: version(item.get(&names.version)).ok_or_else(|| unknown(&names.version))?,
            operation: detail(&names.operation).map(|name| name.as_str().into()),
            label: detail(&names.label).map(|label| label.as_str().into()),
            sequence: match detail(&names.sequence) {
                Some(digits) => Some(digits.parse().map_err(|_| unknown(&names.sequence))?),
                None => None,
            },
            claimed_at: time(&names.claimed_at)?,
            settled_at: time(&names.settled_at)?,
            released: if self.has_details() { number(&names.released)? } else { None },
            unknown: serde_json::Map::new(),
        })
    }
}
