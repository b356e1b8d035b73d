//! Stored results, as text.

use anyhow::{Context, Result};
use lambda_once::record::{StoredData, StoredResult};
use miniz_oxide::inflate::decompress_to_vec_with_limit;

/// The most that a stored result grows to.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The JSON text of a stored result, or why there is none.
///
/// # Errors
///
/// Data that is damaged.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let json = r#"{"id": 123456789012345678901234567890}"#;
        assert_eq!(text(&StoredResult::of(StoredData::Json(json.to_owned()))).unwrap(), Ok(json.to_owned()));
        let deflated = miniz_oxide::deflate::compress_to_vec(json.as_bytes(), 6);
        assert_eq!(text(&StoredResult::of(StoredData::Deflated(deflated))).unwrap(), Ok(json.to_owned()));
    }

    #[test]
    fn damage_is_an_error_and_absence_is_not() {
        assert!(text(&StoredResult::of(StoredData::Deflated(vec![7; 9]))).is_err());
        assert_eq!(text(&StoredResult::DROPPED).unwrap(), Err("not stored".to_owned()));
    }
}
