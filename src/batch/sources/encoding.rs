//! Encodings of payloads in events, and of failures in responses.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserializer, Serialize, Serializer, de};

/// Decodes base64 from an event while it is read, so that only the bytes are held.
pub(super) fn base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    deserializer.deserialize_str(Base64)
}

/// Writes the failed items as `batchItemFailures`.
pub(super) fn failures<T: Serialize, S: Serializer>(failed: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Failure<T> {
        item_identifier: T,
    }

    serializer.collect_seq(failed.iter().map(|item_identifier| Failure { item_identifier }))
}

struct Base64;

impl de::Visitor<'_> for Base64 {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes in base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
        // The error contains a character of the payload, so it is omitted.
        BASE64_STANDARD.decode(text).map_err(|_| E::custom("not base64"))
    }
}

/// Equivalent of `base64` for an optional value.
pub(super) fn optional_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    struct Optional;

    impl<'de> de::Visitor<'de> for Optional {
        type Value = Option<Vec<u8>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes in base64, or null")
        }

        fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            base64(deserializer).map(Some)
        }
    }

    deserializer.deserialize_option(Optional)
}
