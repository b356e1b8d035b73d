//! The detail of an S3 event from EventBridge.

use serde::Deserialize;

use super::s3_sequencer::sequence;
use crate::order::Sequence;

/// A change of an object, which is the `detail` of an event that S3 has sent to EventBridge. The kind of event, such as
/// `Object Created`, is the attribute `detail-type`.
///
/// ```
/// use lambda_once::batch::envelope::S3Detail;
///
/// let detail: S3Detail = serde_json::from_str(
///     r#"{"version": "0", "bucket": {"name": "photos"}, "object": {"key": "Happy Face!.jpg", "size": 1024},
///         "request-id": "N4N7GDK58NMKJ12R", "requester": "123456789012", "reason": "PutObject"}"#,
/// )?;
/// assert_eq!((&*detail.key, detail.reason.as_deref()), ("Happy Face!.jpg", Some("PutObject")));
/// # Ok::<_, serde_json::Error>(())
/// ```
///
/// [`Key::message_id`](crate::Key::message_id) is the EventBridge id of the event. S3 sends events at least once, and
/// an event that it sends twice may have two ids with the same sequencer. For one operation per event, use
///
/// ```
/// # use lambda_once::Key;
/// let key = Key::composite([
///     Key::attribute("detail-type"),
///     Key::pointer("/bucket/name"),
///     Key::pointer("/object/key"),
///     Key::pointer("/object/sequencer"),
/// ]);
/// ```
///
/// For one operation per content, regardless of the request that wrote it, use bucket, key and `/object/etag` with
/// [`payload(Payload::Ignored)`](crate::batch::BatchService::payload). Only events that create and delete objects have
/// a sequencer. For other events the key above is missing.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html>
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Wire")]
#[non_exhaustive]
pub struct S3Detail {
    /// The name of the bucket.
    pub bucket: String,
    /// The object's key. It is not URL-encoded, unlike in event notifications: `a+b.jpg` is an object of this name.
    pub key: String,
    /// The object's version. `None` in a bucket without versioning.
    pub version_id: Option<String>,
    /// The ETag of the object, or of the delete marker that a deletion left. `None` if the object was permanently
    /// deleted.
    pub etag: Option<String>,
    /// The object's size in bytes. `None` if it was deleted, and in some other events.
    pub size: Option<u64>,
    /// A hexadecimal number that grows with each event of the same key. See [`sequence`](Self::sequence). `None` for
    /// events that neither create nor delete objects.
    pub sequencer: Option<String>,
    /// The id of the request to S3.
    pub request_id: Option<String>,
    /// The id of the account that made the request, or the name of an AWS service.
    pub requester: Option<String>,
    /// The address that the request came from. `None` if S3 acted by itself.
    pub source_ip_address: Option<String>,
    /// The operation that created the object (`PutObject`, `POST Object`, `CopyObject` or `CompleteMultipartUpload`) or
    /// deleted it (`DeleteObject` or `Lifecycle Expiration`).
    pub reason: Option<String>,
    /// The kind of deletion: `Permanently Deleted` or `Delete Marker Created`.
    pub deletion_type: Option<String>,
    /// The time at which the restored copy is deleted, in RFC 3339.
    pub restore_expiry_time: Option<String>,
    /// The storage class that an object is restored from.
    pub source_storage_class: Option<String>,
    /// The storage class that an object was moved to.
    pub destination_storage_class: Option<String>,
    /// The access tier of Intelligent-Tiering that an object was moved to.
    pub destination_access_tier: Option<String>,
}

impl S3Detail {
    /// Returns the event's position among the events of its object, for
    /// [`Operation::ordered_by`](crate::Operation::ordered_by), or `None` without a [`sequencer`](Self::sequencer). In
    /// a batch, [`Key::s3_sequencer`](crate::Key::s3_sequencer) selects it.
    pub fn sequence(&self) -> Option<Sequence> {
        sequence(self.sequencer.as_deref()?)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Wire {
    bucket: Bucket,
    object: Object,
    request_id: Option<String>,
    requester: Option<String>,
    source_ip_address: Option<String>,
    reason: Option<String>,
    deletion_type: Option<String>,
    restore_expiry_time: Option<String>,
    source_storage_class: Option<String>,
    destination_storage_class: Option<String>,
    destination_access_tier: Option<String>,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    key: String,
    version_id: Option<String>,
    etag: Option<String>,
    size: Option<u64>,
    sequencer: Option<String>,
}

impl From<Wire> for S3Detail {
    fn from(wire: Wire) -> Self {
        let Object { key, version_id, etag, size, sequencer } = wire.object;
        Self {
            bucket: wire.bucket.name,
            key,
            version_id,
            etag,
            size,
            sequencer,
            request_id: wire.request_id,
            requester: wire.requester,
            source_ip_address: wire.source_ip_address,
            reason: wire.reason,
            deletion_type: wire.deletion_type,
            restore_expiry_time: wire.restore_expiry_time,
            source_storage_class: wire.source_storage_class,
            destination_storage_class: wire.destination_storage_class,
            destination_access_tier: wire.destination_access_tier,
        }
    }
}
