//! The order of operations on one entity, by their sequences and the entity's mark in the store.
//!
//! ```
//! use lambda_once::{Failure, Idempotency, MemoryStore, Outcome};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
//! let once = Idempotency::new(MemoryStore::new());
//! let write = |version: u64| once.operation("copy", &format!("order 7, version {version}")).ordered_by("order 7", version);
//! let newer = write(2).run(|| async { Ok::<_, Failure>(()) }).await?;
//! assert!(matches!(newer, Outcome::Executed(())));
//! let older = write(1).run(|| async { Ok::<_, Failure>(()) }).await?;
//! assert!(matches!(older, Outcome::Superseded { .. }));
//! # Ok(()) }
//! ```
//!
//! Ordering operations requires the feature `order`. The types exist without it, for stores.
//!
//! An operation that is [ordered](crate::Operation::ordered_by) has a [`Sequence`] within its entity. The store keeps
//! one [`Mark`] per entity beside the records. It contains the newest sequence of the entity, the claim that holds it,
//! and the operations that may have taken effect without leaving an outcome. Its rules are in
//! [`store::ordering`](crate::store::ordering).

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    key::NUMBER,
    record::{KeyHash, Owner, RECORD_VERSION},
};

/// The maximum number of digits of a sequence.
pub const MAX_DIGITS: usize = 64;

/// The number of digits of each part of a sequence.
const PART: usize = 16;
const PARTS: usize = MAX_DIGITS / PART;

/// The position of an operation in the order of its entity's operations, as a whole number of up to 64 decimal digits.
/// For example a version, a time, or a sequence number of Kinesis (56 digits).
///
/// It is created from an unsigned integer, parsed from digits, or deserialized from a number of up to 64 bits or from a
/// string of digits. Leading zeros are ignored.
///
/// ```
/// use lambda_once::order::Sequence;
///
/// let kinesis: Sequence = "49590338271490256608559692538361571095921575989136588898".parse()?;
/// assert!(kinesis > Sequence::from(7_u64));
/// assert_eq!(serde_json::from_str::<Sequence>("7").unwrap(), serde_json::from_str(r#""007""#).unwrap());
/// assert!("-1".parse::<Sequence>().is_err() && "".parse::<Sequence>().is_err());
/// # Ok::<_, lambda_once::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence([u64; PARTS]);

impl Sequence {
    /// Returns all 64 digits, with leading zeros, so that they sort as text like the sequences. This is the stored
    /// form.
    pub fn to_digits(&self) -> String {
        self.0.iter().map(|part| format!("{part:0PART$}")).collect()
    }

    fn parse(digits: &str) -> Option<Self> {
        let is_number = (1..=MAX_DIGITS).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let mut parts = [0; PARTS];
        // From the last digits to the first.
        for (part, digits) in parts.iter_mut().rev().zip(is_number.then(|| digits.as_bytes().rchunks(PART))?) {
            *part = digits.iter().fold(0, |part, digit| 10 * part + u64::from(digit - b'0'));
        }
        Some(Self(parts))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.to_digits();
        let significant = digits.trim_start_matches('0');
        f.write_str(if significant.is_empty() { "0" } else { significant })
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sequence({self})")
    }
}

impl FromStr for Sequence {
    type Err = Error;

    /// # Errors
    ///
    /// [`ErrorKind::Order`] for anything but 1 to 64 digits.
    fn from_str(digits: &str) -> Result<Self, Error> {
        Self::parse(digits).ok_or_else(|| Error::order("the sequence is not a whole number of 1 to 64 digits"))
    }
}

impl From<u128> for Sequence {
    fn from(mut integer: u128) -> Self {
        let mut parts = [0; PARTS];
        for part in parts.iter_mut().rev() {
            *part = (integer % 10_u128.pow(PART as u32)) as u64;
            integer /= 10_u128.pow(PART as u32);
        }
        Self(parts)
    }
}

macro_rules! from_unsigned {
    ($($integer:ty)+) => {
        $(
            impl From<$integer> for Sequence {
                fn from(integer: $integer) -> Self {
                    u128::from(integer).into()
                }
            }
        )+
    };
}

from_unsigned!(u8 u16 u32 u64);

