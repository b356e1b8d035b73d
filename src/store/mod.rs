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
//! * An expired record never blocks a claim, whether or not it has been deleted. While it exists, a claim that replaces
//!   it reports so. After an INPROGRESS record it [took over](Grant::took_over), because the outcome was lost, and the
//!   attempts continue. A server without a time to live needs a job that deletes expired records and marks.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

pub(crate) use crate::future::BoxFuture;
use crate::{
    clock::Timestamp,
    error::Error,
    order::{Order, Sequence},
    record::{Fingerprint, KeyHash, Owner, Record, Status, StoredResult},
};

pub mod amend;
#[cfg(feature = "cache")]
pub mod cached;
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
pub mod transaction;

pub use database::Database;
#[cfg(feature = "powertools")]
pub use format::PowertoolsKeys;
pub use format::RecordFormat;
pub use mismatch::{Mismatch, MismatchState};

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
/// #[derive(Clone, Debug)]
/// struct DocumentStore { documents: Documents, clock: Arc<dyn Clock>, id: StoreId }
///
/// impl DocumentStore {
///     async fn get(&self, key: &KeyHash) -> Result<(Option<Record>, u64), Error> {
///         let found = self.documents.get(&key.to_hex()).await;
///         let (text, revision) = found.map_err(|error| failed(error, ErrorKind::Unavailable, ErrorStatus::Temporary))?;
///         let record = text.map(|text| serde_json::from_str(&text)).transpose();
///         // Otherwise a newer deployment has written it.
///         Ok((record.map_err(|error| failed(error, ErrorKind::Format, ErrorStatus::Temporary))?, revision))
///     }
///
///     /// Changes the record by the rule, and decides again if another client has changed it meanwhile.
///     async fn change<T>(
///         &self,
///         key: &KeyHash,
///         rule: impl Fn(Option<&Record>, Timestamp) -> Result<(Change, T), Error>,
///     ) -> Result<T, Error> {
///         loop {
///             let (record, revision) = self.get(key).await?;
///             let (change, answer) = rule(record.as_ref(), self.clock.now())?;
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
///         let claim = |claim: &'a ClaimRequest| self.change(&claim.key, move |record, now| rules::claim(record, claim, now));
///         Box::pin(join_all(requests.iter().map(claim)))
///     }
///
///     fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
///         let settle = move |settle: &'a SettleRequest| async move {
///             let settled = self.change(&settle.key, |record, now| rules::settle(record, settle, now)).await;
///             // A record in an unknown format is no longer this owner's: its lease is lost.
///             settled.or_else(|error| rules::explain_settle(settle, Err(error)))
///         };
///         Box::pin(join_all(requests.iter().map(settle)))
///     }
///
///     fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
///         let read = move |key| async move { Ok(self.get(key).await?.0.map(|record| data.copy_of(&record))) };
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
    /// owner's any more, because a newer deployment has claimed the key: [`Settled::LeaseLost`], without the record
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

/// The permission to replace a claim whose lease has ended without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// Allowed if the payload is the same, or of a different [version](Fingerprint::payload_version).
    Allowed,
    /// Refused, because the operation may have taken effect.
    Refused,
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

/// A request for the right to run an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The operation.
    pub key: KeyHash,
    /// The fingerprint of its payload, if payloads are compared.
    pub fingerprint: Option<Fingerprint>,
    /// The token of the claim. It is the same in every repetition of this claim, and different in any other claim.
    pub owner: Owner,
    /// The lease of the claim.
    pub lease: Duration,
    /// The maximum clock difference. Others may take over only after the lease and this margin have passed.
    pub skew_margin: Duration,
    /// The minimum time for which the record is kept while in progress. It never expires before the lease and the
    /// margin have passed.
    pub retention: Duration,
    /// Whether an abandoned claim may be taken over.
    pub takeover: Takeover,
    /// Whether a refusal's record contains the data of its result.
    pub result_data: ResultData,
    /// The position of the operation in the order of its entity, if any. A store reads it by [`order()`](Self::order).
    pub order: Option<Order>,
    /// The operation's name as in logs, at most [256 bytes](crate::record::MAX_LABEL_BYTES). It is stored in the
    /// record.
    pub operation: Arc<str>,
    /// The application's label for this operation, as plain text of at most
    /// [`MAX_LABEL_BYTES`](crate::record::MAX_LABEL_BYTES). It is stored in the record.
    pub label: Option<Arc<str>>,
}

impl ClaimRequest {
    /// Returns the position of the operation in the order of its entity. Without the feature `order` this is a constant
    /// `None`, so that the compiler removes a store's code for ordered operations.
    pub const fn order(&self) -> Option<&Order> {
        Order::possible(&self.order)
    }
}

/// The result of a [`ClaimRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The caller may run the operation.
    Granted(Grant),
    /// The caller may not run the operation.
    Refused(Refusal),
}

/// A granted claim, as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The instant at which the holder must have stopped.
    pub lease_until: Timestamp,
    /// The number of grants of the record, including this one.
    pub attempt: u64,
    /// The status that the claim replaced, or `None` if there was no record.
    pub prior_status: Option<Status>,
    /// Whether the mark of an ordered operation's entity was full of operations in doubt, and this claim is the first
    /// for which two of them [merged](ordering). Older operations wait until a newer one completes. A claim that is
    /// sent again may report the merge of an earlier claim.
    pub has_merged_doubt: bool,
}

impl Grant {
    /// Returns whether an earlier claim on the key ended without an outcome, so that the operation may have taken
    /// effect.
    pub fn took_over(&self) -> bool {
        self.prior_status == Some(Status::InProgress)
    }
}

