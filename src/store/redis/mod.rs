//! Keeps records in Redis or Valkey.
//!
//! ```no_run
//! use lambda_once::store::redis::Config;
//!
//! # fn init() -> Result<(), lambda_once::Error> {
//! let store = Config::new("rediss://cache.example.com:6379").key_prefix("payments:").build()?;
//! # Ok(()) }
//! ```
//!
//! It supports Redis 7.0, Valkey 7.2, or later, as one primary or a cluster (feature `redis-cluster`). There is one
//! hash per key, named `once:{HASH}HASH`: the key's hash in hexadecimal digits, whose first half determines the slot.
//! The fields have the names of the attributes in DynamoDB:
//!
//! | field | value |
//! |---|---|
//! | `status` | `INPROGRESS`, `COMPLETED` or `FAILED` |
//! | `expiration` | time at which the record counts as absent and Redis deletes it, in seconds since the Unix epoch |
//! | `in_progress_expiration` | end of the lease, in milliseconds since the Unix epoch |
//! | `data`, `deflated` or `encoded` | the result: JSON text, the same compressed by DEFLATE, or the id of a codec, a space, and the encoded bytes |
//! | `validation` | the fingerprint of the payload |
//! | `owner` | the token of the claim |
//! | `attempt` | number of grants of the record |
//! | `prior_status` | the status that the last claim replaced; `NONE` for none |
//! | `result_dropped` | present if there was a result that is not stored |
//! | `superseded` | present if the handler reported that a newer operation supersedes this one |
//! | `v` | the version of this format |
//!
//! The [mark](crate::order::Mark) of an entity is a hash named `once:{ENTITY}mark`, in the slot of the entity's
//! records, where `ENTITY` is the first half of their keys' hashes. An operation is named by the second half of its
//! key's hash, and sequences have 64 digits. Fields without a value are absent:
//!
//! | field | value |
//! |---|---|
//! | `newest` | the greatest completed sequence |
//! | `owner`, `holder`, `sequence`, `in_progress_expiration` | the claim that holds the entity |
//! | `doubt` | `SEQUENCE OPERATION,` for each operation that may have taken effect |
//! | `expiration`, `v` | as of a record |
//!
//! With [`Config::listing_index`], the sorted set `once:open` contains the names of the records without a success. Its
//! scores are the times at which the records expire.
//!
//! One Lua script makes claims and another settles them, and each has variants for ordered operations and for the index.
//! They apply the rules for changing a record and a mark, and return the existing ones if they refuse. Leases end by the
//! server's clock. On a node a batch is one pipeline, and so one round trip. On a cluster its keys are claimed
//! concurrently.
//!
//! **A failover can lose acknowledged writes, and an eviction loses records**: the operation may then run twice, even
//! simultaneously, and neither run is notified. [`warm_up`](crate::Store::warm_up) warns unless the eviction policy is
//! `noeviction`.

use std::{fmt, sync::Arc};

use super::{
    Answers, BoxFuture, ClaimRequest, Claimed, Database, Limits, RecordFormat, ResultData, SettleRequest, Settled,
    Store, StoreId,
    amend::{Amend, AmendRequest, Amended, ResolveRequest},
    listing::{List, ListRequest, Page},
};
use crate::{
    clock::Clock,
    error::Error,
    order::{Entity, Mark},
    record::{KeyHash, Record},
};

mod answers;
mod arguments;
mod calls;
#[cfg(feature = "redis-cluster")]
mod cluster;
mod config;
mod error;
mod failure;
mod field;
mod link;
mod listing;
mod mark;
mod node;
mod record;
mod resolve;
mod scripts;
mod shared;
mod warm;

pub use config::Config;
use link::Link;

/// The maximum size of a result, in bytes. Redis accepts 512 MB, but serves no other client while it copies a value.
const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// The maximum number of requests in one round trip.
const MAX_BATCH: usize = 100;

/// Keeps records in Redis or Valkey.
///
/// ```no_run
/// # async fn init() -> Result<(), lambda_once::Error> {
/// use lambda_once::{Idempotency, RedisStore};
///
/// // The URL is in the environment variable REDIS_URL.
/// let once = Idempotency::new(RedisStore::from_env()?);
/// once.warm_up().await?;
/// # Ok(()) }
/// ```
///
/// Cheap to clone. Clones share the connection.
#[derive(Clone)]
pub struct RedisStore {
    link: Arc<Link>,
    key_prefix: Arc<str>,
    /// `None` for the server's clock.
    clock: Option<Arc<dyn Clock>>,
    has_listing_index: bool,
    id: StoreId,
}

impl RedisStore {
    /// Creates a store at this URL. See [`Config`] for clusters, passwords that expire, and certificates.
    ///
    /// # Errors
    ///
    /// The errors of [`Config::build`].
    pub fn new(url: impl Into<String>) -> Result<Self, Error> {
        Config::new(url).build()
    }

    /// Creates a store at the URL in the environment variable `REDIS_URL`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the variable is missing or empty, and the errors of
    /// [`Config::build`].
    pub fn from_env() -> Result<Self, Error> {
        Config::from_env()?.build()
    }

    /// Replaces the server's clock, for tests. The server still deletes expired records by its own clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    fn from_parts(link: Link, key_prefix: String, has_listing_index: bool) -> Self {
        let (link, key_prefix) = (Arc::new(link), key_prefix.into());
        Self { link, key_prefix, clock: None, has_listing_index, id: StoreId::unique() }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("link", &self.link)
            .field("key_prefix", &self.key_prefix)
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for RedisStore {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(self.claim_all(requests))
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(self.settle_all(requests))
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(self.read_all(keys, data))
    }

    fn id(&self) -> StoreId {
        self.id
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: MAX_RESULT_BYTES, batch: MAX_BATCH, orders: true }
    }

    fn format(&self) -> RecordFormat {
        RecordFormat::Native
    }

    fn database(&self) -> Database<'_> {
        Database::new("redis")
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.check_server())
    }
}

impl List for RedisStore {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        Box::pin(self.list_page(request))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Amend for RedisStore {
    fn amend<'a>(&'a self, requests: &'a [AmendRequest]) -> BoxFuture<'a, Answers<Amended>> {
        Box::pin(self.amend_all(requests))
    }

    fn marks<'a>(&'a self, entities: &'a [Entity]) -> BoxFuture<'a, Answers<Option<Mark>>> {
        Box::pin(self.read_marks(entities))
    }

    fn resolve<'a>(&'a self, request: &'a ResolveRequest) -> BoxFuture<'a, Result<Amended<Mark>, Error>> {
        Box::pin(self.resolve_mark(request))
    }
}
