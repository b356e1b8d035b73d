//! Builds S3 events: notifications for a queue or topic, and EventBridge events.
//!
//! ```
//! # #[cfg(feature = "sqs")] {
//! use lambda_once::testing::{eventbridge, s3, sqs};
//!
//! let photo = s3::created("photos", "2026/Happy Face.jpg").size(1024);
//! let thumbnail = s3::record("ObjectRemoved:Delete", "photos", "thumb.jpg");
//! let batch = sqs::batch([s3::notification([photo, thumbnail]), s3::test_event("photos")]);
//! let event = eventbridge::event(s3::created("photos", "2026/Happy Face.jpg").in_eventbridge());
//! # }
//! ```

use serde_json::Value;
use serde_json::json;

use super::{parts, records};
use crate::testing::unique;

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Record {
    event_name: String,
    event_time: String,
    bucket: String,
    key: String,
    size: Option<u64>,
    etag: Option<String>,
    version_id: Option<String>,
    sequencer: Option<String>,
    request_id: String,
}

/// Makes the event of an object that is put now (`ObjectCreated:Put`).
pub fn created(bucket: impl Into<String>, key: impl Into<String>) -> Record {
    record("ObjectCreated:Put", bucket, key).size(1024).etag("d41d8cd98f00b204e9800998ecf8427e")
}

/// Makes an event of this name, at the current time. The key is not encoded. Events of objects that are created,
/// removed or expire have a unique sequencer. S3 gives other events none.
pub fn record(event_name: impl Into<String>, bucket: impl Into<String>, key: impl Into<String>) -> Record {
    let (number, event_name) = (unique::number(), event_name.into());
    let has_sequencer =
        ["ObjectCreated:", "ObjectRemoved:", "LifecycleExpiration:"].iter().any(|kind| event_name.starts_with(kind));
    Record {
        event_name,
        event_time: parts::rfc3339(parts::now()),
        bucket: bucket.into(),
        key: key.into(),
        size: None,
        etag: None,
        version_id: None,
        sequencer: has_sequencer.then(|| format!("{number:018X}")),
        request_id: format!("{number:016X}"),
    }
}

/// Makes the message that notifies a queue or topic of these events.
pub fn notification(records: impl IntoIterator<Item = Record>) -> records::Record {
    let records: Vec<Value> = records.into_iter().map(|record| record.wire()).collect();
    message(&json!({ "Records": records }))
}

fn message(body: &Value) -> records::Record {
    records::Record { subject: Some("Amazon S3 Notification"), ..records::record(body) }
}

/// Makes the message that S3 sends when notifications of the bucket are configured.
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html>
pub fn test_event(bucket: impl Into<String>) -> records::Record {
    message(&json!({
        "Service": "Amazon S3",
        "Event": "s3:TestEvent",
        "Time": parts::rfc3339(parts::now()),
        "Bucket": bucket.into(),
        "RequestId": format!("{:016X}", unique::number()),
        "HostId": "Uuag1LuByRx9e6j5Onimru9pO4ZVKnJ2Qz7/C1NPcfTWAtRPfTaOFg==",
    }))
}

