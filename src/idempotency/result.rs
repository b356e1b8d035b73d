//! Encodes and decodes stored results.

use miniz_oxide::{
    deflate::core::{CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params},
    inflate::decompress_to_vec_with_limit,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    codec::ResultCodec,
    guard::catch_panic,
    outcome::StoredFailure,
    policy::Results,
    settings::EngineSettings,
    verdict::{Failure, MAX_DEPTH},
};
use crate::{
    error::{BoxError, Error, ErrorKind, ErrorStatus},
    record::{EncodedData, KeyHash, StoredData, StoredResult},
    store::Limits,
};

/// The maximum size of a stored result after decompression, in bytes. Lambda accepts responses of up to 6 MB.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;

/// Lambda's limit for the response of an invocation, as JSON, in bytes. A larger one fails the invocation, and so would
/// each replay.
#[cfg(any(feature = "http-lambda", feature = "invocation"))]
pub(crate) const MAX_RESPONSE_BYTES: usize = 6_291_556;

/// The maximum size of a result that is compressed, in bytes. Compression happens after the handler, in the reserve,
/// and blocks the other records of the batch. As measured it takes 4 ms of a whole vCPU, 9 ms at worst, so some 50 to
/// 125 ms of a function with 128 MB. The first half of the shortest default reserve is 250 ms.
const MAX_COMPRESSED_BYTES: usize = 1024 * 1024;

/// The fastest level. The next levels compress JSON by 5 to 10 % more, in three times the time or longer.
const COMPRESSION_LEVEL: i32 = 1;

/// The first byte of a codec's input, which gives its form. It is part of the encoded data, so that one form cannot be
/// passed off as the other.
const JSON: u8 = b'j';
const DEFLATE: u8 = b'd';

#[derive(Serialize, Deserialize)]
struct FailureData<'a> {
    error: std::borrow::Cow<'a, str>,
}

/// The value of a finished run, as its record stores it.
pub(crate) trait Recorded {
    fn recorded(&self, encoder: &Encoder<'_>) -> StoredResult;
}

impl<T: Serialize> Recorded for T {
    fn recorded(&self, encoder: &Encoder<'_>) -> StoredResult {
        encoder.encode(self)
    }
}

/// Encodes the result of one operation.
#[derive(Clone, Copy)]
pub(crate) struct Encoder<'a> {
    key: KeyHash,
    settings: &'a EngineSettings,
    limits: Limits,
}

impl<'a> Encoder<'a> {
    pub(crate) const fn new(key: KeyHash, settings: &'a EngineSettings, limits: Limits) -> Self {
        Self { key, settings, limits }
    }

    /// Returns whether results are not stored at all.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "the HTTP layer stores a status then"))]
    pub(crate) fn discards_results(&self) -> bool {
        self.settings.results == Results::Discard
    }

    /// Encodes a result. If it is too large, or cannot be serialized or encoded, it is dropped, because the work is
    /// done nevertheless.
    pub(crate) fn encode<T: Serialize>(&self, value: &T) -> StoredResult {
        match self.settings.results {
            Results::Store => self.encode_always(value),
            Results::Discard => StoredResult::DROPPED,
        }
    }

    /// Encodes a value that is no result, like [`encode`](Self::encode), so that it is stored under
    /// [`Results::Discard`] too.
    pub(crate) fn encode_always<T: Serialize>(&self, value: &T) -> StoredResult {
        let Self { settings, limits, .. } = *self;
        // A user's `Serialize` may panic, which must not end the run, because the effect has happened.
        let text = match catch_panic(|| serde_json::to_string(value)) {
            Some(Ok(text)) => text,
            Some(Err(error)) => {
                tracing::error!(target: "lambda_once", %error, "the result is not serializable, so it is dropped; the operation remains completed");
                return StoredResult::DROPPED;
            }
            None => {
                tracing::error!(target: "lambda_once", "serializing the result panicked, so it is dropped; the operation remains completed");
                return StoredResult::DROPPED;
            }
        };
        let bytes = text.len();
        if bytes > settings.max_result_bytes {
            tracing::warn!(target: "lambda_once", bytes, limit = settings.max_result_bytes, "the result is larger than Lambda takes, so it is dropped, because each replay would fail; the operation remains completed");
            return StoredResult::DROPPED;
        }
        let is_compressed = bytes > settings.compress_above && bytes <= MAX_COMPRESSED_BYTES;
        let deflated = if is_compressed { deflate(&text, limits.max_result_bytes) } else { None };
        let data = deflated.map_or(StoredData::Json(text), StoredData::Deflated);
        let Some(data) = self.through_codec(data) else { return StoredResult::DROPPED };
        if data.len() > limits.max_result_bytes {
            tracing::warn!(target: "lambda_once", bytes, limit = limits.max_result_bytes, "the result is too large for the store, so it is dropped; the operation remains completed");
            return StoredResult::DROPPED;
        }
        StoredResult::of(data)
    }

