//! The stored state of a key, and its types.
//!
//! ```
//! use lambda_once::{Failure, Idempotency, MemoryStore, Store, record::Status, store::ResultData};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
//! let store = MemoryStore::new();
//! let once = Idempotency::new(store.clone());
//! let _ = once.operation("charge", "order 7").run(|| async { Ok::<_, Failure>(1_u64) }).await?;
//!
//! let key = once.key_hash("charge", "order 7")?;
//! let record = store.read(&[key], ResultData::Include).await.remove(0)?.expect("it was recorded");
//! assert_eq!((record.status, record.attempt), (Status::Completed, 1));
//! # Ok(()) }
//! ```

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

use crate::{clock::Timestamp, order::Sequence};

mod encoded;
mod fingerprint;
mod form;

pub use encoded::EncodedData;
pub(crate) use fingerprint::DEFAULT_PAYLOAD_VERSION;
pub use fingerprint::{Difference, Fingerprint, PayloadPart};

/// The version of the record's format that this library writes, as attribute `v`.
///
/// Versions N and N−1 settle and replay each other's records, so a record of the next version is still understood. A
/// record beyond it is an error that a redelivery may resolve, because a newer deployment wrote it.
///
/// So the next version may only add attributes. One that changes the form of an existing attribute, such as the
/// fingerprint, is numbered two higher, because the conditions of claims compare that attribute without reading it.
pub const RECORD_VERSION: u32 = 1;

/// The newest version of the record's format that this library can act on.
pub const NEWEST_KNOWN_VERSION: u32 = RECORD_VERSION + 1;

/// The maximum size of a label, and of an operation's name, in a record, in bytes. Longer texts are truncated at a
/// character.
pub const MAX_LABEL_BYTES: usize = 256;

/// Truncates a text to [`MAX_LABEL_BYTES`] for a record, and removes NUL, which PostgreSQL does not store.
pub(crate) fn stored_text(text: &str) -> Arc<str> {
    let text = &text[..text.floor_char_boundary(MAX_LABEL_BYTES)];
    if text.contains('\0') { text.replace('\0', "").into() } else { text.into() }
}

/// A key in its stored form, the SHA-256 of its scope and of the caller's key. For records of AWS Powertools
/// ([`RecordFormat`](crate::store::RecordFormat)) it is an MD5 of the key and one of the prefix.
///
/// The plain key cannot be recovered from it. `Display` and `Debug` show hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash([u8; 32]);

/// The token that fences a record: 128 random bits, newly drawn for every claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias("fencing token"))]
pub struct Owner([u8; 16]);

macro_rules! hexadecimal {
    ($type:ident, $bytes:literal) => {
        impl $type {
            #[doc = concat!("From its ", stringify!($bytes), " bytes.")]
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            #[doc = concat!("Its ", stringify!($bytes), " bytes.")]
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            /// Returns lower-case hexadecimal digits, as stores write them.
            pub fn to_hex(&self) -> String {
                digits(&self.0, &mut [0; 2 * $bytes]).to_owned()
            }

            #[doc = concat!("Reads ", stringify!($bytes), " bytes from lower-case hexadecimal digits; `None` for anything else.")]
            pub fn from_hex(hex: &str) -> Option<Self> {
                from_digits(hex).map(Self)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(digits(&self.0, &mut [0; 2 * $bytes]))
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($type), "({})"), self)
            }
        }
    };
}

hexadecimal!(KeyHash, 32);

impl KeyHash {
    /// Returns the key of an ordered operation, the first half of its entity's hash followed by the first half of
    /// its key's. A store that distributes records over servers keeps records of one entity together by the first half.
    #[must_use]
    pub fn ordered(entity: &Self, key: &Self) -> Self {
        let mut bytes = entity.0;
        bytes[16..].copy_from_slice(key.halves().0);
        Self(bytes)
    }

    /// Creates a hash of two parts.
    #[cfg(feature = "powertools")]
    pub(crate) fn from_halves(first: [u8; 16], second: [u8; 16]) -> Self {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&first);
        bytes[16..].copy_from_slice(&second);
        Self(bytes)
    }

    pub(crate) fn halves(&self) -> (&[u8; 16], &[u8; 16]) {
        let [first, second] = self.0.as_chunks().0 else { unreachable!("32 bytes are two halves") };
        (first, second)
    }
}

hexadecimal!(Owner, 16);

/// The digits of each byte.
const DIGITS: [[u8; 2]; 256] = {
    let nibbles = b"0123456789abcdef";
    let mut digits = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        digits[byte] = [nibbles[byte >> 4], nibbles[byte & 0xf]];
        byte += 1;
    }
    digits
};

