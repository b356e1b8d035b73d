//! Keys and payloads that are given as values.

use serde::Serialize;

use super::{canonical::canonical, missing::is_missing};
use crate::error::Error;

/// A key given as a value, in canonical JSON.
pub(crate) fn of_value<K: Serialize + ?Sized>(key: &K) -> Result<Vec<u8>, Error> {
    let json = canonical_value(key)?;
    if is_missing(&json) {
        return Err(Error::key_missing("the key, or a part of it, is null or empty"));
    }
    Ok(json)
}

/// A value in canonical JSON.
pub(crate) fn canonical_value<V: Serialize + ?Sized>(value: &V) -> Result<Vec<u8>, Error> {
    let text = serde_json::to_vec(value).map_err(|source| Error::payload("not serialisable").with_source(source))?;
    canonical(&text).map_err(|problem| Error::payload(problem.to_string()))
}
