//! Converts rows of `once_marks` into marks, and marks into parameters.

use tokio_postgres::{Row, types::Type};

use super::{
    connection::Parameter,
    row::{self, Columns},
};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind},
    order::{Doubt, Holder, Mark},
    record::{KeyHash, Owner},
};

/// A row of `read_mark.sql`: a mark, if there is one, and the time at which it was read.
pub(super) struct Found {
    mark: Result<Option<Mark>, Error>,
    /// The mark's expiration, which can be read even if the mark cannot be decoded.
    expiration: Option<u64>,
    /// The server's time.
    pub(super) now: Timestamp,
}

impl Found {
    /// Returns the mark. An expired one that cannot be read counts as absent.
    pub(super) fn into_mark(self, now: Timestamp) -> Result<Option<Mark>, Error> {
        let is_expired = self.expiration.is_some_and(|expiration| expiration <= now.seconds_rounded_down());
        match self.mark {
            Err(error) if is_expired && error.kind() == ErrorKind::Format => Ok(None),
            mark => mark,
        }
    }
}

pub(super) fn found(row: &Row, operation: &'static str) -> Result<Found, Error> {
    let columns = Columns { row, operation };
    let expiration = match columns.get::<Option<i64>>("expiration")? {
        Some(_) => Some(columns.number("expiration")?),
        None => None,
    };
    let mark = expiration.map(|expiration| mark(&columns, expiration)).transpose();
    Ok(Found { mark, expiration, now: columns.time("now")? })
}

fn mark(columns: &Columns<'_>, expiration: u64) -> Result<Mark, Error> {
    Ok(Mark {
        newest: columns.sequence("newest")?,
        holder: holder(columns)?,
        doubt: doubt(columns)?,
        expiration,
        version: columns.version()?,
    })
}

fn holder(columns: &Columns<'_>) -> Result<Option<Holder>, Error> {
    let Some(owner) = columns.bytes("owner")? else { return Ok(None) };
    Ok(Some(Holder {
        owner: Owner::from_bytes(owner),
        key: columns.key()?,
        sequence: columns.sequence("sequence")?.ok_or_else(|| columns.unknown("sequence"))?,
        lease_until: columns.time("lease_until")?,
    }))
}

fn doubt(columns: &Columns<'_>) -> Result<Vec<Doubt>, Error> {
    const KEYS: &str = "doubt_keys";
    const SEQUENCES: &str = "doubt_sequences";
    let (keys, sequences): (Vec<Option<&[u8]>>, Vec<&str>) = (columns.get(KEYS)?, columns.get(SEQUENCES)?);
    if keys.len() != sequences.len() {
        return Err(columns.unknown(SEQUENCES));
    }
    let key_of = |bytes: &[u8]| Ok(KeyHash::from_bytes(bytes.try_into().map_err(|_| columns.unknown(KEYS))?));
    let doubts = keys.into_iter().zip(sequences).map(|(key, digits)| {
        Ok(Doubt {
            key: key.map(key_of).transpose()?,
            sequence: digits.parse().map_err(|_| columns.unknown(SEQUENCES))?,
        })
    });
    doubts.collect()
}

/// A mark in its stored form.
pub(super) struct Stored<'a> {
    newest: Option<String>,
    owner: Option<&'a [u8]>,
    key: Option<&'a [u8]>,
    sequence: Option<String>,
    lease_until: Option<i64>,
    doubt_keys: Vec<Option<&'a [u8]>>,
    doubt_sequences: Vec<String>,
    expiration: i64,
}

impl<'a> Stored<'a> {
    pub(super) fn of(mark: &'a Mark) -> Self {
        let holder = mark.holder.as_ref();
        Self {
            newest: mark.newest.map(|newest| newest.to_digits()),
            owner: holder.map(|holder| holder.owner.as_bytes().as_slice()),
            key: holder.map(|holder| holder.key.as_bytes().as_slice()),
            sequence: holder.map(|holder| holder.sequence.to_digits()),
            lease_until: holder.map(|holder| row::timestamp(holder.lease_until)),
            doubt_keys: mark
                .doubt
                .iter()
                .map(|doubt| doubt.key.as_ref().map(|key| key.as_bytes().as_slice()))
                .collect(),
            doubt_sequences: mark.doubt.iter().map(|doubt| doubt.sequence.to_digits()).collect(),
            expiration: row::seconds(mark.expiration),
        }
    }

    /// Returns the parameters $3 to $10 of `write_mark.sql`.
    pub(super) fn parameters(&self) -> [Parameter<'_>; 8] {
        [
            (&self.newest, Type::TEXT),
            (&self.owner, Type::BYTEA),
            (&self.key, Type::BYTEA),
            (&self.sequence, Type::TEXT),
            (&self.lease_until, Type::INT8),
            (&self.doubt_keys, Type::BYTEA_ARRAY),
            (&self.doubt_sequences, Type::TEXT_ARRAY),
            (&self.expiration, Type::INT8),
        ]
    }
}