impl Serialize for Sequence {
    /// Serializes it as a string of digits, which every JSON parser reads in full.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sequence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Sequence;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of up to 64 bits, or a string of 1 to 64 digits")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Sequence, E> {
                Ok(number.into())
            }

            fn visit_u128<E: de::Error>(self, number: u128) -> Result<Sequence, E> {
                Ok(number.into())
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Sequence, E> {
                let unsigned = u64::try_from(number);
                unsigned.map(Into::into).map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_str<E: de::Error>(self, digits: &str) -> Result<Sequence, E> {
                Sequence::parse(digits).ok_or_else(|| E::invalid_value(de::Unexpected::Other("another string"), &self))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Sequence, A::Error> {
                if map.next_key::<String>()?.as_deref() != Some(NUMBER) {
                    return Err(de::Error::invalid_type(de::Unexpected::Map, &self));
                }
                let number: Result<u64, _> = map.next_value::<String>()?.parse();
                number
                    .map(Into::into)
                    .map_err(|_| de::Error::invalid_value(de::Unexpected::Other("another number"), &self))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// The position of a request in the order of its entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The position of the operation.
    pub sequence: Sequence,
    /// The minimum time for which the entity's mark is kept after it was written.
    pub retention: Duration,
}

impl Order {
    /// Returns the order of an operation that has a sequence.
    #[cfg(feature = "order")]
    pub(crate) fn of(sequence: Option<&Sequence>, retention: Duration) -> Option<Self> {
        sequence.map(|&sequence| Self { sequence, retention })
    }

    /// Returns `None`, because setting a sequence requires the feature `order`.
    #[cfg(not(feature = "order"))]
    pub(crate) const fn of(sequence: Option<&Sequence>, _: Duration) -> Option<Self> {
        debug_assert!(sequence.is_none(), "nothing has a place in an order");
        None
    }

    /// Returns the order, which is `None` at compile time without the feature.
    pub(crate) const fn possible(order: &Option<Self>) -> Option<&Self> {
        if cfg!(feature = "order") { order.as_ref() } else { None }
    }
}

/// The entity of an ordered operation, as the first half of the operation's [`KeyHash`].
///
/// `Display` and `Debug` show hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entity([u8; 16]);

impl Entity {
    /// Returns the entity of an operation. Keys of operations without an order belong to no entity, but also have this
    /// half.
    pub fn of(key: &KeyHash) -> Self {
        Self(*key.halves().0)
    }

    /// Returns its 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entity({self})")
    }
}

/// A store's record of the order of an entity's operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The greatest completed sequence, if any.
    pub newest: Option<Sequence>,
    /// The claim that holds the entity, or did when its lease ended without a settle.
    pub holder: Option<Holder>,
    /// Operations that may have taken effect, because their leases ended without a settle and others have claimed the
    /// entity since. At most [`MAX_DOUBT`](crate::store::ordering::MAX_DOUBT) entries.
    pub doubt: Vec<Doubt>,
    /// The time at which the mark counts as absent, in seconds since the Unix epoch.
    pub expiration: u64,
    /// The [version](crate::record::RECORD_VERSION) of its format, which is the same as for records.
    pub version: u32,
}

impl Default for Mark {
    /// Returns an expired mark of this version, without a claim or an outcome.
    fn default() -> Self {
        Self { newest: None, holder: None, doubt: Vec::new(), expiration: 0, version: RECORD_VERSION }
    }
}

/// The claim that holds an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The token of the claim.
    pub owner: Owner,
    /// The operation.
    pub key: KeyHash,
    /// The position of the operation.
    pub sequence: Sequence,
    /// The end of the lease, at which the claim's holder must have stopped.
    pub lease_until: Timestamp,
}

/// An operation that may have taken effect, or several that have merged into one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The operation, or `None` for several.
    pub key: Option<KeyHash>,
    /// The position of the operation, or the greatest position of several.
    pub sequence: Sequence,
}

impl Error {
    /// Returns the error of an operation whose entity or sequence is missing or invalid.
    pub(crate) fn order(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Order, ErrorStatus::Permanent, "order", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(digits: &str) -> Sequence {
        digits.parse().unwrap()
    }

    #[test]
    fn sequences_compare_as_numbers_and_their_stored_digits_as_text() {
        let nines = |count| "9".repeat(count);
        let ascending = ["0", "7", "10", "99", &nines(31), &nines(32), &format!("1{}", "0".repeat(32)), &nines(64)];
        for pair in ascending.windows(2) {
            let (smaller, greater) = (sequence(pair[0]), sequence(pair[1]));
            assert!(smaller < greater && smaller.to_digits() < greater.to_digits(), "{pair:?}");
        }
        for digits in ascending {
            let sequence = sequence(digits);
            assert_eq!(sequence.to_string(), digits);
            assert_eq!((sequence.to_digits().len(), sequence.to_digits().parse().unwrap()), (MAX_DIGITS, sequence));
        }
    }

    #[test]
    fn a_number_a_string_of_digits_and_an_integer_are_one_sequence() {
        let json = |text: &str| serde_json::from_str::<Sequence>(text);
        assert_eq!(json("18446744073709551615").unwrap(), Sequence::from(u64::MAX));
        assert_eq!(json("\"018446744073709551615\"").unwrap(), Sequence::from(u64::MAX));
        assert_eq!(sequence(&u128::MAX.to_string()), Sequence::from(u128::MAX));
        assert_eq!(json(&serde_json::to_string(&Sequence::from(u128::MAX)).unwrap()).unwrap(), u128::MAX.into());
    }

    #[test]
    fn a_number_above_64_bits_must_be_a_string() {
        let digits = "18446744073709551616";
        let error = serde_json::from_str::<Sequence>(digits).unwrap_err().to_string();
        assert!(error.contains("expected a whole number of up to 64 bits, or a string of 1 to 64 digits"), "{error}");
        assert_eq!(serde_json::from_str::<Sequence>(&format!("\"{digits}\"")).unwrap(), sequence(digits));
    }

    /// As with `serde_json/arbitrary_precision`.
    #[test]
    fn a_number_that_arrives_as_a_map_is_a_sequence_of_up_to_64_bits_too() {
        let json = |number: &str| serde_json::from_str::<Sequence>(&format!(r#"{{"{NUMBER}":"{number}"}}"#));
        assert_eq!(json("18446744073709551615").unwrap(), Sequence::from(u64::MAX));
        for other in ["18446744073709551616", "-1", "1.0"] {
            let error = json(other).unwrap_err().to_string();
            assert!(error.contains("expected a whole number of up to 64 bits"), "{error}");
        }
        assert!(serde_json::from_str::<Sequence>(r#"{"number":"7"}"#).is_err());
    }

    #[test]
    fn an_invalid_sequence_is_a_permanent_order_error() {
        for digits in ["", "-1", "+1", "1.0", "1e3", " 1", "0x1", "١", &"1".repeat(65)] {
            let error = digits.parse::<Sequence>().unwrap_err();
            assert_eq!((error.kind(), error.status()), (ErrorKind::Order, ErrorStatus::Permanent), "{digits:?}");
        }
        for json in ["null", "-1", "1.0", "\"\"", "\"one\"", "true", "[1]"] {
            assert!(serde_json::from_str::<Sequence>(json).is_err(), "{json}");
        }
    }
}