    pub(crate) fn encode_failure(&self, failure: &Failure) -> StoredResult {
        // The text comes from user code, and printing it may panic.
        match catch_panic(|| failure.to_string()) {
            Some(text) => self.encode(&FailureData { error: text.into() }),
            None => StoredResult::DROPPED,
        }
    }

    /// Returns the data as encoded by the engine's codec, if any. Returns `None` if that fails, because data that a
    /// codec should hide is never stored as is.
    fn through_codec(&self, data: StoredData) -> Option<StoredData> {
        let Some(codec) = &self.settings.codec else { return Some(data) };
        let (form, bytes) = match &data {
            StoredData::Json(text) => (JSON, text.as_bytes()),
            StoredData::Deflated(bytes) => (DEFLATE, &bytes[..]),
            StoredData::Encoded(_) => return Some(data),
        };
        let mut plain = Vec::with_capacity(bytes.len() + 1);
        plain.push(form);
        plain.extend_from_slice(bytes);
        // The codec is user code, and may panic. So may its error when it is printed or dropped.
        let encoded = catch_panic(|| codec.encode(&self.key, &plain).map_err(contained_text));
        match encoded {
            Some(Ok(encoded)) => return Some(StoredData::Encoded(encoded)),
            Some(Err(error)) => {
                tracing::error!(target: "lambda_once", key = %self.key, error, "the result codec failed, so the result is not stored; the operation remains completed");
            }
            None => {
                tracing::error!(target: "lambda_once", key = %self.key, "the result codec panicked, so the result is not stored; the operation remains completed");
            }
        }
        None
    }
}

/// Compresses the text. Returns `None` as soon as the output is not shorter, or longer than `limit`.
fn deflate(text: &str, limit: usize) -> Option<Vec<u8>> {
    // Without a window in the flags there is no zlib header.
    let mut compressor = CompressorOxide::new(create_comp_flags_from_zip_params(COMPRESSION_LEVEL, 0, 0));
    let mut deflated = vec![0; limit.min(text.len() - 1)];
    let (status, _, length) = compress(&mut compressor, text.as_bytes(), &mut deflated, TDEFLFlush::Finish);
    deflated.truncate(length);
    deflated.shrink_to_fit();
    (status == TDEFLStatus::Done).then_some(deflated)
}

/// Decodes the stored result of one operation.
#[derive(Clone, Copy)]
pub(crate) struct Decoder<'a> {
    key: &'a KeyHash,
    codec: Option<&'a dyn ResultCodec>,
}

impl EngineSettings {
    /// Returns the decoder for the result of the operation with this key.
    pub(crate) fn decoder<'a>(&'a self, key: &'a KeyHash) -> Decoder<'a> {
        Decoder { key, codec: self.codec.as_deref() }
    }
}

impl Decoder<'_> {
    /// Decodes a result. Returns `None` if the record contains none.
    pub(crate) fn decode<T: DeserializeOwned>(&self, result: &StoredResult) -> Result<Option<T>, Error> {
        match &result.data {
            None => Ok(None),
            Some(StoredData::Json(text)) => from_form(JSON, text.as_bytes()).map(Some),
            Some(StoredData::Deflated(bytes)) => from_form(DEFLATE, bytes).map(Some),
            Some(StoredData::Encoded(encoded)) => {
                let plain = self.through_codec(encoded)?;
                let (form, bytes) = plain.split_first().ok_or_else(|| undecodable(OTHER_PLAIN))?;
                from_form(*form, bytes).map(Some)
            }
        }
    }

    pub(crate) fn decode_failure(&self, result: &StoredResult) -> Result<StoredFailure, Error> {
        let data: Option<FailureData<'static>> = self.decode(result)?;
        Ok(StoredFailure { message: data.map(|data| data.error.into_owned()) })
    }

    fn through_codec(&self, encoded: &EncodedData) -> Result<Vec<u8>, Error> {
        let Some(codec) = self.codec else {
            return Err(undecodable(
                "the stored result is encoded by a result codec, and the engine has none: give `Builder::result_codec` the codec \
                 that the function had before; the operation was done and is not run again",
            )
            .with_source(format!("the id of the codec is {}", encoded.codec())));
        };
        // The codec is user code, and may panic.
        match catch_panic(|| codec.decode(self.key, encoded).map_err(contained_text)) {
            Some(Ok(plain)) => Ok(plain),
            Some(Err(text)) => Err(undecodable(
                "the result codec does not decode the stored result; the operation was done and is not run again",
            )
            .with_source(text)),
            None => Err(undecodable(
                "the result codec panicked at the stored result; the operation was done and is not run again",
            )),
        }
    }
}

