//! The contract between the engine and a store, and the stores themselves.
//!
//! ```no_run
//! use std::sync::Arc;
//! use lambda_once::{CachedStore, DynamoDbStore, Idempotency, MemoryStore, Store};
//!
//! # async fn init() -> Result<(), lambda_once::Error> {
//! // In a test nothing else shares the records.
//! let is_test = std::env::var_os("IN_MEMORY").is_some();
//! let store: Arc<dyn Store> =
//!     if is_test { Arc::new(MemoryStore::new()) } else { Arc::new(CachedStore::new(DynamoDbStore::from_env().await?)) };
//! let once = Idempotency::new(store);
//! # Ok(()) }
//! ```
//!
//! A [`Store`] keeps one [`Record`] per key and changes it only by conditional writes. It does not depend on queues or
//! HTTP. The protocol's rules for claims are in [`rules`], so that every store decides alike. The feature `conformance`
//! has a test suite for stores. `docs/internals/custom-stores.md` lists its limits.
//!
//! # Writing a store
//!
//! The page of [`Store`] opens with a complete store. Before version 1.0 the contract's types may gain fields and
//! variants in any minor version.
//!
//! * Each state change is **one** atomic conditional write that restates the rule it relies on. A prior read is only a
//!   hint. A grant comes from a write that was applied, or from a refusal that shows the caller's own owner token.
//! * Requests carry durations. A store whose server has a clock uses that clock. Any other store takes a
//!   [`Clock`](crate::clock::Clock), and reads it when it has locked or read the record.
//! * Times saturate: a lease may end at `u64::MAX` milliseconds, which does not fit into a signed column.
//! * A failed call that may have been applied is reported as [`Ambiguous`](crate::ErrorStatus::Ambiguous), and one that
//!   was certainly not applied as [`Temporary`](crate::ErrorStatus::Temporary).
//! * Dropping a returned future at any point must be safe. The call then counts as ambiguous.
//! * The engine gives a call three seconds, so the client's own timeouts are shorter. A client that blocks works on a
//!   blocking thread.
//! * An expired record never blocks a claim, whether or not it has been deleted. A claim that
//!   replaces one in progress has no prior status, because it took nothing over, and the attempts continue. A server without a time to live needs a job that deletes expired records and marks.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

pub(crate) use crate::future::BoxFuture;
use crate::{
    error::Error,
    record::{KeyHash, Record},
};

pub mod amend;
#[cfg(feature = "cache")]
pub mod cached;
mod claim;
#[cfg(feature = "conformance")]
pub mod conformance;
mod database;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "conformance")]
pub mod fault;
mod format;
pub mod listing;
pub mod memory;
mod mismatch;
pub mod ordering;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod remote;
pub mod rules;
mod settlement;
pub mod transaction;

pub use claim::{ClaimRequest, Claimed, Grant, Refusal, Takeover};
pub use database::Database;
#[cfg(feature = "powertools")]
pub use format::PowertoolsKeys;
pub use format::RecordFormat;
pub use mismatch::{Mismatch, MismatchState};
pub use settlement::{FinalStatus, SettleRequest, Settled, Settlement};

/// The results of a call, one per request and in the order of the requests.
pub type Answers<T> = Vec<Result<T, Error>>;

