//! Converts values to keys and payloads.

use serde::Serialize;

use super::{
    canonical::canonical,
    finite::{Finite, NotFinite},
    missing::is_missing,
};
use crate::{error::Error, panics::catch_panic};

/// Converts a value to a key in canonical JSON.
pub(crate) fn of_value<K: Serialize + ?Sized>(key: &K) -> Result<Vec<u8>, Error> {
    let json = canonical_value(key)?;
    if is_missing(&json) {
        return Err(Error::key_missing("the key, or a part of it, is null or empty"));
    }
    Ok(json)
}

/// Converts a value to canonical JSON.
pub(crate) fn canonical_value<V: Serialize + ?Sized>(value: &V) -> Result<Vec<u8>, Error> {
    // A user's `Serialize` may panic.
    let text = catch_panic(|| json(value)).unwrap_or_else(|| Err(Error::payload("its `Serialize` panicked")))?;
    canonical(&text).map_err(|problem| Error::payload(problem.to_string()))
}

fn json<V: Serialize + ?Sized>(value: &V) -> Result<Vec<u8>, Error> {
    let text = serde_json::to_vec(value).map_err(|source| Error::payload("not serializable").with_source(source))?;
    // `serde_json` writes non-finite numbers as `null`, which would make different payloads equal and keys missing.
    if text.windows(4).any(|part| part == b"null") {
        value.serialize(Finite).map_err(|NotFinite| Error::payload("JSON holds neither NaN nor infinity"))?;
    }
    Ok(text)
}