pub(crate) fn digits<'a>(bytes: &[u8], digits: &'a mut [u8]) -> &'a str {
    for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(bytes) {
        *pair = DIGITS[usize::from(*byte)];
    }
    std::str::from_utf8(digits).unwrap_or_default()
}

/// Returns the bytes of these lower-case hexadecimal digits, or `None` for anything else.
pub(crate) fn from_digits<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// The state of a record in its life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// A claim is or was held, and no outcome is recorded yet.
    InProgress,
    /// The operation took effect, and its result is recorded.
    Completed,
    /// The operation failed permanently, and its error is recorded.
    Failed,
}

impl Status {
    /// Returns the word in the `status` attribute, which is the same as in AWS Powertools.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "INPROGRESS",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
        }
    }

    /// Returns the status for a word, or `None` for any other word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::InProgress, Self::Completed, Self::Failed].into_iter().find(|status| status.as_str() == word)
    }
}

/// A serialized result, as stored in a record. `Debug` shows only its size.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredData {
    /// JSON text.
    Json(String),
    /// JSON text, compressed by DEFLATE (RFC 1951).
    Deflated(Vec<u8>),
    /// JSON text, compressed or not, encoded by a [`ResultCodec`](crate::ResultCodec).
    Encoded(EncodedData),
}

impl StoredData {
    /// Returns its size in bytes, as stored.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(text) => text.len(),
            Self::Deflated(bytes) => bytes.len(),
            Self::Encoded(data) => data.as_packed().len(),
        }
    }

    /// Returns whether it contains no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for StoredData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(text) => write!(f, "Json({} bytes)", text.len()),
            Self::Deflated(bytes) => write!(f, "Deflated({} bytes)", bytes.len()),
            Self::Encoded(data) => write!(f, "Encoded({data:?})"),
        }
    }
}

/// The outcome in a COMPLETED or FAILED record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredResult {
    /// The result or the error. `None` if it was dropped, or if another library stored none.
    pub data: Option<StoredData>,
    /// Whether there was a result that is not stored: too large, not serializable, or not wanted.
    pub dropped: bool,
    /// Whether the handler reported that a newer operation supersedes this one, so that it did not take effect. Only in
    /// a COMPLETED record, and without data.
    pub superseded: bool,
}

impl StoredResult {
    /// A recorded outcome without its result.
    pub const DROPPED: Self = Self { data: None, dropped: true, superseded: false };

    /// The outcome of an operation that its handler reported as superseded.
    pub const SUPERSEDED: Self = Self { data: None, dropped: false, superseded: true };

    /// Creates an outcome with this result.
    pub const fn of(data: StoredData) -> Self {
        Self { data: Some(data), dropped: false, superseded: false }
    }
}