/// A place where records are kept.
///
/// This is a complete store for a database whose documents have revisions. It writes a document only if it still has
/// the revision that was read, and so leaves every decision to [`rules`]. It does not support [orders](ordering). The
/// last item runs the conformance suite.
///
/// ```rust,test_harness
/// use std::sync::Arc;
/// use futures_util::future::join_all;
/// use lambda_once::{
///     BoxError, BoxFuture, Error, ErrorKind, ErrorStatus, Store,
///     clock::{Clock, ManualClock, Timestamp},
///     record::{KeyHash, Record},
///     store::{Answers, ClaimRequest, Claimed, Limits, ResultData, SettleRequest, Settled, StoreId, rules::{self, Change}},
/// };
/// # #[cfg(feature = "conformance")]
/// use lambda_once::store::conformance::Subject;
/// # use std::{collections::HashMap, sync::Mutex};
/// # /// A stand-in for the client of the database.
/// # #[derive(Clone, Debug, Default)]
/// # struct Documents(Arc<Mutex<HashMap<String, (u64, Option<String>)>>>);
/// #
/// # impl Documents {
/// #     /// The document, if there is one, and its revision.
/// #     async fn get(&self, id: &str) -> std::io::Result<(Option<String>, u64)> {
/// #         let (revision, text) = self.0.lock().unwrap().get(id).cloned().unwrap_or_default();
/// #         tokio::task::yield_now().await;
/// #         Ok((text, revision))
/// #     }
/// #
/// #     /// Writes or deletes the document if it has this revision. Returns whether it had.
/// #     async fn write_if(&self, id: &str, revision: u64, text: Option<String>) -> std::io::Result<bool> {
/// #         let mut documents = self.0.lock().unwrap();
/// #         let document = documents.entry(id.to_owned()).or_default();
/// #         let is_unchanged = document.0 == revision;
/// #         if is_unchanged {
/// #             *document = (revision + 1, text);
/// #         }
/// #         Ok(is_unchanged)
/// #     }
/// # }
///
/// type Found = Result<Option<Record>, Error>;
///
/// #[derive(Clone, Debug)]
/// struct DocumentStore { documents: Documents, clock: Arc<dyn Clock>, id: StoreId }
///
/// impl DocumentStore {
///     /// The record, or the error if it cannot be read because a newer deployment has written it, and the document's
///     /// revision.
///     async fn get(&self, key: &KeyHash) -> Result<(Found, u64), Error> {
///         let found = self.documents.get(&key.to_hex()).await;
///         let (text, revision) = found.map_err(|error| failed(error, ErrorKind::Unavailable, ErrorStatus::Temporary))?;
///         let record = text.map(|text| serde_json::from_str(&text)).transpose();
///         Ok((record.map_err(|error| failed(error, ErrorKind::Format, ErrorStatus::Temporary)), revision))
///     }
///
///     /// Changes the record by the rule, and decides again if another client has changed it meanwhile.
///     async fn change<T>(
///         &self,
///         key: &KeyHash,
///         rule: impl Fn(Found, Timestamp) -> Result<(Change, T), Error>,
///     ) -> Result<T, Error> {
///         loop {
///             let (record, revision) = self.get(key).await?;
///             let (change, answer) = rule(record, self.clock.now())?;
///             let text = match change {
///                 Change::Keep => return Ok(answer),
///                 Change::Put(record) => Some(serde_json::to_string(&record).expect("a record is JSON")),
///                 Change::Delete => None,
///             };
///             let written = self.documents.write_if(&key.to_hex(), revision, text).await;
///             // It may have been applied although no response arrived.
///             if written.map_err(|error| failed(error, ErrorKind::Unavailable, ErrorStatus::Ambiguous))? {
///                 return Ok(answer);
///             }
///         }
///     }
/// }
///
/// fn failed(error: impl Into<BoxError>, kind: ErrorKind, status: ErrorStatus) -> Error {
///     Error::new(kind, status, "document", "the database has not answered as expected").with_source(error)
/// }
///
/// impl Store for DocumentStore {
///     fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
///         let claim = |claim: &'a ClaimRequest| {
///             self.change(&claim.key, move |record, now| rules::claim(record?.as_ref(), claim, now))
///         };
///         Box::pin(join_all(requests.iter().map(claim)))
///     }
///
///     fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
///         let settle = |settle: &'a SettleRequest| {
///             self.change(&settle.key, move |record, now| rules::settle(record, settle, now))
///         };
///         Box::pin(join_all(requests.iter().map(settle)))
///     }
///
///     fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
///         let read = move |key| async move { Ok(self.get(key).await?.0?.map(|record| data.copy_of(&record))) };
///         Box::pin(join_all(keys.iter().map(read)))
///     }
///
///     fn limits(&self) -> Limits {
///         Limits { max_result_bytes: 1 << 20, batch: 10, orders: false }
///     }
///
///     fn id(&self) -> StoreId {
///         self.id
///     }
///
///     fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
///         Box::pin(async { self.get(&KeyHash::from_bytes([0; 32])).await.map(drop) })
///     }
/// }
///
/// # #[cfg(feature = "conformance")]
/// async fn subject() -> Subject {
///     let clock = ManualClock::at(Timestamp::from_seconds(2_000_000_000));
///     let (documents, id) = (Documents::default(), StoreId::unique());
///     Subject::new(DocumentStore { documents, clock: Arc::new(clock.clone()), id }, clock)
/// }
///
/// # #[cfg(feature = "conformance")]
/// lambda_once::conformance_tests!(subject().await);
/// ```
///
/// Every method takes a batch and returns one result per input, in order. A single operation is a batch of one. The
/// keys of one call are distinct.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Tries to claim each key, by the rules in [`rules::judge`].
    ///
    /// # Errors
    ///
    /// * [`ErrorKind::Format`](crate::ErrorKind::Format), temporary, for a record in an unknown format or beyond
    ///   [`NEWEST_KNOWN_VERSION`](crate::record::NEWEST_KNOWN_VERSION), unless it has expired. Nothing is written.
    /// * [`ErrorKind::Config`](crate::ErrorKind::Config), permanent, for a request with an order if the store keeps
    ///   none.
    /// * The errors of the database. An error of one request does not affect the others.
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>>;

    /// Ends or renews claims. Each change applies only while the record is INPROGRESS under the request's owner. A
    /// change that was already applied is a success.
    ///
    /// The owner settles its record whatever the record's version is. A record in an unknown format is not this
    /// owner's any more, because a newer deployment has claimed the key. So a release or a hand-back is
    /// [`Settled::Done`], and other settles are [`Settled::LeaseLost`], without the record
    /// ([`rules::explain_settle`]).
    ///
    /// # Errors
    ///
    /// The errors of [`claim`](Self::claim), but for records in an unknown format. Their
    /// [operation](Error::operation) is [`Settlement::as_str`].
    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>>;

    /// Reads the current records (consistently), including expired ones, with or without the data of their results.
    /// Returns `None` for a key without a record. A record beyond the known versions is returned if it can be read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`](crate::ErrorKind::Format), temporary, for a record in an unknown format. The errors of the
    /// database.
    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>>;

    /// Returns the limits of the store.
    fn limits(&self) -> Limits;

    /// Returns the identity of the store, which its clones and wrappers share.
    fn id(&self) -> StoreId;

    /// Returns the format of its records, which is native unless the store is made for another format. A wrapper
    /// returns the format of the wrapped store.
    fn format(&self) -> RecordFormat {
        RecordFormat::Native
    }

    /// Returns the database of the store, as it appears in traces. A wrapper returns the wrapped store's.
    fn database(&self) -> Database<'_> {
        Database::new("other")
    }

    /// Opens the connections that the first call needs, so that an invocation need not wait for them. Meant for the
    /// init phase of a function. Changes nothing.
    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>>;
}

