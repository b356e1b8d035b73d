//! DynamoDB streams as a source.
//!
//! ```
//! use lambda_once::{Failure, Key, batch::dynamodb::Change, testing::{self, dynamodb}};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order { order_id: String }
//!
//! async fn index(change: Change<Order>) -> Result<(), Failure> {
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let service = testing::engine().dynamodb_stream(Key::message_id(), index);
//! let batch = dynamodb::batch(["order_id"], [dynamodb::insert(&Order { order_id: "7".into() })]);
//! testing::deliver_twice(&service, &batch).await.assert_once();
//! # }
//! ```

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, de::DeserializeOwned};
use serde_dynamo::Item;
use serde_json::Number;

use super::{
    image::{self, Images},
    stream::{SEQUENCE_NUMBER, StreamOrder, StreamResponse, WindowState, unnamed},
};
use crate::{
    batch::{
        handler::Handler,
        messaging::{Messaging, Trigger},
        raw_json::{keeps_json, listed},
        record::RecordInfo,
        service::BatchService,
        source::{FailureReporting, Source},
    },
    error::{BoxError, Error},
    idempotency::{handle::Idempotency, verdict::Failure},
    key::selector::Key,
};

/// Records of a DynamoDB stream, in the order of their shard.
///
/// A record's id is its `eventID`, which is unique within the stream. Its attributes are `sequenceNumber`, `eventName`
/// and `approximateCreationDateTime` (seconds). The body for keys and payloads is the JSON object
/// `{"Keys": …, "NewImage": …, "OldImage": …}`, in which each attribute value is plain JSON, so that
/// `/NewImage/order_id` is a valid pointer. Binary values are in base64, and sets are arrays.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DynamoDbStream {
    order: StreamOrder,
}

/// A batch of a DynamoDB stream, with or without a tumbling window.
/// <https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html>
#[doc(hidden)]
#[derive(Debug, Deserialize)]
pub struct DynamoDbStreamEvent {
    #[serde(rename = "Records")]
    records: Vec<DynamoDbStreamRecord>,
    #[serde(default)]
    state: Option<WindowState>,
}

/// A record of a `DynamoDbStreamEvent`.
#[doc(hidden)]
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DynamoDbStreamRecord {
    #[serde(rename = "eventID", default)]
    event_id: Option<String>,
    event_name: ChangeKind,
    #[serde(rename = "eventSourceARN", default)]
    stream: Option<String>,
    #[serde(default)]
    user_identity: Option<UserIdentity>,
    dynamodb: Data,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    #[serde(default)]
    keys: Option<Item>,
    #[serde(default)]
    new_image: Option<Item>,
    #[serde(default)]
    old_image: Option<Item>,
    #[serde(default)]
    sequence_number: String,
    #[serde(default)]
    approximate_creation_date_time: Option<Number>,
}

#[derive(Deserialize)]
struct UserIdentity {
    #[serde(rename = "type", alias = "Type", default)]
    kind: String,
    #[serde(rename = "principalId", alias = "PrincipalId", default)]
    principal: String,
}

/// The kind of a change to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum ChangeKind {
    /// The item was created.
    Insert,
    /// The item was updated or replaced.
    Modify,
    /// The item was deleted.
    Remove,
}

/// A change to an item.
///
/// Binary attributes decode as bytes in a type that takes all of those that it names as bytes (`serde_bytes`), and as
/// base64 in any other, such as `serde_json::Value`. A type that needs both is not supported: its bytes may be those of
/// the base64.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Change<T> {
    /// The kind of change.
    pub kind: ChangeKind,
    /// The key of the item. [`serde_dynamo::from_item`] converts it to a custom type.
    pub keys: Item,
    /// The item after the change. `None` if it was deleted, or if the stream contains no new images.
    pub new: Option<T>,
    /// The item before the change. `None` if there was none, or if the stream contains no old images.
    /// [`old`](Self::old) converts it to the handler's type. It is not decoded in advance, because it may have an older
    /// format, and not every handler uses it.
    pub old_image: Option<Item>,
    /// Whether DynamoDB deleted the item because its time to live expired.
    /// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-streams.html>
    pub is_expiry: bool,
}

impl<T> Change<T> {
    /// Creates a change to the item with this key, without images, for tests of a handler.
    pub fn new(kind: ChangeKind, keys: Item) -> Self {
        Self { kind, keys, new: None, old_image: None, is_expiry: false }
    }

    /// Returns the item before the change, in the handler's type.
    ///
    /// # Errors
    ///
    /// A permanent [`Failure`] if the item is not of that type.
    pub fn old(&self) -> Result<Option<T>, Failure>
    where
        T: DeserializeOwned,
    {
        self.old_image.as_ref().map(image::decode).transpose().map_err(Failure::permanent)
    }
}

/// The body of a record.
#[doc(hidden)]
pub struct ChangeBody {
    kind: ChangeKind,
    is_expiry: bool,
    images: Images,
}