const OTHER_PLAIN: &str = "the result codec decodes the stored result into a text that differs from the one that it \
                           encoded; the operation was done and is not run again";

fn undecodable(why: &'static str) -> Error {
    Error::new(ErrorKind::StoredResult, ErrorStatus::Permanent, "replay", why)
}

/// Returns the text of a codec's error, with its sources. Must be called in a place where panics are caught.
fn contained_text(error: BoxError) -> String {
    let sources = std::iter::successors(Some(&*error as &dyn std::error::Error), |error| error.source());
    sources.take(MAX_DEPTH).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Decodes JSON text, compressed or not.
fn from_form<T: DeserializeOwned>(form: u8, bytes: &[u8]) -> Result<T, Error> {
    let inflated;
    let text = match form {
        JSON => bytes,
        DEFLATE => {
            inflated = decompress_to_vec_with_limit(bytes, MAX_RESULT_BYTES)
                .map_err(|error| undecodable("the stored result does not decompress").with_source(error.to_string()))?;
            &inflated
        }
        _ => return Err(undecodable(OTHER_PLAIN)),
    };
    // A user's `Deserialize` may panic.
    let decoded = catch_panic(|| serde_json::from_slice(text));
    decoded.ok_or_else(|| undecodable("decoding the stored result panicked; the operation was done and is not run again"))?.map_err(|error| {
        // The error's text may quote the stored result, so only its position is kept.
        undecodable(
            "the stored result does not decode into the type that is asked for: another type wrote it, or JSON does not hold \
             it, such as NaN; the operation was done and is not run again",
        )
        .with_source(format!("line {} column {}", error.line(), error.column()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const LIMITS: Limits = Limits { max_result_bytes: 400_000, batch: 1, orders: false };

    const KEY: KeyHash = KeyHash::from_bytes([7; 32]);

    fn encode<T: Serialize>(value: &T, settings: &EngineSettings, limits: Limits) -> StoredResult {
        Encoder::new(KEY, settings, limits).encode(value)
    }

    fn decode<T: DeserializeOwned>(result: &StoredResult) -> Result<Option<T>, Error> {
        EngineSettings::default().decoder(&KEY).decode(result)
    }

    fn round_trip<T: Serialize + DeserializeOwned>(value: &T) -> Option<T> {
        decode(&encode(value, &EngineSettings::default(), LIMITS)).unwrap()
    }

    #[test]
    fn results_come_back_equal() {
        assert_eq!(round_trip(&()), Some(()));
        assert_eq!(round_trip(&false), Some(false));
        assert_eq!(round_trip(&0), Some(0));
        assert_eq!(round_trip(&String::new()), Some(String::new()));
        assert_eq!(round_trip(&serde_json::Value::Null), Some(serde_json::Value::Null));
        assert_eq!(round_trip(&None::<u8>), Some(None));
        assert_eq!(round_trip(&u128::MAX), Some(u128::MAX));
        assert_eq!(round_trip(&i64::MIN), Some(i64::MIN));
        assert_eq!(round_trip(&0.1_f64), Some(0.1));
        assert_eq!(round_trip(&1.797_693_134_862_315_7e308_f64), Some(f64::MAX));
        assert_eq!(round_trip(&vec![(1, "a".to_owned())]), Some(vec![(1, "a".to_owned())]));
    }

    #[test]
    fn a_large_result_is_compressed_and_replays_whole() {
        let text = "abcdefghij".repeat(30_000);
        let stored = encode(&text, &EngineSettings::default(), LIMITS);
        assert!(matches!(&stored.data, Some(StoredData::Deflated(bytes)) if bytes.len() < 10_000));
        assert_eq!(decode::<String>(&stored).unwrap(), Some(text));
    }

    // Tests S5.
    #[test]
    fn a_result_is_dropped_if_it_compresses_to_more_than_the_stores_limit() {
        let text = "abcdefghij".repeat(3_000);
        let stored = |limit| {
            encode(&text, &EngineSettings::default(), Limits { max_result_bytes: limit, batch: 1, orders: false })
        };
        let length = stored(400_000).data.unwrap().len();
        assert!(matches!(stored(length).data, Some(StoredData::Deflated(bytes)) if bytes.len() == length));
        assert_eq!(stored(length - 1), StoredResult::DROPPED);
    }

    #[test]
    fn a_result_beyond_the_compression_limit_is_not_compressed() {
        // Two bytes are the quotes.
        let of = |bytes: usize| encode(&"a".repeat(bytes - 2), &EngineSettings::default(), LIMITS);
        assert!(matches!(of(MAX_COMPRESSED_BYTES).data, Some(StoredData::Deflated(_))));
        assert_eq!(of(MAX_COMPRESSED_BYTES + 1), StoredResult::DROPPED);
        let roomy = Limits { max_result_bytes: usize::MAX, batch: 1, orders: false };
        let text = "a".repeat(MAX_COMPRESSED_BYTES);
        assert!(matches!(encode(&text, &EngineSettings::default(), roomy).data, Some(StoredData::Json(_))));
    }

    #[test]
    fn a_result_that_does_not_shrink_is_stored_as_it_is() {
        let mut random = fastrand::Rng::with_seed(3);
        let letters: Vec<char> = std::iter::repeat_with(|| random.char('\u{100000}'..'\u{10ffff}')).take(3).collect();
        let settings = EngineSettings { compress_above: 0, ..EngineSettings::default() };
        assert!(matches!(encode(&letters, &settings, LIMITS).data, Some(StoredData::Json(_))));
        assert!(matches!(encode(&7, &settings, LIMITS).data, Some(StoredData::Json(_))));
    }

    #[test]
    fn a_value_that_json_does_not_represent_is_reported() {
        let stored = encode(&f64::NAN, &EngineSettings::default(), LIMITS);
        assert!(decode::<f64>(&stored).unwrap_err().to_string().contains("does not decode into the type"));
        assert_eq!(round_trip(&Some(None::<u8>)), Some(None));
        assert_eq!(round_trip(&Some(())), Some(None));
        assert_eq!(round_trip(&Some(f64::INFINITY)), Some(None));
    }

    #[test]
    fn a_result_that_is_too_large_is_dropped() {
        let mut random = fastrand::Rng::with_seed(1);
        let text: String = std::iter::repeat_with(|| random.alphanumeric()).take(5_000_000).collect();
        assert_eq!(encode(&text, &EngineSettings::default(), LIMITS), StoredResult::DROPPED);
        assert_eq!(decode::<String>(&StoredResult::DROPPED).unwrap(), None);
    }

    #[test]
    fn a_result_that_is_not_serializable_is_dropped() {
        struct Panics;
        impl Serialize for Panics {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                std::panic::resume_unwind(Box::new(PanicsAgain));
            }
        }
        struct PanicsAgain;
        impl Drop for PanicsAgain {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new("in drop"));
            }
        }
        let map = HashMap::from([((1, 2), 3)]);
        assert_eq!(encode(&map, &EngineSettings::default(), LIMITS), StoredResult::DROPPED);
        assert_eq!(encode(&Panics, &EngineSettings::default(), LIMITS), StoredResult::DROPPED);
    }

    #[test]
    fn a_stored_result_that_no_longer_decodes_is_an_error_without_its_text() {
        let stored = encode(&"secret", &EngineSettings::default(), LIMITS);
        let error = decode::<u32>(&stored).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoredResult);
        assert!(!error.is_retryable());
        assert!(!format!("{error:?}").contains("secret"));
        let broken = StoredResult::of(StoredData::Deflated(vec![7; 9]));
        assert_eq!(decode::<u32>(&broken).unwrap_err().kind(), ErrorKind::StoredResult);
    }

    #[test]
    fn a_panic_while_a_result_is_decoded_is_an_error() {
        #[derive(Debug)]
        struct Panics;
        impl<'de> Deserialize<'de> for Panics {
            fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
                std::panic::resume_unwind(Box::new("in a user's code"));
            }
        }
        let error = decode::<Panics>(&encode(&7, &EngineSettings::default(), LIMITS)).unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::StoredResult, false));
    }

    #[test]
    fn decompression_stops_at_its_limit() {
        let bomb = miniz_oxide::deflate::compress_to_vec(&vec![b'1'; MAX_RESULT_BYTES + 1], 1);
        let stored = StoredResult::of(StoredData::Deflated(bomb));
        assert_eq!(decode::<String>(&stored).unwrap_err().kind(), ErrorKind::StoredResult);
    }
}
