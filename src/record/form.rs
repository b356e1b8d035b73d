//! The serialized form of records, whose names and words are stable.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use super::{EncodedData, Fingerprint, KeyHash, Owner, Record, Status, StoredData, StoredResult, digits, nibble};
use crate::{clock::Timestamp, order::Sequence};

/// [`Record`], member by member.
#[derive(Serialize, Deserialize)]
struct Form {
    status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
    #[serde(default)]
    attempt: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prior_status: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_progress_expiration: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expiration: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    validation: Option<Fingerprint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deflated: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoded: Option<EncodedData>,
    #[serde(default, skip_serializing_if = "is_false")]
    result_dropped: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    superseded: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sequence: Option<Sequence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claimed_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    settled_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    released: Option<u64>,
    #[serde(default)]
    v: u32,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl From<Record> for Form {
    fn from(record: Record) -> Self {
        let (data, deflated, encoded) = match record.result.data {
            Some(StoredData::Json(text)) => (Some(text), None, None),
            Some(StoredData::Deflated(bytes)) => (None, Some(Bytes(bytes)), None),
            Some(StoredData::Encoded(data)) => (None, None, Some(data)),
            None => (None, None, None),
        };
        Self {
            status: record.status,
            owner: record.owner,
            attempt: record.attempt,
            prior_status: record.prior_status,
            in_progress_expiration: record.lease_until.map(Timestamp::as_millis),
            expiration: record.expiration,
            validation: record.fingerprint,
            data,
            deflated,
            encoded,
            result_dropped: record.result.dropped,
            superseded: record.result.superseded,
            operation: record.operation.as_deref().map(str::to_owned),
            label: record.label.as_deref().map(str::to_owned),
            sequence: record.sequence,
            claimed_at: record.claimed_at.map(Timestamp::as_millis),
            settled_at: record.settled_at.map(Timestamp::as_millis),
            released: record.released,
            v: record.version,
            unknown: record.unknown,
        }
    }
}

impl From<Form> for Record {
    fn from(form: Form) -> Self {
        let deflated = || form.deflated.map(|Bytes(bytes)| StoredData::Deflated(bytes));
        Self {
            status: form.status,
            owner: form.owner,
            attempt: form.attempt,
            prior_status: form.prior_status,
            lease_until: form.in_progress_expiration.map(Timestamp::from_millis),
            expiration: form.expiration,
            fingerprint: form.validation,
            result: StoredResult {
                data: form.data.map(StoredData::Json).or_else(deflated).or(form.encoded.map(StoredData::Encoded)),
                dropped: form.result_dropped,
                superseded: form.superseded,
            },
            version: form.v,
            operation: form.operation.map(Arc::from),
            label: form.label.map(Arc::from),
            sequence: form.sequence,
            claimed_at: form.claimed_at.map(Timestamp::from_millis),
            settled_at: form.settled_at.map(Timestamp::from_millis),
            released: form.released,
            unknown: form.unknown,
        }
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Form::from(self.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Form::deserialize(deserializer).map(Into::into)
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text("a status", Self::from_word))
    }
}

macro_rules! as_text {
    ($($type:ident, $read:ident: $what:literal;)+) => {
        $(
            impl Serialize for $type {
                /// Serializes it as its text.
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }

            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    deserializer.deserialize_str(Text($what, Self::$read))
                }
            }
        )+
    };
}

as_text! {
    KeyHash, from_hex: "64 lower-case hexadecimal digits";
    Fingerprint, from_text: "64 lower-case hexadecimal digits, after `v` and a payload's version unless that is 1";
    Owner, from_hex: "32 lower-case hexadecimal digits";
}

/// Bytes of any length, as lower-case hexadecimal digits.
struct Bytes(Vec<u8>);

impl Bytes {
    fn from_hex(hex: &str) -> Option<Self> {
        let (pairs, []) = hex.as_bytes().as_chunks() else { return None };
        pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect::<Option<_>>().map(Self)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(digits(&self.0, &mut vec![0; 2 * self.0.len()]))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text("pairs of lower-case hexadecimal digits", Self::from_hex))
    }
}

/// The members of encoded data.
#[derive(Serialize, Deserialize)]
struct EncodedForm {
    codec: String,
    bytes: Bytes,
}

impl Serialize for EncodedData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        EncodedForm { codec: self.codec().to_owned(), bytes: Bytes(self.bytes().to_vec()) }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for EncodedData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let EncodedForm { codec, bytes: Bytes(bytes) } = EncodedForm::deserialize(deserializer)?;
        Self::new(&codec, bytes).map_err(|error| de::Error::custom(error.message()))
    }
}

