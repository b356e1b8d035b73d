//! A record of an S3 event notification.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::s3_sequencer::sequence;
use crate::order::Sequence;

/// A change of an object, which is a record of an event notification of S3.
///
/// ```
/// use lambda_once::batch::envelope::S3Record;
///
/// let record: S3Record = serde_json::from_str(
///     r#"{"eventName": "ObjectCreated:Put", "awsRegion": "eu-west-1", "eventTime": "2026-11-21T10:00:00.111Z",
///         "s3": {"bucket": {"name": "photos"}, "object": {"key": "Happy+Face%21.jpg", "size": 1024}}}"#,
/// )?;
/// assert_eq!(record.key, "Happy Face!.jpg");
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
#[non_exhaustive]
pub struct S3Record {
    /// The kind of event, such as `ObjectCreated:Put`, without the prefix `s3:`.
    pub event_name: String,
    /// The time at which S3 finished the request, in RFC 3339.
    pub event_time: String,
    /// The Region of the bucket.
    pub region: String,
    /// The name of the bucket.
    pub bucket: String,
    /// The object's key, decoded. S3 sends it URL-encoded.
    pub key: String,
    /// The object's version. `None` in a bucket without versioning.
    pub version_id: Option<String>,
    /// The object's ETag. `None` if it was deleted.
    pub etag: Option<String>,
    /// The object's size in bytes. `None` if it was deleted.
    pub size: Option<u64>,
    /// A hexadecimal number that grows with each event of the same key. See [`sequence`](Self::sequence). `None` for
    /// events other than PUTs and DELETEs.
    pub sequencer: Option<String>,
}

impl S3Record {
    /// Returns the event's position among the events of its object, for
    /// [`Operation::ordered_by`](crate::Operation::ordered_by), or `None` without a [`sequencer`](Self::sequencer). In
    /// a batch, [`Key::s3_sequencer`](crate::Key::s3_sequencer) selects it.
    pub fn sequence(&self) -> Option<Sequence> {
        sequence(self.sequencer.as_deref()?)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    event_name: String,
    event_time: String,
    #[serde(default)]
    aws_region: String,
    s3: Entity,
}

#[derive(Deserialize)]
struct Entity {
    bucket: Bucket,
    object: Object,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    key: String,
    version_id: Option<String>,
    e_tag: Option<String>,
    size: Option<u64>,
    sequencer: Option<String>,
}

impl From<Wire> for S3Record {
    fn from(Wire { event_name, event_time, aws_region, s3: Entity { bucket, object } }: Wire) -> Self {
        Self {
            event_name,
            event_time,
            region: aws_region,
            bucket: bucket.name,
            key: decoded_key(&object.key),
            version_id: object.version_id,
            etag: object.e_tag,
            size: object.size,
            sequencer: object.sequencer,
        }
    }
}

/// Decodes an object key, which S3 URL-encodes with `+` for a space. A key that is not UTF-8 stays encoded.
pub(super) fn decoded_key(encoded: &str) -> String {
    let spaced = encoded.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().map_or_else(|_| encoded.to_owned(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of Python's `urllib.parse.unquote_plus`.
    #[test]
    fn a_key_is_decoded() {
        for (encoded, key) in [
            ("Happy%20Face.jpg", "Happy Face.jpg"),
            ("Happy+Face.jpg", "Happy Face.jpg"),
            ("a%2Bb%2bc", "a+b+c"),
            ("100%25", "100%"),
            ("%E6%97%A5%E6%9C%AC/%C3%A9%F0%9F%98%80", "日本/é😀"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("%4+%+41", "%4 % 41"),
            ("a+%FF", "a+%FF"),
            ("", ""),
        ] {
            assert_eq!(decoded_key(encoded), key);
        }
    }
}
