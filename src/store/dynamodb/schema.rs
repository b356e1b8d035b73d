//! The table's layout, with its name, the names of the attributes, and the primary key.

use std::collections::HashMap;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};

#[cfg(feature = "powertools")]
use super::powertools::Shared;
use crate::{
    error::Error,
    record::{EncodedData, Fingerprint, KeyHash, MAX_LABEL_BYTES, StoredData, StoredResult},
    store::{ClaimRequest, SettleRequest},
};

/// DynamoDB's limit for the size of an item, including the names of attributes.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html>
const MAX_ITEM_BYTES: usize = 400 * 1024;

/// Attributes that only marks have. `owner`, `sequence`, `expiration`, `in_progress_expiration` and `v` have the same
/// names as in records.
const MARK_ATTRIBUTES: [&str; 3] = [NEWEST, HOLDER, DOUBT];
pub(super) const NEWEST: &str = "newest";
pub(super) const HOLDER: &str = "holder";
pub(super) const DOUBT: &str = "doubt";

/// The members of a result that a codec has encoded.
const CODEC: &str = "codec";
const BYTES: &str = "bytes";

/// The maximum size of an attribute's value besides the result, the operation's name and its label, which is the size
/// of a fingerprint with a version.
const MAX_VALUE_BYTES: usize = "v4294967295:".len() + 64;

/// The names of the attributes. The defaults are AWS Powertools' names, or this library's if Powertools has none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each field is named after the attribute that it names; the module describes them")]
pub struct AttributeNames {
    pub id: String,
    pub status: String,
    pub expiration: String,
    pub in_progress_expiration: String,
    pub data: String,
    pub validation: String,
    pub owner: String,
    pub attempt: String,
    pub prior_status: String,
    pub result_dropped: String,
    pub superseded: String,
    pub version: String,
    pub operation: String,
    pub label: String,
    pub sequence: String,
    pub claimed_at: String,
    pub settled_at: String,
    pub released: String,
    pub open: String,
}

impl Default for AttributeNames {
    fn default() -> Self {
        Self {
            id: "id".into(),
            status: "status".into(),
            expiration: "expiration".into(),
            in_progress_expiration: "in_progress_expiration".into(),
            data: "data".into(),
            validation: "validation".into(),
            owner: "owner".into(),
            attempt: "attempt".into(),
            prior_status: "prior_status".into(),
            result_dropped: "result_dropped".into(),
            superseded: "superseded".into(),
            version: "v".into(),
            operation: "operation".into(),
            label: "label".into(),
            sequence: "sequence".into(),
            claimed_at: "claimed_at".into(),
            settled_at: "settled_at".into(),
            released: "released".into(),
            open: "open".into(),
        }
    }
}

impl AttributeNames {
    /// Returns all names except the name of the result's data, which may be large.
    pub(super) fn without_data(&self) -> [&str; 18] {
        [
            &self.id,
            &self.status,
            &self.expiration,
            &self.in_progress_expiration,
            &self.validation,
            &self.owner,
            &self.attempt,
            &self.prior_status,
            &self.result_dropped,
            &self.superseded,
            &self.version,
            &self.operation,
            &self.label,
            &self.sequence,
            &self.claimed_at,
            &self.settled_at,
            &self.released,
            &self.open,
        ]
    }

    /// Returns the names that records of AWS Powertools do not have.
    fn details(&self) -> [&String; 7] {
        [&self.operation, &self.label, &self.sequence, &self.claimed_at, &self.settled_at, &self.released, &self.open]
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.without_data().into_iter().chain([self.data.as_str()])
    }
}

/// The attribute for the result.
pub(super) enum Stored {
    Nothing,
    Data(AttributeValue),
    Dropped,
    Superseded,
}

/// The global secondary index of records without a success.
pub(super) const LISTING_INDEX: &str = "open";
/// The number of partitions of each operation in that index. A partition accepts 1,000 writes per second.
pub(super) const SHARDS: usize = 16;

/// The table's layout, as far as the store needs it.
#[derive(Clone, Debug)]
pub(super) struct Schema {
    pub(super) table: String,
    pub(super) names: AttributeNames,
    pub(super) key_prefix: String,
    pub(super) sort_key: Option<(String, String)>,
    /// Whether the index for lists contains the records without a success.
    pub(super) has_listing_index: bool,
    /// The function that the records are shared with, unless they are native.
    #[cfg(feature = "powertools")]
    pub(super) powertools: Option<Shared>,
}

impl Schema {
    pub(super) fn new(table: String) -> Self {
        Self {
            table,
            names: AttributeNames::default(),
            key_prefix: "once#".into(),
            sort_key: None,
            has_listing_index: false,
            #[cfg(feature = "powertools")]
            powertools: None,
        }
    }

