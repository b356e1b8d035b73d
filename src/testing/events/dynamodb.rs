//! Batches of DynamoDB streams.
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
use serde_json::{Value, json, value::RawValue};

use super::parts;
use crate::{
    batch::dynamodb::{ChangeKind, DynamoDbStreamEvent},
    clock::Timestamp,
    testing::{Redeliver, unique},
};

/// A change to an item, before a stream has it.
#[derive(Clone, Debug)]
pub struct Record {
    kind: ChangeKind,
    new: Option<Item>,
    old: Option<Item>,
    is_expiry: bool,
    id: Option<String>,
    sequence_number: Option<String>,
}

/// What a stream holds of the items: its `StreamViewType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum View {
    /// Their keys.
    KeysOnly,
    /// The items after the change.
    NewImage,
    /// The items before the change.
    OldImage,
    /// Both.
    #[default]
    NewAndOldImages,
}

/// A batch of one shard of a stream. Every delivery is the same.
#[derive(Clone, Debug)]
pub struct Batch {
    source: String,
    view: View,
    changed: Timestamp,
    state: Option<Box<RawValue>>,
    /// Each with its keys, and the number that it has in the stream.
    records: Vec<(u64, Item, Record)>,
}

/// An item is put where there was none.
///
/// # Panics
///
/// If it cannot be an item.
pub fn insert<T: Serialize + ?Sized>(new: &T) -> Record {
    Record::new(ChangeKind::Insert, Some(item(new)), None)
}

/// An item is changed.
///
/// # Panics
///
/// If one of them cannot be an item.
pub fn modify<T: Serialize + ?Sized>(old: &T, new: &T) -> Record {
    Record::new(ChangeKind::Modify, Some(item(new)), Some(item(old)))
}

/// An item is deleted.
///
/// # Panics
///
/// If it cannot be an item.
pub fn remove<T: Serialize + ?Sized>(old: &T) -> Record {
    Record::new(ChangeKind::Remove, None, Some(item(old)))
}

/// An item is deleted by DynamoDB, as its time to live is over.
///
/// # Panics
///
/// If it cannot be an item.
pub fn expire<T: Serialize + ?Sized>(old: &T) -> Record {
    Record { is_expiry: true, ..remove(old) }
}

/// Records of a shard, changed now, of a table whose key consists of these attributes. Each that has no id and no sequence
/// number gets one of its own, which follows on the one before.
///
/// # Panics
///
/// If an item lacks an attribute of the key.
pub fn batch<'a>(key: impl IntoIterator<Item = &'a str>, records: impl IntoIterator<Item = Record>) -> Batch {
    let names: Vec<&str> = key.into_iter().collect();
    let keyed = |record: Record| (unique::number(), record.keys(&names), record);
    Batch {
        source: "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2027-01-31T12:00:00.000".to_owned(),
        view: View::default(),
        changed: parts::now(),
        state: None,
        records: records.into_iter().map(keyed).collect(),
    }
}

fn item<T: Serialize + ?Sized>(value: &T) -> Item {
    serde_dynamo::to_item(value).unwrap_or_else(|error| panic!("not an item of DynamoDB: {error}"))
}

impl Record {
    fn new(kind: ChangeKind, new: Option<Item>, old: Option<Item>) -> Self {
        Self { kind, new, old, is_expiry: false, id: None, sequence_number: None }
    }

    /// Its id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Its sequence number.
    #[must_use]
    pub fn sequence_number(mut self, number: impl Into<String>) -> Self {
        self.sequence_number = Some(number.into());
        self
    }

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

    fn wire(&self, batch: &Batch, number: u64, keys: &Item) -> Value {
        let mut data = json!({
            "ApproximateCreationDateTime": batch.changed.seconds_rounded_down(),
            "Keys": keys,
            "SequenceNumber": self.sequence_number.clone().unwrap_or_else(|| format!("{number:021}00")),
            "SizeBytes": 100,
            "StreamViewType": batch.view.as_str(),
        });
        if let Some(new) = self.new.as_ref().filter(|_| batch.view.has_new()) {
            data["NewImage"] = json!(new);
        }
        if let Some(old) = self.old.as_ref().filter(|_| batch.view.has_old()) {
            data["OldImage"] = json!(old);
        }
        let mut record = json!({
            "eventID": self.id.clone().unwrap_or_else(|| format!("{number:032x}")),
            "eventName": self.kind.as_str(),
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "dynamodb": data,
            "eventSourceARN": batch.source,
        });
        if self.is_expiry {
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

impl Batch {
    /// The ARN of the stream.
    #[must_use]
    pub fn source(mut self, arn: impl Into<String>) -> Self {
        self.source = arn.into();
        self
    }

    /// What the stream holds of the items. Default: both images.
    #[must_use]
    pub fn view(mut self, view: View) -> Self {
        self.view = view;
        self
    }

    /// The state of a tumbling window.
    ///
    /// # Panics
    ///
    /// If it cannot be JSON.
    #[must_use]
    pub fn state<T: Serialize + ?Sized>(mut self, state: &T) -> Self {
        self.state = Some(parts::raw(state));
        self
    }
}

impl Redeliver for Batch {
    type Event = DynamoDbStreamEvent;

    fn delivery(&self, _: u32) -> DynamoDbStreamEvent {
        let wire = |(number, keys, record): &(u64, Item, Record)| record.wire(self, *number, keys);
        let records: Vec<Value> = self.records.iter().map(wire).collect();
        parts::stream_event(records, self.state.as_deref(), &self.source)
    }
}
