//! Ids of records.

use anyhow::{Context, Result};
use lambda_once::{order::Entity, record::KeyHash};

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

/// Reads the id of an entity: its hash, which logs have as `entity`, or the name that a store gives its mark, such as
/// `once#HASHmark`, or the id of one of its operations.
///
/// # Errors
///
/// Returns an error if the text ends with neither 32 nor 64 hexadecimal digits.
pub(crate) fn parse_entity(id: &str) -> Result<Entity> {
    const ENTITY_DIGITS: usize = DIGITS / 2;
    let digits = id.replace(['{', '}'], "").to_ascii_lowercase();
    let (digits, is_mark) = digits.strip_suffix("mark").map_or((&*digits, false), |name| (name, true));
    if let Ok(operation) = parse(digits)
        && !is_mark
    {
        return Ok(Entity::of(&operation));
    }
    let half = digits.len().checked_sub(ENTITY_DIGITS).and_then(|start| digits.get(start..));
    // The other half belongs to an operation.
    let hash = half.and_then(|half| KeyHash::from_hex(&format!("{half}{half}")));
    hash.map(|hash| Entity::of(&hash)).with_context(|| {
        format!(
            "the id of an entity ends with {ENTITY_DIGITS} hexadecimal digits, as logs have it as `entity`, and that of an operation \
             with {DIGITS}"
        )
    })
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
        for id in [
            first.to_owned(),
            hex.clone(),
            format!("once#{first}mark"),
            format!("once#{hex}"),
            format!("a{first}mark"),
            format!("once:{{{first}}}mark"),
            format!("once:{{{first}}}{second}"),
        ] {
            assert_eq!(parse_entity(&id).unwrap(), Entity::of(&hash), "{id}");
        }
        assert!(parse_entity(&hex[..31]).is_err() && parse_entity("mark").is_err());
        for bad in ["", "once#", &hex[1..], &format!("{hex}#"), &"é".repeat(40)] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