    /// Returns the item's primary key.
    pub(super) fn key(&self, key: &KeyHash) -> HashMap<String, AttributeValue> {
        self.key_names().map(str::to_owned).zip(self.key_values(key)).collect()
    }

    /// Returns the names of the key's attributes.
    pub(super) fn key_names(&self) -> impl Iterator<Item = &str> {
        [self.names.id.as_str()].into_iter().chain(self.sort_key_name())
    }

    /// Returns the values of the key's attributes, in the order of their names.
    pub(super) fn key_values(&self, key: &KeyHash) -> impl Iterator<Item = AttributeValue> {
        let id = AttributeValue::S(self.id(key));
        let sort_key = self.sort_key.as_ref().map(|(_, value)| AttributeValue::S(value.clone()));
        #[cfg(feature = "powertools")]
        let (id, sort_key) = match sort_key {
            // Powertools has the constant in the partition key.
            Some(constant) if self.powertools.is_some() => (constant, Some(id)),
            sort_key => (id, sort_key),
        };
        [id].into_iter().chain(sort_key)
    }

    fn id(&self, key: &KeyHash) -> String {
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.powertools {
            return powertools.id(key);
        }
        // Not `format!`, which takes ten times as many instructions.
        [self.key_prefix.as_str(), &key.to_hex()].concat()
    }

    /// Returns the partition of a record in the index for lists, if there is one. It consists of the operation and the
    /// last digit of the key.
    pub(super) fn open(&self, key: &KeyHash, operation: &str) -> Option<AttributeValue> {
        let shard = usize::from(key.as_bytes()[31]) % SHARDS;
        self.has_listing_index.then(|| self.partition(operation, shard))
    }

    /// Returns a partition of an operation in the index for lists.
    pub(super) fn partition(&self, operation: &str, shard: usize) -> AttributeValue {
        AttributeValue::S(format!("{}{operation}#{shard:x}", self.key_prefix))
    }

    /// Returns a fingerprint in its stored form.
    pub(super) fn validation(&self, fingerprint: &Fingerprint) -> AttributeValue {
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.powertools {
            return AttributeValue::S(powertools.validation(fingerprint));
        }
        AttributeValue::S(fingerprint.to_text())
    }

    /// Returns the values by which a condition compares stored fingerprints: `:payload` is the prefix of all
    /// fingerprints of the same payload, and fingerprints of the payload's version are between `:from` and `:to`.
    pub(super) fn compared(&self, fingerprint: &Fingerprint) -> impl Iterator<Item = (String, AttributeValue)> {
        let (payload, versions) = self.payload_and_versions(fingerprint);
        let versions = versions.map(|[from, to]| [(":from", from), (":to", to)]);
        let values = [(":payload", payload)].into_iter().chain(versions.into_iter().flatten());
        values.map(|(placeholder, text)| (placeholder.to_owned(), AttributeValue::S(text)))
    }

    fn payload_and_versions(&self, fingerprint: &Fingerprint) -> (String, Option<[String; 2]>) {
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.powertools {
            return (powertools.validation(fingerprint), None);
        }
        let mut text = fingerprint.to_text();
        let versions = match text.find(':') {
            // Fingerprints of version 1 are plain digits. Fingerprints of other versions begin with a `v`.
            None => ["0".to_owned(), "g".to_owned()],
            Some(end) => [text[..=end].to_owned(), format!("{};", &text[..end])],
        };
        text.truncate(text.len() - 32);
        (text, Some(versions))
    }

    /// Returns the fingerprint from its stored form, or `None` if it is not one.
    pub(super) fn read_validation(&self, stored: &AttributeValue) -> Option<Fingerprint> {
        let text = stored.as_s().ok()?;
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.powertools {
            return powertools.read_validation(text);
        }
        Fingerprint::from_text(text)
    }

