//! Ids of records.

use anyhow::{Context, Result};
use lambda_once::record::KeyHash;

const DIGITS: usize = 64;

/// Reads the id of a record. This is its hash, as in logs and lists, or the name that a store gives it: `once#HASH` in
/// DynamoDB, `once:{HASH}HASH` in Redis, `\xHASH` in PostgreSQL.
///
/// # Errors
///
/// Returns an error if the text does not end with 64 hexadecimal digits.
pub(crate) fn parse(id: &str) -> Result<KeyHash> {
    let digits = id.replace(['{', '}'], "").to_ascii_lowercase();
    let hash = digits.len().checked_sub(DIGITS).and_then(|start| digits.get(start..)).and_then(KeyHash::from_hex);
    hash.with_context(|| format!("an id ends with the {DIGITS} hexadecimal digits of a hash, as logs have it as `key`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_each_store_writes_it() {
        let hash = KeyHash::from_bytes(std::array::from_fn(|byte| u8::try_from(byte).unwrap()));
        let hex = hash.to_hex();
        let (first, second) = hex.split_at(32);
        for id in [
            hex.clone(),
            format!("once#{hex}"),
            format!("once:{{{first}}}{second}"),
            format!("\\x{hex}"),
            hex.to_uppercase(),
        ] {
            assert_eq!(parse(&id).unwrap(), hash, "{id}");
        }
        for bad in ["", "once#", &hex[1..], &format!("{hex}#"), &"é".repeat(40)] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
