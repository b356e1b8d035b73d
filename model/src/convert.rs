//! Converts the small states of the model to the library's types and back.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use lambda_once::{
    clock::Timestamp,
    order::{Doubt, Holder as LibraryHolder, Mark as LibraryMark, Sequence},
    record::{Fingerprint, KeyHash, Owner as Token, Record as LibraryRecord, StoredData, StoredResult},
    store::ordering::MAX_DOUBT,
};

use crate::state::{Holder, Key, Mark, NOBODY, Owner, Record, Time};

/// The beginning of the model's time, in seconds.
const EPOCH: u64 = 1_000_000;

/// The operations in doubt that a mark of the model lists before it merges two. The library's mark is filled up with
/// others.
pub(crate) const MOST_DOUBT: usize = 2;

/// The position of the operations that fill up a mark, before which the model has none.
static FILLER: LazyLock<Sequence> = LazyLock::new(|| 1_000_u64.into());

/// The positions of the model's operations, and of none.
static SEQUENCES: LazyLock<[Sequence; 8]> = LazyLock::new(|| [0_u8, 1, 2, 3, 4, 5, 6, 7].map(Into::into));

static OPERATION: LazyLock<Arc<str>> = LazyLock::new(|| "model".into());

/// Returns the name of all operations.
pub(crate) fn operation() -> Arc<str> {
    Arc::clone(&OPERATION)
}

/// Returns a length of time.
pub(crate) fn duration(time: u8) -> Duration {
    Duration::from_secs(time.into())
}

/// Returns a point in time.
pub(crate) fn at(time: Time) -> Timestamp {
    Timestamp::from_seconds(EPOCH + u64::from(time))
}

fn time(seconds: u64) -> Time {
    u8::try_from(seconds.saturating_sub(EPOCH)).unwrap_or(Time::MAX)
}

fn point(timestamp: Timestamp) -> Time {
    time(timestamp.seconds_rounded_down())
}

/// Returns the token of a claim.
pub(crate) fn token(owner: Owner) -> Token {
    Token::from_bytes([owner; 16])
}

fn owner(token: Option<Token>) -> Owner {
    token.map_or(NOBODY, |token| token.as_bytes()[0])
}

/// Returns the hash of a key. All belong to one entity.
pub(crate) fn key_hash(key: Key) -> KeyHash {
    let mut bytes = [0; 32];
    bytes[31] = key;
    KeyHash::from_bytes(bytes)
}

fn key(hash: KeyHash) -> Key {
    hash.as_bytes()[31]
}

/// Returns the fingerprint of a payload.
pub(crate) fn fingerprint(payload: u8) -> Option<Fingerprint> {
    Fingerprint::from_slice(&[payload; 32])
}

/// Returns a result.
pub(crate) fn result(value: u8) -> StoredResult {
    match value {
        0 => StoredResult::DROPPED,
        value => StoredResult::of(StoredData::Json(value.to_string())),
    }
}

fn value(result: &StoredResult) -> u8 {
    match &result.data {
        Some(StoredData::Json(text)) => text.parse().unwrap_or_default(),
        _ => 0,
    }
}

/// Returns the library's record.
pub(crate) fn to_library(record: &Record, position: Option<u8>) -> LibraryRecord {
    LibraryRecord {
        owner: (record.owner != NOBODY).then(|| token(record.owner)),
        attempt: record.attempt.into(),
        prior_status: record.prior.map(Into::into),
        lease_until: Some(if record.lease == 0 { Timestamp::EPOCH } else { at(record.lease) }),
        expiration: Some(EPOCH + u64::from(record.expiration)),
        fingerprint: fingerprint(record.payload),
        result: result(record.value),
        operation: Some(operation()),
        sequence: position.map(Sequence::from),
        released: (record.released > 0).then_some(record.released.into()),
        ..LibraryRecord::new(record.status.into())
    }
}

/// Returns the model's record.
pub(crate) fn from_library(record: &LibraryRecord) -> Record {
    let number = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
    Record {
        status: record.status.into(),
        owner: owner(record.owner),
        attempt: number(record.attempt),
        prior: record.prior_status.map(Into::into),
        lease: record.lease_until.map_or(0, point),
        expiration: record.expiration.map_or(Time::MAX, time),
        payload: record.fingerprint.map_or(0, |fingerprint| fingerprint.as_bytes()[0]),
        value: value(&record.result),
        released: record.released.map_or(0, number),
    }
}

/// Returns the library's mark. If it is filled up, it merges operations in doubt when the model's would.
pub(crate) fn mark_to_library(mark: &Mark, is_filled: bool) -> LibraryMark {
    let filler = if is_filled { MAX_DOUBT - MOST_DOUBT } else { 0 };
    let fill = |number: u8| Doubt { key: Some(key_hash(100 + number)), sequence: *FILLER };
    let listed = |&(key, sequence): &(Option<Key>, u8)| Doubt { key: key.map(key_hash), sequence: sequence.into() };
    LibraryMark {
        newest: mark.newest.map(Sequence::from),
        holder: mark.holder.map(|holder| LibraryHolder {
            owner: token(holder.owner),
            key: key_hash(holder.key),
            sequence: holder.sequence.into(),
            lease_until: at(holder.lease),
        }),
        doubt: mark.doubt.iter().map(listed).chain((0..).take(filler).map(fill)).collect(),
        expiration: EPOCH + u64::from(mark.expiration),
        ..LibraryMark::default()
    }
}

/// Returns the model's mark, without the filler entries.
pub(crate) fn mark_from_library(mark: &LibraryMark) -> Mark {
    let small =
        |sequence: Sequence| SEQUENCES.iter().position(|small| *small == sequence).map_or(u8::MAX, |at| at as u8);
    let mut doubt: Vec<_> = mark.doubt.iter().filter(|doubt| doubt.sequence != *FILLER).collect();
    doubt.sort_by_key(|doubt| (doubt.sequence, doubt.key));
    Mark {
        newest: mark.newest.map(small),
        holder: mark.holder.map(|holder| Holder {
            owner: owner(Some(holder.owner)),
            key: key(holder.key),
            sequence: small(holder.sequence),
            lease: point(holder.lease_until),
        }),
        doubt: doubt.into_iter().map(|doubt| (doubt.key.map(key), small(doubt.sequence))).collect(),
        expiration: time(mark.expiration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Status;

    #[test]
    fn a_record_and_a_mark_come_back_as_they_were() {
        let record = Record {
            status: Status::InProgress,
            owner: 11,
            attempt: 2,
            prior: Some(Status::InProgress),
            lease: 3,
            expiration: 50,
            payload: 1,
            value: 0,
            released: 1,
        };
        for record in [record, Record { owner: NOBODY, lease: 0, released: 0, prior: None, ..record }] {
            assert_eq!(from_library(&to_library(&record, Some(1))), record);
        }
        let completed = Record { status: Status::Completed, value: 11, ..record };
        assert_eq!(from_library(&to_library(&completed, None)), completed);
        let holder = Some(Holder { owner: 12, key: 1, sequence: 2, lease: 5 });
        let mark = Mark { newest: Some(1), holder, doubt: vec![(None, 2), (Some(2), 3)], expiration: 9 };
        for is_filled in [false, true] {
            assert_eq!(mark_from_library(&mark_to_library(&mark, is_filled)), mark);
        }
        assert_eq!(mark_to_library(&mark, true).doubt.len(), MAX_DOUBT);
    }
}