    /// Returns a result in its stored form, or `None` if it cannot be stored and is dropped.
    fn data(&self, data: &StoredData) -> Option<AttributeValue> {
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.powertools {
            let stored = powertools.data(data, self.max_result_bytes());
            if stored.is_none() {
                tracing::error!(target: "lambda_once", "DynamoDB has no value for the result, or no room for it, so it is dropped; the operation remains completed");
            }
            return stored;
        }
        Some(match data {
            StoredData::Json(text) => AttributeValue::S(text.clone()),
            StoredData::Deflated(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
            StoredData::Encoded(data) => AttributeValue::M(HashMap::from([
                (CODEC.to_owned(), AttributeValue::S(data.codec().to_owned())),
                (BYTES.to_owned(), AttributeValue::B(Blob::new(data.bytes()))),
            ])),
        })
    }

    /// Returns the attribute for a result.
    pub(super) fn stored(&self, result: &StoredResult) -> Stored {
        match result.data.as_ref().map(|data| self.data(data)) {
            // A stored result was not dropped.
            Some(Some(data)) => Stored::Data(data),
            stored if result.dropped || stored.is_some() => Stored::Dropped,
            _ if result.superseded => Stored::Superseded,
            _ => Stored::Nothing,
        }
    }

    /// Returns the result from its stored form.
    pub(super) fn read_data(&self, stored: &AttributeValue) -> StoredData {
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.powertools {
            return powertools.read_data(stored);
        }
        match stored {
            AttributeValue::S(text) => StoredData::Json(text.clone()),
            AttributeValue::B(bytes) => StoredData::Deflated(bytes.as_ref().to_vec()),
            // Another library's native value. It is not JSON text, so it never decodes.
            other => {
                other.as_m().ok().and_then(encoded).map_or_else(|| StoredData::Json(String::new()), StoredData::Encoded)
            }
        }
    }

    /// Returns the result of a completed operation whose record has none.
    pub(super) fn absent_data(&self) -> Option<StoredData> {
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.powertools {
            return powertools.absent_data();
        }
        None
    }

    pub(super) fn sort_key_name(&self) -> Option<&str> {
        self.sort_key.as_ref().map(|(name, _)| name.as_str())
    }

    /// Returns the bytes of an item besides its result: the names, the key, and values of the maximum size. For the
    /// result, it counts the part of encoded data that is not its bytes.
    fn overhead(&self) -> usize {
        let sort_key = self.sort_key.as_ref().map_or(0, |(name, value)| name.len() + value.len());
        let names_and_values = self.names.all().map(|name| name.len() + MAX_VALUE_BYTES).sum::<usize>();
        let open = if self.has_listing_index { self.key_prefix.len() + MAX_LABEL_BYTES } else { 0 };
        names_and_values + 2 * (MAX_LABEL_BYTES - MAX_VALUE_BYTES) + self.prefix().len() + sort_key + open
    }

    /// Returns the names of all attributes of a record besides its key.
    pub(super) fn written(&self) -> impl Iterator<Item = &str> {
        let details = self.names.details();
        let is_written = move |name: &&str| self.has_details() || !details.iter().any(|detail| detail == name);
        self.names.all().filter(|name| *name != self.names.id).filter(is_written)
    }

    /// Returns whether the records contain the operation of a claim, and the times of its grant and settle. Records
    /// of AWS Powertools do not.
    pub(super) fn has_details(&self) -> bool {
        #[cfg(feature = "powertools")]
        if self.powertools.is_some() {
            return false;
        }
        true
    }

    fn prefix(&self) -> &str {
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.powertools {
            return powertools.prefix();
        }
        &self.key_prefix
    }

    /// Returns the bytes of an item that are left for its result.
    pub(super) fn max_result_bytes(&self) -> usize {
        MAX_ITEM_BYTES - self.overhead()
    }

    /// Checks that the records can represent a claim.
    #[cfg_attr(not(feature = "powertools"), expect(unused_variables, reason = "the library's own hold any"))]
    pub(super) fn check_claim(&self, request: &ClaimRequest) -> Result<(), Error> {
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.powertools {
            return powertools.check_claim(request);
        }
        Ok(())
    }

    /// Checks that the records can represent the end of a claim.
    #[cfg_attr(not(feature = "powertools"), expect(unused_variables, reason = "the library's own hold any"))]
    pub(super) fn check_settle(&self, request: &SettleRequest) -> Result<(), Error> {
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.powertools {
            return powertools.check_settle(request);
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let mut names: Vec<&str> = self.names.all().collect();
        names.extend(self.sort_key_name().into_iter().chain(MARK_ATTRIBUTES));
        if self.table.is_empty() || names.iter().any(|name| name.is_empty()) {
            return Err(Error::config("the names of the table and of its attributes must not be empty"));
        }
        if self.sort_key.as_ref().is_some_and(|(_, value)| value.is_empty()) {
            return Err(Error::config("the value of the sort key must not be empty"));
        }
        let is_odd = |name: &&str| name.contains(['"', '\'']) || name.starts_with(['#', ':']);
        if names.iter().chain([&self.table.as_str()]).any(is_odd) {
            return Err(Error::config(
                "the names of the table and of its attributes must not contain quotation marks, nor begin with # or :",
            ));
        }
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::config(format!("two attributes have the name `{}`", pair[0]))),
            None => Ok(()),
        }
    }
}

/// Returns the encoded data in the members of a map, or `None` if it is a different map.
fn encoded(members: &HashMap<String, AttributeValue>) -> Option<EncodedData> {
    let (codec, bytes) = (members.get(CODEC)?.as_s().ok()?, members.get(BYTES)?.as_b().ok()?);
    EncodedData::new(codec, bytes.as_ref().to_vec()).ok()
}
