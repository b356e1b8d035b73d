//! Keeps records in a PostgreSQL table.
//!
//! ```no_run
//! use lambda_once::{Idempotency, store::postgres::Config};
//!
//! # async fn init() -> Result<(), lambda_once::Error> {
//! // `PostgresStore::migrate` has created the tables during deployment.
//! let store = Config::from_url("postgres://once_app@db.example.com/orders")?.pool_size(2).build()?;
//! let once = Idempotency::new(store);
//! # Ok(()) }
//! ```
//!
//! There is one row per key, and in a second table one row per entity of [ordered](crate::Operation::ordered_by)
//! operations. [`PostgresStore::migrate`] creates both tables, and so do the statements in [`PostgresStore::schema`]:
//!
//! ```sql
#![doc = include_str!("schema.sql")]
#![doc = include_str!("schema_marks.sql")]
//! ```
//!
//! A claim is one `INSERT … ON CONFLICT DO UPDATE` for all keys of a call. Its `WHERE` has all the rules by which a record may
//! be replaced, and a `SELECT`, sent right after it on the same connection, shows why the other claims were refused. A settle
//! is one `UPDATE`, one `DELETE`, or both together, conditional on the owner and on INPROGRESS. Each takes one round trip for
//! any number of keys; a refused settle takes a second one. All statements lock rows in the order of their keys, so batches
//! cannot deadlock each other.
//!
//! An ordered request is a transaction that locks its entity's mark and then its record, judges the request, and writes both. It
//! takes two round trips. The ordered requests of a call are handled one after the other.
//!
//! Leases end by the server's clock. Every other statement is a separate transaction at the isolation level READ COMMITTED, the
//! default. At a higher level conflicts are errors, after which the engine retries the claim.
//!
//! The store's statements have no names and change no setting of the session, so PgBouncer in transaction mode and RDS Proxy may
//! send each transaction to a different connection of the server.
//!
//! # Dropped calls
//!
//! Dropping a call closes its connection. The server notices only when it next uses the socket, so a statement that waits for
//! a lock keeps waiting, and may still be applied. Set `client_connection_check_interval` on the role to end it, and
//! `lock_timeout` to keep waits for locks short.

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

mod amend;
mod claim;
mod config;
mod connection;
mod error;
mod listing;
mod maintenance;
mod mark;
mod ordered;
mod read;
mod resolve;
mod rollback;
mod row;
mod settle;
mod state;
mod statements;
mod tls;
mod transaction;
mod url;

pub use config::Config;
pub use error::Violation;
pub use tokio_postgres;
pub use transaction::{IsolationLevel, Transaction};

use connection::Connections;
use statements::Statements;

/// The maximum number of keys in one statement.
const BATCH: usize = 100;

/// The maximum size of a result, in bytes. Larger ones are better kept elsewhere.
const MAX_RESULT_BYTES: usize = 1 << 20;

/// Keeps records in a PostgreSQL table.
///
/// ```no_run
/// # async fn init() -> Result<(), lambda_once::Error> {
/// use lambda_once::{Idempotency, PostgresStore};
///
/// // The URL of the database is in the environment variable POSTGRES_URL.
/// let once = Idempotency::new(PostgresStore::from_env()?);
/// once.warm_up().await?;
/// # Ok(()) }
/// ```
///
/// Cheap to clone. Clones share the connections. A connection belongs to the tokio runtime on which it was opened.
#[derive(Clone)]
pub struct PostgresStore {
    connections: Connections,
    statements: Arc<Statements>,
    scope: Arc<str>,
    /// `None` for the server's clock.
    clock: Option<Arc<dyn Clock>>,
    /// The level of transactions, or `None` for the session's.
    isolation_level: Option<IsolationLevel>,
    id: StoreId,
}

impl PostgresStore {
    /// Creates a store on the table `once_records` in the database whose URL is in the environment variable
    /// `POSTGRES_URL`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the variable is missing, empty or cannot be read.
    pub fn from_env() -> Result<Self, Error> {
        Config::from_env()?.build()
    }

    /// Replaces the server's clock, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Returns the parameter `now` of the statements.
    fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| row::timestamp(clock.now()))
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("scope", &self.scope)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for PostgresStore {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(self.claim_all(requests))
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(self.settle_all(requests))
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(self.read_all(keys, data, "read"))
    }

    fn id(&self) -> StoreId {
        self.id
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: MAX_RESULT_BYTES, batch: BATCH, orders: true }
    }

    fn format(&self) -> RecordFormat {
        RecordFormat::Native
    }

    fn database(&self) -> Database<'_> {
        Database::new("postgresql").with_collection(&self.statements.records)
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.warm_up())
    }
}

impl List for PostgresStore {
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
        Box::pin(self.list_page(request))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Amend for PostgresStore {
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
