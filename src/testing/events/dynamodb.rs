//! Builds batches of DynamoDB streams.
//!
//! ```
//! use lambda_once::testing::dynamodb;
//!
//! #[derive(serde::Serialize)]
//! struct Order { order_id: String, total_cents: u64 }
//!
//! let [before, after] = [995, 1_995].map(|total_cents| Order { order_id: "7".into(), total_cents });
//! let batch = dynamodb::batch(["order_id"], [
//!     dynamodb::insert(&before),
//!     dynamodb::modify(&before, &after),
//!     dynamodb::expire(&after),
//! ]);
//! ```

use serde::Serialize;
use serde_dynamo::Item;
use serde_json::{Value, json};

use super::{
    parts,
    records::{Batch, Head, Known, Record},
};
use crate::{
    batch::dynamodb::{ChangeKind, DynamoDbStreamEvent},
    clock::Timestamp,
    testing::unique,
};

const KNOWN: Known = Known { attributes: &["sequenceNumber"], has_ids: true, has_headers: false };

/// A change to an item.
#[derive(Clone, Debug)]
pub(super) struct Change {
    kind: ChangeKind,
    new: Option<Item>,
    old: Option<Item>,
    is_expiry: bool,
}

/// The images of items in a stream: its `StreamViewType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum View {
    /// The keys of the items.
    KeysOnly,
    /// The items after the change.
    NewImage,
    /// The items before the change.
    OldImage,
    /// The items before and after the change.
    #[default]
    NewAndOldImages,
}

/// Makes the record of an item that is created.
///
/// # Panics
///
/// If it cannot be an item.
pub fn insert<T: Serialize + ?Sized>(new: &T) -> Record {
    record(ChangeKind::Insert, Some(item(new)), None, false)
}

/// Makes the record of an item that is changed.
///
/// # Panics
///
/// If one of them cannot be an item.
pub fn modify<T: Serialize + ?Sized>(old: &T, new: &T) -> Record {
    record(ChangeKind::Modify, Some(item(new)), Some(item(old)), false)
}

/// Makes the record of an item that is deleted.
///
/// # Panics
///
/// If it cannot be an item.
pub fn remove<T: Serialize + ?Sized>(old: &T) -> Record {
    record(ChangeKind::Remove, None, Some(item(old)), false)
}

/// Makes the record of an item that DynamoDB deletes, because its time to live has expired.
///
/// # Panics
///
/// If it cannot be an item.
pub fn expire<T: Serialize + ?Sized>(old: &T) -> Record {
    record(ChangeKind::Remove, None, Some(item(old)), true)
}

fn record(kind: ChangeKind, new: Option<Item>, old: Option<Item>, is_expiry: bool) -> Record {
    Record { change: Some(Box::new(Change { kind, new, old, is_expiry })), ..Record::new(None) }
}

/// Makes a batch of a shard, changed now, of a table whose key consists of these attributes. Each record without an id
/// or `sequenceNumber` gets a unique one, in ascending order. Every delivery is the same.
///
/// # Panics
///
/// If an item lacks an attribute of the key, if an attribute of a record is unknown, or if a record is not from this
/// module.
#[track_caller]
pub fn batch<'a>(
    key: impl IntoIterator<Item = &'a str>,
    records: impl IntoIterator<Item = Record>,
) -> Batch<DynamoDbStreamEvent> {
    let names: Vec<&str> = key.into_iter().collect();
    let changed = parts::now();
    let mut numbered = Vec::new();
    // Each record with its keys, and its number in the stream.
    for record in records {
        let record = record.with_known(KNOWN);
        let keys = record.change().keys(&names);
        numbered.push((unique::number(), keys, record));
    }
    let stream = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2027-01-31T12:00:00.000";
    Batch::new(stream, move |head, _| {
        let wire = |(number, keys, record): &(u64, Item, Record)| record.change_of(head, changed, *number, keys);
        parts::stream_event(numbered.iter().map(wire).collect(), head.state.as_deref(), &head.source)
    })
}

fn item<T: Serialize + ?Sized>(value: &T) -> Item {
    serde_dynamo::to_item(value).unwrap_or_else(|error| panic!("not an item of DynamoDB: {error}"))
}

impl Change {
    fn keys(&self, names: &[&str]) -> Item {
        let image = self.new.as_ref().or(self.old.as_ref());
        let mut keys = Item::default();
        for name in names {
            let value = image.and_then(|image| image.get(*name));
            let value = value.unwrap_or_else(|| panic!("an item lacks `{name}`, which is a part of its key"));
            keys.insert((*name).to_owned(), value.clone());
        }
        keys
    }
}

impl Record {
    fn change(&self) -> &Change {
        self.change
            .as_deref()
            .unwrap_or_else(|| panic!("a record of a DynamoDB stream is made by `insert`, `modify`, …"))
    }

    fn change_of(&self, head: &Head, changed: Timestamp, number: u64, keys: &Item) -> Value {
        let change = self.change();
        let drawn = || format!("{number:021}00");
        let mut data = json!({
            "ApproximateCreationDateTime": changed.seconds_rounded_down(),
            "Keys": keys,
            "SequenceNumber": self.found("sequenceNumber").map_or_else(drawn, str::to_owned),
            "SizeBytes": 100,
            "StreamViewType": head.view.as_str(),
        });
        if let Some(new) = change.new.as_ref().filter(|_| head.view.has_new()) {
            data["NewImage"] = json!(new);
        }
        if let Some(old) = change.old.as_ref().filter(|_| head.view.has_old()) {
            data["OldImage"] = json!(old);
        }
        let mut record = json!({
            "eventID": self.id.clone().unwrap_or_else(|| format!("{number:032x}")),
            "eventName": change.kind.as_str(),
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "dynamodb": data,
            "eventSourceARN": head.source,
        });
        if change.is_expiry {
            record["userIdentity"] = json!({ "principalId": "dynamodb.amazonaws.com", "type": "Service" });
        }
        record
    }
}

impl View {
    const fn as_str(self) -> &'static str {
        match self {
            Self::KeysOnly => "KEYS_ONLY",
            Self::NewImage => "NEW_IMAGE",
            Self::OldImage => "OLD_IMAGE",
            Self::NewAndOldImages => "NEW_AND_OLD_IMAGES",
        }
    }

    const fn has_new(self) -> bool {
        matches!(self, Self::NewImage | Self::NewAndOldImages)
    }

    const fn has_old(self) -> bool {
        matches!(self, Self::OldImage | Self::NewAndOldImages)
    }
}

impl Batch<DynamoDbStreamEvent> {
    /// Sets the images in the stream. Default: both.
    #[must_use]
    pub fn view(mut self, view: View) -> Self {
        self.head.view = view;
        self
    }

    /// Sets the state of a tumbling window.
    ///
    /// # Panics
    ///
    /// If it cannot be serialized as JSON.
    #[must_use]
    pub fn state<T: Serialize + ?Sized>(self, state: &T) -> Self {
        self.with_state(state)
    }
}