/// The reason why a claim was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The operation is completed. Replay the result in its record. A record from a cache may contain only the fields
    /// that a replay needs: status, fingerprint, expiration and result.
    Completed(Box<Record>),
    /// The operation failed permanently. Replay the failure in its record.
    Failed(Box<Record>),
    /// Another claim is live, on the key or, for an ordered operation, on its entity. Also returned for an operation
    /// that is older than one that may have taken effect.
    InProgress {
        /// End of the live claim's lease. `None` if its record has no lease, or if the operation is older than one that
        /// may have taken effect.
        lease_until: Option<Timestamp>,
        /// The number of grants of the record.
        attempt: u64,
    },
    /// A claim ended without an outcome, and the request's [`Takeover`] forbids replacing it.
    Abandoned {
        /// The number of grants of the record.
        attempt: u64,
    },
    /// The key is used with a different payload.
    Mismatch(Mismatch),
    /// The operation is ordered, and a newer one of its entity has taken effect.
    Superseded {
        /// The greatest completed sequence.
        newest: Sequence,
    },
}

impl Refusal {
    /// Returns the end of the blocking lease, if there is a live claim and its record has a lease.
    pub(crate) fn lease_until(&self) -> Option<Timestamp> {
        match self {
            Self::InProgress { lease_until, .. }
            | Self::Mismatch(Mismatch { state: MismatchState::InProgress { lease_until, .. }, .. }) => *lease_until,
            _ => None,
        }
    }
}

/// A request to end or renew a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleRequest {
    /// The operation.
    pub key: KeyHash,
    /// The token of the claim.
    pub owner: Owner,
    /// The recorded fingerprint of the claim. A store need not write it again, but a wrapper may need it to detect a
    /// misuse of the key.
    pub fingerprint: Option<Fingerprint>,
    /// The change to the claim.
    pub settlement: Settlement,
    /// The order of the claim. A store reads it by [`order()`](Self::order).
    pub order: Option<Order>,
}

impl SettleRequest {
    /// Returns the order of the claim (see [`ClaimRequest::order`]).
    pub const fn order(&self) -> Option<&Order> {
        Order::possible(&self.order)
    }
}

/// The end of a claim, or its renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Records the outcome of the operation.
    Record {
        /// The outcome.
        outcome: FinalStatus,
        /// The result to replay, or the error.
        result: StoredResult,
        /// The time for which the record is kept, from now on.
        retention: Duration,
    },
    /// Deletes the record, so that the operation may run again. If the record shows that its claim took over, it is not
    /// deleted and the lease is lost, because a release that arrives late cannot take that takeover into account.
    Release,
    /// Releases a claim that took over. The record remains INPROGRESS without an owner, and its lease is over, so the
    /// next claim still learns that an outcome was lost.
    HandBack,
    /// Extends the claim by another `lease` from now. A renewal never lowers the lease or the expiration on record, so
    /// a late copy of an older renewal changes nothing. Once the lease and the margin have passed, it is refused
    /// ([`Settled::LeaseLost`]).
    Renew {
        /// The lease of the claim.
        lease: Duration,
        /// See [`ClaimRequest::skew_margin`].
        skew_margin: Duration,
        /// See [`ClaimRequest::retention`].
        retention: Duration,
    },
}

/// The status of a decided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinalStatus {
    /// The operation took effect.
    Completed,
    /// The operation failed permanently.
    Failed,
}

impl From<FinalStatus> for Status {
    fn from(status: FinalStatus) -> Self {
        match status {
            FinalStatus::Completed => Self::Completed,
            FinalStatus::Failed => Self::Failed,
        }
    }
}

impl Settlement {
    /// Creates a settlement that records that the operation took effect.
    pub const fn complete(result: StoredResult, retention: Duration) -> Self {
        Self::Record { outcome: FinalStatus::Completed, result, retention }
    }

    /// Creates a settlement that records that the operation failed permanently.
    pub const fn fail(result: StoredResult, retention: Duration) -> Self {
        Self::Record { outcome: FinalStatus::Failed, result, retention }
    }

    /// Returns whether the operation may run again.
    pub const fn is_release(&self) -> bool {
        matches!(self, Self::Release | Self::HandBack)
    }

    /// Returns whether the operation took effect, and with it the writes of its handler in a transaction.
    pub const fn took_effect(&self) -> bool {
        matches!(
            self,
            Self::Record { outcome: FinalStatus::Completed, result: StoredResult { superseded: false, .. }, .. }
        )
    }

    /// Returns the result to be recorded.
    pub const fn result(&self) -> Option<&StoredResult> {
        match self {
            Self::Record { result, .. } => Some(result),
            _ => None,
        }
    }

    /// Returns the name for errors and logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Record { outcome: FinalStatus::Completed, .. } => "complete",
            Self::Record { outcome: FinalStatus::Failed, .. } => "fail",
            Self::Release | Self::HandBack => "release",
            Self::Renew { .. } => "renew",
        }
    }
}

/// The result of a [`SettleRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The claim has ended as requested.
    Done {
        /// The existing record, if this call changed nothing because the claim had already ended as requested. For a
        /// release it may come without the data of its result. `None` if this call ended the claim, or if nothing was
        /// left to release.
        found: Option<Box<Record>>,
    },
    /// The claim was renewed.
    Renewed {
        /// The recorded lease, at the end of which the holder must have stopped. It may be later than the requested
        /// one.
        lease_until: Timestamp,
    },
    /// The record no longer belongs to this owner. Nothing was written.
    LeaseLost {
        /// The current record, read consistently, or `None` if there was none.
        current: Option<Box<Record>>,
    },
}
