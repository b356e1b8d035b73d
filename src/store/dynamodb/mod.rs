//! Keeps records in a DynamoDB table.
//!
//! ```no_run
//! use lambda_once::store::dynamodb::Config;
//!
//! # async fn init() -> Result<(), lambda_once::Error> {
//! let store = Config::new("payments").key_prefix("charges#").load().await?;
//! # Ok(()) }
//! ```
//!
//! It keeps one item per key, in the layout that AWS Powertools uses, so that one table can serve both:
//!
//! | attribute | type | contents |
//! |---|---|---|
//! | `id` | S | partition key: a prefix and the hash of the key |
//! | `status` | S | `INPROGRESS`, `COMPLETED` or `FAILED` |
//! | `expiration` | N | time at which the record counts as absent, in seconds since the Unix epoch; the table's TTL attribute |
//! | `in_progress_expiration` | N | end of the lease, in milliseconds since the Unix epoch |
//! | `data` | S, B or M | the result: JSON text, the same compressed by DEFLATE, or a map of `codec` (S) and `bytes` (B), as a codec has encoded it |
//! | `validation` | S | the fingerprint of the payload |
//! | `owner` | S | the token of the claim |
//! | `attempt` | N | number of grants of the record |
//! | `prior_status` | S | the status that the last claim replaced; `NONE` for none, or for a claim that had expired |
//! | `result_dropped` | BOOL | whether there was a result that is not stored |
//! | `superseded` | BOOL | whether the handler reported that a newer operation supersedes this one |
//! | `v` | N | the version of this format |
//! | `open` | S | the record's partition in the index for lists; only with [`Config::listing_index`]. A completion removes it, unless its process has no such setting: lists then skip the entry |
//!
//! For one key, a claim is one `UpdateItem` whose condition contains all rules for replacing a record. If it fails, the
//! response contains the item, so no read is needed. A settle is one `UpdateItem` or `DeleteItem` that is conditional
//! on the owner and on INPROGRESS. For several keys together, [`Calls`] sets whether they share requests. Up to 25 keys
//! then take one `BatchExecuteStatement` to claim if all are new, two if the others are completed, three if some are
//! taken over, and one to settle.
//!
//! Permissions needed on the table: `dynamodb:UpdateItem`, `dynamodb:DeleteItem`, `dynamodb:GetItem`,
//! `dynamodb:PartiQLInsert`, `dynamodb:PartiQLSelect`, `dynamodb:PartiQLUpdate`, `dynamodb:PartiQLDelete`.
//! [Lists](crate::store::listing) need `dynamodb:Scan`, and `dynamodb:Query` on the index.

use std::{fmt, sync::Arc};

use super::{
    Answers, BoxFuture, ClaimRequest, Claimed, Database, Limits, RecordFormat, ResultData, SettleRequest, Settled,
    Store, StoreId,
    amend::{Amend, AmendRequest, Amended, ResolveRequest},
    listing::{List, ListRequest, Page},
};
use crate::{
    clock::{Clock, SystemClock},
    error::Error,
    order::{Entity, Mark},
    record::{KeyHash, Record},
};
use aws_sdk_dynamodb::{
    Client,
    config::http::HttpResponse,
    error::{ProvideErrorMetadata, SdkError},
};
use futures_util::future::join;

mod batched;
mod config;
mod error;
#[cfg(any(feature = "ring", feature = "aws-lc"))]
mod http_client;
mod item;
mod listing;
mod mark;
#[cfg(feature = "powertools")]
mod native;
#[cfg(feature = "powertools")]
mod powertools;
mod region;
mod schema;
mod single;
mod table;

use batched::{Fallbacks, Statements};
pub use config::{Calls, Config};
#[cfg(feature = "powertools")]
pub use powertools::Powertools;
use region::Home;
pub use schema::AttributeNames;
use schema::Schema;
pub use single::Writes;
use single::{Expressions, by_entity, side_by_side};

/// Keeps records in a DynamoDB table.
///
/// ```no_run
/// # async fn init() -> Result<(), lambda_once::Error> {
/// use lambda_once::{DynamoDbStore, Idempotency};
///
/// // The table's name is in the environment variable IDEMPOTENCY_TABLE.
/// let once = Idempotency::new(DynamoDbStore::from_env().await?);
/// once.warm_up().await?;
/// # Ok(()) }
/// ```
///
/// Cheap to clone. Clones share the client.
#[derive(Clone)]
pub struct DynamoDbStore {
    client: Client,
    schema: Arc<Schema>,
    expressions: Arc<Expressions>,
    statements: Arc<Statements>,
    fallbacks: Arc<Fallbacks>,
    calls: Calls,
    home: Home,
    /// The endpoint that the environment configures, for errors. `None` for the Region's endpoint, or if unknown.
    endpoint: Option<Arc<str>>,
    clock: Arc<dyn Clock>,
    id: StoreId,
}

