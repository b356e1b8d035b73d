//! Stored results, as text.

use std::{io::Read, path::Path};

use anyhow::{Context, Result, ensure};
use lambda_once::record::{StoredData, StoredResult};
use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec_with_limit};
use serde::de::IgnoredAny;

/// As in the library. Larger results are compressed, and results over the second limit are not.
const COMPRESS_ABOVE: usize = 4_096;
const MAX_COMPRESSED: usize = 1024 * 1024;
const COMPRESSION_LEVEL: u8 = 6;
/// The maximum size of a decompressed result, in bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Returns the JSON text of a stored result, or the reason that it has none.
///
/// # Errors
///
/// Returns an error if the data is damaged.
pub(crate) fn text(result: &StoredResult) -> Result<Result<String, String>> {
    Ok(match &result.data {
        Some(StoredData::Json(text)) => Ok(text.clone()),
        Some(StoredData::Deflated(bytes)) => {
            let inflated = decompress_to_vec_with_limit(bytes, MAX_BYTES).ok();
            let text = inflated.and_then(|bytes| String::from_utf8(bytes).ok());
            Ok(text.context("the stored result does not decompress")?)
        }
        Some(StoredData::Encoded(data)) => Err(format!("encoded by the codec {}", data.codec())),
        Some(_) => Err("in a form that this version does not know".to_owned()),
        None => Err("not stored".to_owned()),
    })
}

/// Reads the result to record from a JSON file, or from standard input for `-`.
///
/// # Errors
///
/// Returns an error if the file cannot be read, is not JSON, or is larger than the store accepts.
pub(crate) fn from_file(path: &Path, limit: usize) -> Result<StoredResult> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.with_context(|| format!("{} cannot be read", path.display()))?;
    from_text(text.trim(), limit).with_context(|| format!("{} is no result", path.display()))
}

fn from_text(text: &str, limit: usize) -> Result<StoredResult> {
    // Its error contains a position, and does not quote the content.
    serde_json::from_str::<IgnoredAny>(text).context("it is not JSON")?;
    let data = if text.len() > COMPRESS_ABOVE && text.len() <= MAX_COMPRESSED {
        let deflated = compress_to_vec(text.as_bytes(), COMPRESSION_LEVEL);
        if deflated.len() < text.len() { StoredData::Deflated(deflated) } else { StoredData::Json(text.to_owned()) }
    } else {
        StoredData::Json(text.to_owned())
    };
    ensure!(data.len() <= limit, "{} bytes are more than the store's {limit}: use --no-result", data.len());
    Ok(StoredResult::of(data))
}

/// Returns the result of a permanent failure, as the library stores it.
pub(crate) fn failure(text: &str) -> StoredResult {
    StoredResult::of(StoredData::Json(serde_json::json!({ "error": text }).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_kept_as_it_is_written() {
        let json = r#"{"id": 123456789012345678901234567890}"#;
        assert_eq!(text(&from_text(json, 100).unwrap()).unwrap(), Ok(json.to_owned()));
    }

    #[test]
    fn a_long_result_is_compressed_and_read_back() {
        let json = format!("\"{}\"", "a".repeat(10_000));
        let stored = from_text(&json, 1_000).unwrap();
        assert!(matches!(&stored.data, Some(StoredData::Deflated(bytes)) if bytes.len() < 1_000));
        assert_eq!(text(&stored).unwrap(), Ok(json));
    }

    #[test]
    fn invalid_or_oversized_results_are_refused() {
        assert!(from_text("", 100).is_err());
        assert!(from_text("{} {}", 100).is_err());
        assert!(from_text("\"123456789\"", 10).is_err());
    }

    #[test]
    fn damage_is_an_error_and_absence_is_not() {
        assert!(text(&StoredResult::of(StoredData::Deflated(vec![7; 9]))).is_err());
        assert_eq!(text(&StoredResult::DROPPED).unwrap(), Err("not stored".to_owned()));
    }
}
