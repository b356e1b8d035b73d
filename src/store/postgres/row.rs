//! Converts rows to records, and numbers to their stored form.

use std::time::Duration;

use tokio_postgres::{Row, types::FromSql};

use super::error;
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    order::Sequence,
    record::{
        EncodedData, Fingerprint, KeyHash, NEWEST_KNOWN_VERSION, Owner, RECORD_VERSION, Record, Status, StoredData,
        StoredResult,
    },
    store::{Grant, ResultData},
};

/// The maximum duration that is stored, in milliseconds. Added to the current time it still fits into the columns,
/// including `purge_day`.
const MAX_MILLIS: i64 = 1 << 52;

/// The version that this library writes into records.
pub(super) const WRITTEN_VERSION: i32 = RECORD_VERSION.cast_signed();
/// The newest version of records that this library replaces.
pub(super) const NEWEST_VERSION: i32 = NEWEST_KNOWN_VERSION.cast_signed();

const JSON: i16 = 0;
const DEFLATE: i16 = 1;
const DROPPED: i16 = 2;
const SUPERSEDED: i16 = 3;
const ENCODED: i16 = 4;

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(MAX_MILLIS).min(MAX_MILLIS)
}

pub(super) fn timestamp(time: Timestamp) -> i64 {
    millis(time.since(Timestamp::EPOCH))
}

/// Converts seconds since 1970.
pub(super) fn seconds(seconds: u64) -> i64 {
    millis(Duration::from_secs(seconds)) / 1_000
}

/// Returns the columns `data` and `encoding` of a result.
pub(super) fn stored(result: &StoredResult) -> (Option<&[u8]>, Option<i16>) {
    match &result.data {
        Some(StoredData::Json(text)) => (Some(text.as_bytes()), Some(JSON)),
        Some(StoredData::Deflated(bytes)) => (Some(bytes), Some(DEFLATE)),
        Some(StoredData::Encoded(data)) => (Some(data.as_packed()), Some(ENCODED)),
        None if result.dropped => (None, Some(DROPPED)),
        None => (None, result.superseded.then_some(SUPERSEDED)),
    }
}

/// A row of `select.sql`: a record, and the time at which it was read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) record: Result<Record, Error>,
    /// The record's expiration, which can be read even if the record cannot be decoded.
    pub(super) expiration: u64,
    pub(super) now: Timestamp,
}

pub(super) fn found(row: &Row, data: ResultData, operation: &'static str) -> Result<Found, Error> {
    let columns = Columns { row, operation };
    Ok(Found { record: record(&columns, data), expiration: columns.number("expiration")?, now: columns.time("now")? })
}

/// Reads a row of `claim.sql`: a grant.
pub(super) fn grant(row: &Row) -> Result<(KeyHash, Grant), Error> {
    let columns = Columns { row, operation: "claim" };
    let grant = Grant {
        lease_until: columns.time("lease_until")?,
        attempt: columns.number("attempt")?,
        prior_status: columns.get::<Option<i16>>("prior_status")?.and_then(status),
        has_merged_doubt: false,
    };
    Ok((columns.key()?, grant))
}

/// Reads a row of `settle.sql`.
pub(super) fn key_and_lease(row: &Row, operation: &'static str) -> Result<(KeyHash, Timestamp), Error> {
    let columns = Columns { row, operation };
    Ok((columns.key()?, columns.time("lease_until")?))
}

/// Reads the key of a row.
pub(super) fn key(row: &Row, operation: &'static str) -> Result<KeyHash, Error> {
    Columns { row, operation }.key()
}

/// The columns of `list.sql` that are not part of a record.
pub(super) struct Listed {
    pub(super) read: u64,
    pub(super) last: Option<KeyHash>,
    /// Only in a list by the index.
    pub(super) last_claimed_at: Option<i64>,
    /// `None` if the row has no record.
    pub(super) key: Option<KeyHash>,
}

pub(super) fn listed(row: &Row, operation: &'static str) -> Result<Listed, Error> {
    let columns = Columns { row, operation };
    let key = |name| columns.bytes(name).map(|bytes| bytes.map(KeyHash::from_bytes));
    let last_claimed_at = columns.get("last_claimed_at")?;
    Ok(Listed { read: columns.number("read")?, last: key("last")?, last_claimed_at, key: key("key_hash")? })
}

/// The row of `session.sql`.
pub(super) struct Session<'a> {
    pub(super) lock_timeout: &'a str,
    pub(super) client_connection_check_interval: &'a str,
    pub(super) synchronous_commit: &'a str,
    pub(super) default_transaction_isolation: &'a str,
}

pub(super) fn session<'a>(row: &'a Row, operation: &'static str) -> Result<Session<'a>, Error> {
    let columns = Columns { row, operation };
    Ok(Session {
        lock_timeout: columns.get("lock_timeout")?,
        client_connection_check_interval: columns.get("client_connection_check_interval")?,
        synchronous_commit: columns.get("synchronous_commit")?,
        default_transaction_isolation: columns.get("default_transaction_isolation")?,
    })
}

/// Reads the row of `transaction_id.sql`.
pub(super) fn transaction<'a>(row: &'a Row, operation: &'static str) -> Result<Option<&'a str>, Error> {
    Columns { row, operation }.get("id")
}