impl Record {
    /// Sets the object's size in bytes.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = Some(bytes);
        self
    }

    /// Sets the object's ETag.
    #[must_use]
    pub fn etag(mut self, etag: impl Into<String>) -> Self {
        self.etag = Some(etag.into());
        self
    }

    /// Sets the object's version.
    #[must_use]
    pub fn version_id(mut self, version: impl Into<String>) -> Self {
        self.version_id = Some(version.into());
        self
    }

    /// Sets the event's sequencer, or `None` for kinds of events without one.
    #[must_use]
    pub fn sequencer(mut self, sequencer: Option<&str>) -> Self {
        self.sequencer = sequencer.map(str::to_owned);
        self
    }

    /// Sets the id of the request that caused the event. Default: a unique id.
    #[must_use]
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = id.into();
        self
    }

    /// Sets the time of the event, in RFC 3339.
    #[must_use]
    pub fn event_time(mut self, time: impl Into<String>) -> Self {
        self.event_time = time.into();
        self
    }

    /// Makes the detail of the event on EventBridge, for the functions of [`eventbridge`](super::eventbridge).
    ///
    /// # Panics
    ///
    /// If S3 sends no event of this name to EventBridge.
    /// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/EventBridge.html>
    #[must_use]
    pub fn in_eventbridge(&self) -> records::Record {
        let name = &*self.event_name;
        let (detail_type, more) = event_of(name).unwrap_or_else(|| panic!("S3 does not send {name} to EventBridge"));
        let mut object = json!({ "key": self.key });
        for (name, text) in [("etag", &self.etag), ("version-id", &self.version_id), ("sequencer", &self.sequencer)] {
            if let Some(text) = text {
                object[name] = json!(text);
            }
        }
        if let Some(size) = self.size {
            object["size"] = json!(size);
        }
        let mut detail = json!({
            "version": "0",
            "bucket": { "name": self.bucket },
            "object": object,
            "request-id": self.request_id,
            "requester": "123456789012",
            "source-ip-address": "192.0.2.1",
        });
        for (name, text) in more {
            detail[*name] = json!(text);
        }
        records::record(&detail)
            .attribute("source", "aws.s3")
            .attribute("detail-type", detail_type)
            .attribute("time", &self.event_time)
    }

    fn wire(&self) -> Value {
        let mut object = json!({ "key": encoded(&self.key) });
        for (name, text) in [("eTag", &self.etag), ("versionId", &self.version_id), ("sequencer", &self.sequencer)] {
            if let Some(text) = text {
                object[name] = json!(text);
            }
        }
        if let Some(size) = self.size {
            object["size"] = json!(size);
        }
        json!({
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-east-1",
            "eventTime": self.event_time,
            "eventName": self.event_name,
            "userIdentity": { "principalId": "AWS:AIDACKCEVSQ6C2EXAMPLE" },
            "requestParameters": { "sourceIPAddress": "192.0.2.1" },
            "responseElements": { "x-amz-request-id": self.request_id, "x-amz-id-2": "EXAMPLE" },
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": "testing",
                "bucket": {
                    "name": self.bucket,
                    "ownerIdentity": { "principalId": "A3NL1KOZZKExample" },
                    "arn": format!("arn:aws:s3:::{}", self.bucket),
                },
                "object": object,
            },
        })
    }
}

/// Returns the EventBridge detail type of an event of this name, and the fields of its detail besides the object.
fn event_of(name: &str) -> Option<(&'static str, &'static [(&'static str, &'static str)])> {
    Some(match name {
        "ObjectCreated:Put" => ("Object Created", &[("reason", "PutObject")]),
        "ObjectCreated:Post" => ("Object Created", &[("reason", "POST Object")]),
        "ObjectCreated:Copy" => ("Object Created", &[("reason", "CopyObject")]),
        "ObjectCreated:CompleteMultipartUpload" => ("Object Created", &[("reason", "CompleteMultipartUpload")]),
        "ObjectRemoved:Delete" => {
            ("Object Deleted", &[("reason", "DeleteObject"), ("deletion-type", "Permanently Deleted")])
        }
        "ObjectRemoved:DeleteMarkerCreated" => {
            ("Object Deleted", &[("reason", "DeleteObject"), ("deletion-type", "Delete Marker Created")])
        }
        "LifecycleExpiration:Delete" => {
            ("Object Deleted", &[("reason", "Lifecycle Expiration"), ("deletion-type", "Permanently Deleted")])
        }
        "LifecycleExpiration:DeleteMarkerCreated" => {
            ("Object Deleted", &[("reason", "Lifecycle Expiration"), ("deletion-type", "Delete Marker Created")])
        }
        "ObjectRestore:Post" => ("Object Restore Initiated", &[("source-storage-class", "GLACIER")]),
        "ObjectRestore:Completed" => ("Object Restore Completed", &[("source-storage-class", "GLACIER")]),
        "ObjectRestore:Delete" => ("Object Restore Expired", &[]),
        "LifecycleTransition" => ("Object Storage Class Changed", &[("destination-storage-class", "GLACIER")]),
        "IntelligentTiering" => ("Object Access Tier Changed", &[("destination-access-tier", "ARCHIVE_ACCESS")]),
        "ObjectAcl:Put" => ("Object ACL Updated", &[]),
        "ObjectTagging:Put" => ("Object Tags Added", &[]),
        "ObjectTagging:Delete" => ("Object Tags Deleted", &[]),
        _ => return None,
    })
}

/// Encodes a key as S3 does: as in the query of a URL, but with unencoded slashes.
fn encoded(key: &str) -> String {
    let byte = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' | b'/' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    key.bytes().map(byte).collect()
}