/// Shows no item.
impl std::fmt::Debug for ChangeBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeBody").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl ChangeBody {
    fn decode<T: DeserializeOwned>(&self) -> Result<Change<T>, BoxError> {
        Ok(Change {
            kind: self.kind,
            keys: self.images.keys.clone(),
            new: self.images.new.as_ref().map(image::decode).transpose()?,
            old_image: self.images.old.clone(),
            is_expiry: self.is_expiry,
        })
    }
}

impl AsRef<[u8]> for ChangeBody {
    fn as_ref(&self) -> &[u8] {
        self.images.json()
    }
}

/// Shows no item.
impl std::fmt::Debug for DynamoDbStreamRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DynamoDbStreamRecord").field("event_id", &self.event_id).finish_non_exhaustive()
    }
}

impl ChangeKind {
    /// Returns its name in events, such as `INSERT`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Modify => "MODIFY",
            Self::Remove => "REMOVE",
        }
    }
}

impl Source for DynamoDbStream {
    type Event = DynamoDbStreamEvent;
    type Record = DynamoDbStreamRecord;
    /// The state of a tumbling window.
    type Rest = Option<WindowState>;
    type Body = ChangeBody;
    type Response = StreamResponse;

    const OPERATION: &'static str = "dynamodb-stream";
    // Also without an order, because a failure causes redelivery of all records behind it.
    const WAITS_FOR_LEASE: bool = true;
    const REPORTING: FailureReporting = FailureReporting::FirstFailure;

    fn split(&self, event: DynamoDbStreamEvent) -> Result<(Vec<DynamoDbStreamRecord>, Option<WindowState>), Error> {
        if event.records.iter().any(|record| record.dynamodb.sequence_number.is_empty()) {
            return Err(unnamed("a DynamoDB stream"));
        }
        Ok((event.records, event.state))
    }

    fn lane<'a>(&self, record: &'a DynamoDbStreamRecord) -> Option<Cow<'a, str>> {
        let keys = || record.dynamodb.keys.as_ref().map(|keys| image::of_map(keys.inner())).unwrap_or_default();
        self.order.lane(|| Cow::Owned(keys()))
    }

    fn open(&self, record: DynamoDbStreamRecord) -> (RecordInfo, ChangeBody) {
        let DynamoDbStreamRecord { event_id, event_name: kind, stream, user_identity, dynamodb } = record;
        let Data { keys, new_image, old_image, sequence_number, approximate_creation_date_time } = dynamodb;
        let id = event_id.unwrap_or_else(|| sequence_number.clone());
        let mut info = RecordInfo::local(stream, id)
            .with_attribute(SEQUENCE_NUMBER, sequence_number)
            .with_attribute("eventName", kind.as_str());
        if let Some(time) = approximate_creation_date_time {
            info = info.with_attribute("approximateCreationDateTime", time.to_string());
        }
        let is_dynamodb = |user: UserIdentity| user.kind == "Service" && user.principal == "dynamodb.amazonaws.com";
        let is_expiry = kind == ChangeKind::Remove && user_identity.is_some_and(is_dynamodb);
        (info, ChangeBody { kind, is_expiry, images: Images::new(keys.unwrap_or_default(), new_image, old_image) })
    }

    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        Messaging::of("aws.dynamodb_streams", record.source()).with_trigger(Trigger::Datasource)
    }

    fn respond(&self, state: Option<WindowState>, failed: &[Arc<RecordInfo>]) -> Result<StreamResponse, Error> {
        Ok(StreamResponse::new(state, failed))
    }
}

keeps_json!(DynamoDbStream, listed);

impl<H, T, Args> BatchService<DynamoDbStream, H, T, Args> {
    /// Sets the scope in which the order of records is kept. Default: the shard.
    pub fn order(self, order: StreamOrder) -> Self {
        self.map_source(|source| source.order = order)
    }
}

impl Idempotency {
    /// Makes a service for a DynamoDB stream, which runs `handler` for each [`Change`], once per `key`. The images are
    /// decoded by [`serde_dynamo`].
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_runtime::Error> {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::dynamodb::{Change, ChangeKind}};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Order { order_id: String, total_cents: u64 }
    ///
    /// async fn index(change: Change<Order>) -> Result<(), Failure> {
    ///     match (change.kind, change.new) {
    ///         (ChangeKind::Remove, _) => Ok(()),
    ///         (_, Some(order)) => Ok(()),
    ///         (_, None) => Err(Failure::permanent("the stream holds no new images")),
    ///     }
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// lambda_runtime::run(once.dynamodb_stream(Key::message_id(), index)).await
    /// # }
    /// ```
    #[track_caller]
    pub fn dynamodb_stream<H, T, Args>(&self, key: Key, handler: H) -> BatchService<DynamoDbStream, H, Change<T>, Args>
    where
        H: Handler<Change<T>, Args>,
        T: DeserializeOwned + Send + 'static,
    {
        self.batch(DynamoDbStream::default(), key, |_, body| body.decode(), handler)
    }
}
