//! Reads marks from the fields of a hash.

use redis::Value;

use super::field;
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    order::{Doubt, Entity, Holder, MAX_DIGITS, Mark, Sequence},
    record::{KeyHash, Owner},
    store::ordering,
};

/// The fields of a mark, in the order in which the scripts return them.
pub(super) const FIELDS: [&str; 8] =
    ["newest", "owner", "holder", "sequence", "in_progress_expiration", "doubt", "v", "expiration"];

/// Reads the mark of an entity from its fields, or returns `None` if there is none.
///
/// # Errors
///
/// [`ErrorKind::Format`](crate::ErrorKind::Format), temporary, if a field has a value that is unknown to this version.
pub(super) fn mark(answer: Value, entity: Entity, operation: &'static str) -> Result<Option<Mark>, Error> {
    let Some([newest, owner, held, sequence, lease, doubt, version, expiration]) =
        field::fields(FIELDS, answer, operation)?
    else {
        return Ok(None);
    };
    let holder = match owner.known(Owner::from_hex)? {
        Some(owner) => Some(Holder {
            owner,
            key: held.required(|half| key_of(entity, half))?,
            sequence: sequence.required(of_digits)?,
            lease_until: lease.required(|millis| millis.parse().ok().map(Timestamp::from_millis))?,
        }),
        None => None,
    };
    let doubt = doubt.known(|text| text.split_terminator(',').map(|entry| of_entry(entity, entry)).collect())?;
    Ok(Some(Mark {
        newest: newest.known(of_digits)?,
        holder,
        doubt: doubt.unwrap_or_default(),
        expiration: expiration.required(|seconds| seconds.parse().ok())?,
        version: version.version()?,
    }))
}

/// Returns the values of the [fields](FIELDS), which are empty if they are absent.
pub(super) fn stored(mark: &Mark) -> [String; 8] {
    let holder = mark.holder.as_ref();
    let half = |key: &KeyHash| key.to_hex().split_off(32);
    let entry =
        |doubt: &Doubt| format!("{} {},", doubt.sequence.to_digits(), doubt.key.as_ref().map(half).unwrap_or_default());
    [
        mark.newest.map(|newest| newest.to_digits()).unwrap_or_default(),
        holder.map(|holder| holder.owner.to_hex()).unwrap_or_default(),
        holder.map(|holder| half(&holder.key)).unwrap_or_default(),
        holder.map(|holder| holder.sequence.to_digits()).unwrap_or_default(),
        holder.map(|holder| holder.lease_until.as_millis().to_string()).unwrap_or_default(),
        mark.doubt.iter().map(entry).collect(),
        mark.version.to_string(),
        mark.expiration.to_string(),
    ]
}

/// Returns the error of a settle whose mark has this version.
pub(super) fn of_another_version(version: &[u8], operation: &'static str) -> Error {
    let version = std::str::from_utf8(version).ok().and_then(|digits| digits.parse().ok()).unwrap_or(u32::MAX);
    let unreadable =
        || Error::new(ErrorKind::Format, ErrorStatus::Temporary, operation, "the mark's version cannot be read");
    ordering::known_version(version, operation).err().unwrap_or_else(unreadable)
}

/// Reads only the stored form, because the script compares text.
fn of_digits(digits: &str) -> Option<Sequence> {
    if digits.len() == MAX_DIGITS { digits.parse().ok() } else { None }
}

fn of_entry(entity: Entity, entry: &str) -> Option<Doubt> {
    let (sequence, half) = entry.split_once(' ')?;
    let key = if half.is_empty() { None } else { Some(key_of(entity, half)?) };
    Some(Doubt { key, sequence: of_digits(sequence)? })
}

/// Returns the key of the entity's operation with this second half.
fn key_of(entity: Entity, half: &str) -> Option<KeyHash> {
    KeyHash::from_hex(&format!("{entity}{half}"))
}