/// The stored state of a key.
///
/// For document stores it has a serialized form, in JSON and other formats that name members. The names come from
/// DynamoDB's attributes. Absent and `false` values are left out.
///
/// | member | value |
/// |---|---|
/// | `status` | `INPROGRESS`, `COMPLETED` or `FAILED` |
/// | `owner` | 32 hexadecimal digits |
/// | `attempt` | number |
/// | `prior_status` | as `status` |
/// | `in_progress_expiration` | end of the lease, in milliseconds since 1970 |
/// | `expiration` | in seconds since 1970 |
/// | `validation` | the fingerprint, [as text](Fingerprint::to_text) |
/// | `data`, `deflated` or `encoded` | the result: JSON text, as a string; compressed, as two hexadecimal digits per byte; or encoded by a [codec](crate::ResultCodec), an object of `codec`, its id, and `bytes`, as digits |
/// | `result_dropped`, `superseded` | `true` |
/// | `operation`, `label` | text |
/// | `sequence` | digits, as a string |
/// | `claimed_at`, `settled_at` | in milliseconds since 1970 |
/// | `released` | number |
/// | `v` | [version](RECORD_VERSION) of this format |
///
/// Unknown members are kept and written again, because a newer version may need them. An unreadable document is not a
/// free key, because a newer deployment may have written it. A store reports it as
/// [`ErrorKind::Format`](crate::ErrorKind::Format), [temporary](crate::ErrorStatus::Temporary). A store that also keeps the
/// expiration outside of the document treats an expired one as absent. Otherwise an unreadable
/// document blocks its key until it is deleted.
///
/// ```
/// use lambda_once::record::Record;
///
/// let record: Record = serde_json::from_str(r#"{"status": "COMPLETED", "attempt": 1, "data": "[1, 2]", "v": 1}"#)?;
/// assert_eq!(serde_json::from_str::<Record>(&serde_json::to_string(&record)?)?, record);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The state of the record in its life cycle.
    pub status: Status,
    /// The token of the claim that may settle it. `None` after a hand-back, and in records of other libraries.
    pub owner: Option<Owner>,
    /// The number of grants of the record since it was created. Not a fencing token.
    pub attempt: u64,
    /// The status that the last claim replaced, or `None` if there was no record, or a claim that had expired. A claim
    /// over INPROGRESS *took over*.
    pub prior_status: Option<Status>,
    /// The end of the lease, at which the claim's holder must have stopped. `None` in records of other libraries.
    pub lease_until: Option<Timestamp>,
    /// The time at which the record counts as absent, in seconds since the Unix epoch. `None` for never.
    pub expiration: Option<u64>,
    /// The fingerprint of the payload, if the claim had one.
    pub fingerprint: Option<Fingerprint>,
    /// The outcome of a COMPLETED or FAILED record.
    pub result: StoredResult,
    /// The version of the record's format, or 0 for records of other libraries, which have none.
    pub version: u32,
    /// The name of the operation, as in logs. For a service it includes the kind of service, such as `sqs`. `None` in
    /// records of other libraries.
    pub operation: Option<Arc<str>>,
    /// The application's [label](crate::Operation::label) for the last claim, in plain text.
    pub label: Option<Arc<str>>,
    /// The position of an [ordered](crate::order) operation in the order of its entity.
    pub sequence: Option<Sequence>,
    /// The time of the last grant, by the clock that decides its lease.
    pub claimed_at: Option<Timestamp>,
    /// The time at which that claim was completed, failed or handed back, by the same clock. `None` while it is held.
    pub settled_at: Option<Timestamp>,
    /// The [attempt](Self::attempt) that an operator has released. Once its lease has passed, it may be taken over
    /// under any policy. Greater attempts are not released.
    pub released: Option<u64>,
    /// Unknown members of the [serialized form](Self), for document stores. Other stores keep unknown values in place,
    /// and do not show them.
    pub unknown: Map<String, Value>,
}

impl Record {
    /// Creates a record of this version with only a status.
    #[must_use]
    pub fn new(status: Status) -> Self {
        Self {
            status,
            owner: None,
            attempt: 0,
            prior_status: None,
            lease_until: None,
            expiration: None,
            fingerprint: None,
            result: StoredResult::default(),
            version: RECORD_VERSION,
            operation: None,
            label: None,
            sequence: None,
            claimed_at: None,
            settled_at: None,
            released: None,
            unknown: Map::new(),
        }
    }

    /// Returns a copy without the data of its result.
    #[must_use]
    pub fn without_data(&self) -> Self {
        let Self { operation, label, unknown, result, .. } = self;
        Self {
            result: StoredResult { data: None, ..*result },
            operation: operation.clone(),
            label: label.clone(),
            unknown: unknown.clone(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_come_back_as_the_same_bytes() {
        let owner = Owner::from_bytes(*b"0123456789\xff\x00abcd");
        assert_eq!(Owner::from_hex(&owner.to_hex()), Some(owner));
        assert_eq!(owner.to_hex(), "30313233343536373839ff0061626364");
        assert_eq!(owner.to_string(), owner.to_hex());
        for bad in ["", "0", "zz", &"0".repeat(31), &"A".repeat(32), &"é".repeat(16)] {
            assert_eq!(Owner::from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_status_is_known_by_its_word_alone() {
        for status in [Status::InProgress, Status::Completed, Status::Failed] {
            assert_eq!(Status::from_word(status.as_str()), Some(status));
        }
        assert_eq!(Status::from_word("EXPIRED"), None);
        assert_eq!(Status::from_word("completed"), None);
    }

    #[test]
    fn stored_data_is_as_long_as_its_stored_form() {
        for (data, length) in [
            (StoredData::Json(String::new()), 0),
            (StoredData::Deflated(Vec::new()), 0),
            (StoredData::Json("\"é\"".into()), 4),
            (StoredData::Deflated(vec![1, 2, 3]), 3),
            // The id, a space, and the bytes.
            (StoredData::Encoded(EncodedData::new("key-1", vec![7]).unwrap()), 7),
        ] {
            assert_eq!((data.len(), data.is_empty()), (length, length == 0), "{data:?}");
        }
    }

    #[test]
    fn debug_shows_no_result() {
        let record = StoredResult::of(StoredData::Json("\"secret\"".into()));
        assert!(!format!("{record:?}").contains("secret"));
    }
}