/// Reads a text, given its description and its parser. The error does not show the text, which may be a result.
struct Text<T>(&'static str, fn(&str) -> Option<T>);

impl<T> de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).ok_or_else(|| E::invalid_value(de::Unexpected::Other("another text"), &self))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};
    use serde_json::json;

    use super::*;

    fn statuses() -> impl Strategy<Value = Status> {
        prop::sample::select(vec![Status::InProgress, Status::Completed, Status::Failed])
    }

    fn results() -> impl Strategy<Value = StoredResult> {
        let data = prop_oneof![
            any::<String>().prop_map(StoredData::Json),
            vec(any::<u8>(), 0..100).prop_map(StoredData::Deflated),
            ("[!-~]{1,64}", vec(any::<u8>(), 0..100))
                .prop_map(|(codec, bytes)| StoredData::Encoded(EncodedData::new(&codec, bytes).unwrap())),
        ];
        let result = (option::of(data), any::<bool>(), any::<bool>());
        result.prop_map(|(data, dropped, superseded)| StoredResult { data, dropped, superseded })
    }

    prop_compose! {
        fn records()(
            status in statuses(),
            owner in option::of(any::<[u8; 16]>()),
            attempt: u64,
            prior_status in option::of(statuses()),
            lease_until: Option<u64>,
            expiration: Option<u64>,
            fingerprint in option::of(any::<[u8; 32]>()),
            result in results(),
            version: u32,
            texts: [Option<String>; 2],
            sequence: Option<u128>,
            times: [Option<u64>; 2],
            released: Option<u64>,
            unknown: Option<(u64, String)>,
        ) -> Record {
            let [operation, label] = texts.map(|text| text.map(Arc::from));
            let [claimed_at, settled_at] = times.map(|time| time.map(Timestamp::from_millis));
            let member = |(number, text)| ("a new member".to_owned(), json!([number, { "a": text }, null]));
            Record {
                operation,
                label,
                sequence: sequence.map(Sequence::from),
                claimed_at,
                settled_at,
                released,
                unknown: unknown.map(member).into_iter().collect(),
                status,
                owner: owner.map(Owner::from_bytes),
                attempt,
                prior_status,
                lease_until: lease_until.map(Timestamp::from_millis),
                expiration,
                fingerprint: fingerprint.map(Fingerprint::from_bytes),
                result,
                version,
            }
        }
    }

    proptest! {
        #[test]
        fn a_record_comes_back_as_it_was(record in records(), key: [u8; 32]) {
            let text = serde_json::to_string(&record).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Record>(&text).unwrap(), &record);
            let value = serde_json::to_value(&record).unwrap();
            prop_assert_eq!(&serde_json::from_value::<Record>(value).unwrap(), &record);
            let key = KeyHash::from_bytes(key);
            prop_assert_eq!(serde_json::from_value::<KeyHash>(json!(key)).unwrap(), key);
        }
    }

    /// The form is on record: these names and words are stable.
    #[test]
    fn the_form_is_the_documented_one() {
        let claim = Record {
            owner: Owner::from_hex("000102030405060708090a0b0c0d0eff"),
            attempt: 2,
            prior_status: Some(Status::Failed),
            lease_until: Some(Timestamp::from_millis(1_700_000_030_000)),
            expiration: Some(1_700_086_400),
            fingerprint: Some(Fingerprint::from_bytes([0xab; 32])),
            operation: Some("orders.sqs".into()),
            label: Some("order 7".into()),
            sequence: Some(7_u64.into()),
            claimed_at: Some(Timestamp::from_millis(1_700_000_000_000)),
            settled_at: Some(Timestamp::from_millis(1_700_000_000_001)),
            released: Some(2),
            ..Record::new(Status::InProgress)
        };
        let of_claim = json!({
            "status": "INPROGRESS",
            "owner": "000102030405060708090a0b0c0d0eff",
            "attempt": 2,
            "prior_status": "FAILED",
            "in_progress_expiration": 1_700_000_030_000_u64,
            "expiration": 1_700_086_400,
            "validation": "ab".repeat(32),
            "operation": "orders.sqs",
            "label": "order 7",
            "sequence": "7",
            "claimed_at": 1_700_000_000_000_u64,
            "settled_at": 1_700_000_000_001_u64,
            "released": 2,
            "v": 1,
        });
        let with = |name: &str, value| {
            let mut form = of_claim.clone();
            form[name] = value;
            form
        };
        let result = |result| Record { result, ..claim.clone() };
        for (record, form) in [
            (claim.clone(), of_claim.clone()),
            (result(StoredResult::of(StoredData::Json("[1, 2]".into()))), with("data", json!("[1, 2]"))),
            (result(StoredResult::of(StoredData::Deflated(vec![0, 255]))), with("deflated", json!("00ff"))),
            (
                result(StoredResult::of(StoredData::Encoded(EncodedData::new("key-2026", vec![0, 255]).unwrap()))),
                with("encoded", json!({ "codec": "key-2026", "bytes": "00ff" })),
            ),
            (result(StoredResult::DROPPED), with("result_dropped", json!(true))),
            (result(StoredResult::SUPERSEDED), with("superseded", json!(true))),
        ] {
            assert_eq!(serde_json::to_value(&record).unwrap(), form);
            assert_eq!(serde_json::from_value::<Record>(form).unwrap(), record);
        }
    }

    #[test]
    fn records_of_other_versions_are_read_or_refused() {
        let newer = json!({ "status": "COMPLETED", "attempt": 1, "v": 2, "a new member": { "of": [1, null] } });
        let record: Record = serde_json::from_value(newer.clone()).unwrap();
        assert_eq!((record.version, serde_json::to_value(record).unwrap()), (2, newer), "nothing of it is lost");
        for unknown in [
            json!({ "status": "PAUSED", "v": 2 }),
            json!({ "v": 1 }),
            json!({ "status": "COMPLETED", "owner": "AB".repeat(16) }),
            json!({ "status": "COMPLETED", "deflated": "0" }),
            json!({ "status": "COMPLETED", "encoded": { "bytes": "00" } }),
            json!({ "status": "COMPLETED", "encoded": { "codec": "", "bytes": "00" } }),
        ] {
            let error = serde_json::from_value::<Record>(unknown.clone()).unwrap_err().to_string();
            assert!(!error.contains("PAUSED") && !error.contains("AB"), "{error}");
        }
    }
}