macro_rules! forward {
    ($pointer:ident) => {
        #[deny(clippy::missing_trait_methods)]
        impl<S: Store + ?Sized> Store for $pointer<S> {
            fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
                (**self).claim(requests)
            }

            fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
                (**self).settle(requests)
            }

            fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
                (**self).read(keys, data)
            }

            fn limits(&self) -> Limits {
                (**self).limits()
            }

            fn id(&self) -> StoreId {
                (**self).id()
            }

            fn format(&self) -> RecordFormat {
                (**self).format()
            }

            fn database(&self) -> Database<'_> {
                (**self).database()
            }

            fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
                (**self).warm_up()
            }
        }
    };
}

forward!(Arc);
forward!(Box);

/// Distinguishes the stores of one process, so that a transaction of one is not used with another.
///
/// A store draws one when it is created, and keeps it in its clones. Two stores that were created apart may have
/// different ones, even on one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(u64);

impl StoreId {
    /// Returns an id that no other store has.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a result, in bytes as stored. The engine checks it before it writes.
    pub max_result_bytes: usize,
    /// The maximum number of requests that a call handles in one round trip, or simultaneously. A call may contain
    /// more. A batch claims this many of its records at a time. If a call costs one round trip whatever its size, 100
    /// is a good value.
    pub batch: usize,
    /// Whether the store supports the [order](ordering) of entities. Other stores reject requests with an order.
    pub orders: bool,
}

/// The caller's need for the data of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultData {
    /// Records come with the data of their results.
    Include,
    /// Records come without: `result.data` is `None`. A queue acknowledges completed operations without their results,
    /// which may take hundreds of kilobytes.
    Omit,
}

impl ResultData {
    /// Returns a copy of the record, with or without the data of its result.
    pub fn copy_of(self, record: &Record) -> Record {
        match self {
            Self::Include => record.clone(),
            Self::Omit => record.without_data(),
        }
    }
}