/// Reads the row of `transaction_status.sql`.
pub(super) fn transaction_status<'a>(row: &'a Row, operation: &'static str) -> Result<Option<&'a str>, Error> {
    Columns { row, operation }.get("status")
}

fn record(columns: &Columns<'_>, data: ResultData) -> Result<Record, Error> {
    Ok(Record {
        status: status(columns.get("status")?).ok_or_else(|| columns.unknown("status"))?,
        owner: columns.bytes("owner")?.map(Owner::from_bytes),
        attempt: columns.number("attempt")?,
        prior_status: columns.get::<Option<i16>>("prior_status")?.and_then(status),
        lease_until: columns.optional_time("lease_until")?,
        expiration: Some(columns.number("expiration")?),
        fingerprint: columns.fingerprint()?,
        result: result(columns, data)?,
        version: columns.version()?,
        operation: columns.get::<Option<&str>>("operation")?.map(Into::into),
        label: columns.get::<Option<&str>>("label")?.map(Into::into),
        sequence: columns.sequence("sequence")?,
        claimed_at: columns.optional_time("claimed_at")?,
        settled_at: columns.optional_time("settled_at")?,
        released: match columns.get::<Option<i64>>("released")? {
            Some(_) => Some(columns.number("released")?),
            None => None,
        },
        unknown: serde_json::Map::new(),
    })
}

fn result(columns: &Columns<'_>, wanted: ResultData) -> Result<StoredResult, Error> {
    let data = columns.get::<Option<&[u8]>>("data")?.map(<[u8]>::to_vec);
    let encoding = columns.get::<Option<i16>>("encoding")?;
    let data = match (encoding, data) {
        (None | Some(DROPPED | SUPERSEDED), None) => None,
        (Some(JSON | DEFLATE | ENCODED), None) if wanted == ResultData::Omit => None,
        (Some(JSON), Some(text)) => {
            Some(StoredData::Json(String::from_utf8(text).map_err(|_| columns.unknown("data"))?))
        }
        (Some(DEFLATE), Some(bytes)) => Some(StoredData::Deflated(bytes)),
        (Some(ENCODED), Some(packed)) => {
            let data = EncodedData::from_packed(packed).ok_or_else(|| columns.unknown("data"))?;
            Some(StoredData::Encoded(data))
        }
        _ => return Err(columns.unknown("encoding")),
    };
    Ok(StoredResult { data, dropped: encoding == Some(DROPPED), superseded: encoding == Some(SUPERSEDED) })
}

/// Returns the status of a number, or `None` for any other number.
const fn status(number: i16) -> Option<Status> {
    match number {
        0 => Some(Status::InProgress),
        1 => Some(Status::Completed),
        2 => Some(Status::Failed),
        _ => None,
    }
}

/// Reads the columns of a row by their names.
pub(super) struct Columns<'a> {
    pub(super) row: &'a Row,
    pub(super) operation: &'static str,
}

impl<'a> Columns<'a> {
    pub(super) fn get<T: FromSql<'a>>(&self, name: &str) -> Result<T, Error> {
        self.row.try_get(name).map_err(|error| error::of_shape(error, self.operation))
    }

    pub(super) fn number(&self, name: &str) -> Result<u64, Error> {
        u64::try_from(self.get::<i64>(name)?).map_err(|_| self.unknown(name))
    }

    pub(super) fn time(&self, name: &str) -> Result<Timestamp, Error> {
        self.number(name).map(Timestamp::from_millis)
    }

    fn optional_time(&self, name: &str) -> Result<Option<Timestamp>, Error> {
        match self.get::<Option<i64>>(name)? {
            Some(_) => self.time(name).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn sequence(&self, name: &str) -> Result<Option<Sequence>, Error> {
        let digits: Option<&str> = self.get(name)?;
        digits.map(|digits| digits.parse().map_err(|_| self.unknown(name))).transpose()
    }

    pub(super) fn version(&self) -> Result<u32, Error> {
        u32::try_from(self.get::<i32>("v")?).map_err(|_| self.unknown("v"))
    }

    pub(super) fn bytes<const N: usize>(&self, name: &str) -> Result<Option<[u8; N]>, Error> {
        let bytes: Option<&[u8]> = self.get(name)?;
        bytes.map(|bytes| bytes.try_into().map_err(|_| self.unknown(name))).transpose()
    }

    fn fingerprint(&self) -> Result<Option<Fingerprint>, Error> {
        let bytes: Option<&[u8]> = self.get("validation")?;
        bytes.map(|bytes| Fingerprint::from_slice(bytes).ok_or_else(|| self.unknown("validation"))).transpose()
    }

    pub(super) fn key(&self) -> Result<KeyHash, Error> {
        self.bytes("key_hash")?.map(KeyHash::from_bytes).ok_or_else(|| self.unknown("key_hash"))
    }

    pub(super) fn unknown(&self, column: &str) -> Error {
        Error::new(
            ErrorKind::Format,
            ErrorStatus::Temporary,
            self.operation,
            format!("the column `{column}` has a value that this version does not know; finish the deployment"),
        )
    }
}