impl DynamoDbStore {
    /// Creates a store on `table` with the caller's client.
    ///
    /// The client should have an attempt and an operation timeout, and few attempts, because the SDK's only default
    /// timeout is the one for connecting, and the engine has its own retries. [`Config::sdk_config_with`] sets both as
    /// [`from_env`](Self::from_env) does.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self::from_parts(client, Schema::new(table.into()), Calls::default(), Home::Anywhere)
    }

    /// Creates a store on the table named by the environment variable `IDEMPOTENCY_TABLE`, with a client for the
    /// environment's region, credentials and endpoint. An attempt takes at most 1 s, a call at most 3 s and two
    /// attempts.
    ///
    /// Needs the feature `ring` (default) or `aws-lc`. Without them, build the store with the caller's client, by
    /// [`new`](Self::new) or [`Config::build`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the variable is missing or empty.
    #[cfg(any(feature = "ring", feature = "aws-lc"))]
    pub async fn from_env() -> Result<Self, Error> {
        Config::from_env()?.load().await
    }

    /// Sets the clock, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    fn from_parts(client: Client, schema: Schema, calls: Calls, home: Home) -> Self {
        Self {
            client,
            expressions: Arc::new(Expressions::new(&schema)),
            statements: Arc::new(Statements::new(&schema)),
            schema: Arc::new(schema),
            fallbacks: Arc::default(),
            calls,
            home,
            endpoint: None,
            clock: Arc::new(SystemClock),
            id: StoreId::unique(),
        }
    }

    /// Returns the error of a failed call. If the error is about the table, it names the table.
    fn failed<E>(&self, failure: SdkError<E, HttpResponse>, operation: &'static str) -> Error
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        error::from_sdk(failure, operation, || self.place())
    }

    /// Returns the location of the table, for errors about it.
    #[cold]
    fn place(&self) -> error::Place {
        let mut key = self.schema.key_names().map(str::to_owned);
        error::Place {
            table: self.schema.table.clone(),
            partition_key: key.next().unwrap_or_default(),
            sort_key: key.next(),
            region: self.client.config().region().map(|region| region.as_ref().to_owned()),
            endpoint: self.endpoint.as_deref().map(str::to_owned),
        }
    }

    /// Returns whether a call for this many keys uses batches.
    fn is_batched(&self, keys: usize) -> bool {
        let wanted = match self.calls {
            Calls::Auto => keys > 1,
            Calls::Single => false,
            Calls::Batched => true,
        };
        wanted && !self.fallbacks.are_lasting()
    }
}

/// Returns the results of a call with a request that the records cannot represent, or `None` if it has no such request.
fn refused<'a, Q, A: Send + 'a>(
    requests: &[Q],
    check: impl Fn(&Q) -> Result<(), Error>,
) -> Option<BoxFuture<'a, Answers<A>>> {
    if requests.iter().all(|request| check(request).is_ok()) {
        return None;
    }
    let other = || Error::config("another request of the same call is refused");
    let answers = requests.iter().map(|request| Err(check(request).err().unwrap_or_else(other))).collect();
    Some(Box::pin(std::future::ready(answers)))
}

impl fmt::Debug for DynamoDbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbStore").field("table", &self.schema.table).finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for DynamoDbStore {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        if let Some(refused) = refused(requests, |request| {
            self.home.check()?;
            self.schema.check_claim(request)
        }) {
            return refused;
        }
        // The leases of a call end together, no matter how long its later requests wait.
        let begun = self.clock.now();
        if requests.iter().any(|request| request.order().is_some()) {
            return by_entity(requests, |request| &request.key, move |request| self.claim_one(request, begun));
        }
        if self.is_batched(requests.len()) {
            return Box::pin(self.claim_batched(requests, begun));
        }
        side_by_side(requests, move |request| self.claim_one(request, begun))
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        if let Some(refused) = refused(requests, |request| self.schema.check_settle(request)) {
            return refused;
        }
        if requests.iter().any(|request| request.order().is_some()) {
            return by_entity(requests, |request| &request.key, |request| self.settle_one(request));
        }
        if self.is_batched(requests.len()) {
            return Box::pin(self.settle_batched(requests));
        }
        side_by_side(requests, |request| self.settle_one(request))
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        if self.is_batched(keys.len()) {
            return Box::pin(self.read_batched(keys, data));
        }
        side_by_side(keys, move |key| Box::pin(self.read_one(key, data, "read")))
    }

    fn id(&self) -> StoreId {
        self.id
    }

    fn limits(&self) -> Limits {
        let batch = if self.is_batched(usize::MAX) { batched::MAX_STATEMENTS } else { single::CONCURRENCY };
        // Records of AWS Powertools have no order.
        let orders = self.format() == RecordFormat::Native;
        Limits { max_result_bytes: self.schema.max_result_bytes(), batch, orders }
    }

    fn format(&self) -> RecordFormat {
        #[cfg(feature = "powertools")]
        if let Some(powertools) = &self.schema.powertools {
            return RecordFormat::Powertools(powertools.keys);
        }
        RecordFormat::Native
    }

    fn database(&self) -> Database<'_> {
        Database::new("aws.dynamodb").with_collection(&self.schema.table)
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let key = KeyHash::from_bytes([0; 32]);
            let read = self.read_one(&key, ResultData::Omit, "warm");
            let (read, ()) = join(read, self.home.warn(&self.client, &self.schema.table)).await;
            read.map(drop)
        })
    }
}

impl List for DynamoDbStore {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        Box::pin(self.list_page(request))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Amend for DynamoDbStore {
    fn amend<'a>(&'a self, requests: &'a [AmendRequest]) -> BoxFuture<'a, Answers<Amended>> {
        if requests.iter().any(|request| request.order().is_some()) {
            return by_entity(requests, |request| &request.key, |request| Box::pin(self.amend_one(request)));
        }
        side_by_side(requests, |request| Box::pin(self.amend_one(request)))
    }

    fn marks<'a>(&'a self, entities: &'a [Entity]) -> BoxFuture<'a, Answers<Option<Mark>>> {
        side_by_side(entities, |entity| Box::pin(self.read_mark_of(entity)))
    }

    fn resolve<'a>(&'a self, request: &'a ResolveRequest) -> BoxFuture<'a, Result<Amended<Mark>, Error>> {
        Box::pin(self.resolve_mark(request))
    }
}
