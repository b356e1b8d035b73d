//! The contract between the engine and a store, and the stores themselves.
//!
//! A [`Store`] keeps one [`Record`] a key and changes it by conditional writes alone. It knows nothing of queues or of
//! HTTP. The protocol's rules for who may claim are in [`rules`], so that every store decides alike; the suite in
//! `conformance` (a feature) holds a store to the whole contract.
//!
//! # Writing a store
//!
//! The page of [`Store`] opens with a complete one. Before version 1.0 the contract's types may gain fields and variants in any
//! minor version.
//!
//! * Each state change is **one** atomic conditional write that restates the rule it relies on. A read before it is only
//!   evidence. A grant comes from a write that was applied, or from a refusal that shows the caller's own owner token.
//! * Requests carry durations: a store whose server has a clock uses that one.
//! * A call that may have been applied although it failed is reported as
//!   [`Ambiguous`](crate::ErrorStatus::Ambiguous), one that was certainly not as
//!   [`Temporary`](crate::ErrorStatus::Temporary).
//! * Dropping a returned future at any point must be safe. What it was doing then counts as ambiguous.
//! * A record that has expired stands in nobody's way, whether or not it has been deleted. While it is there, a claim over it
//!   says so: one over an INPROGRESS record [took over](Grant::took_over), since its outcome was lost, and counts the attempts
//!   on.

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

/// One answer for each request of a call, in the order of the requests.
pub type Answers<T> = Vec<Result<T, Error>>;

/// Where records are kept.
///
/// A complete store, of a database whose documents have revisions. It writes a document if that has the revision that was read,
/// and so leaves every decision to [`rules`]. It keeps no [order](ordering). The last item runs the conformance suite.
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
/// #     /// Writes or deletes the document if it has this revision. Whether it had.
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
///     /// Changes the record by the rule, and decides anew if somebody else has changed it meanwhile.
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
///             // It may have been applied although nothing was answered.
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
///         let settle = |settle: &'a SettleRequest| self.change(&settle.key, move |record, now| rules::settle(record, settle, now));
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
/// Every method takes a batch and gives one answer per input, in order; a single operation is a batch of one. The keys
/// of one call are distinct.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Tries to claim each key, by the rules in [`rules::judge`].
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>>;

    /// Ends or renews claims. Each change applies only while the record is INPROGRESS under the request's owner; a
    /// change that is found to have been applied already is a success.
    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>>;

    /// Reads records as they are now (consistently), expired ones included, with the data of their results or without.
    /// `None` where there is none.
    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>>;

    /// What the store can take.
    fn limits(&self) -> Limits;

    /// Which store this is: the same for clones of it, and for a wrapper as for what it wraps.
    fn id(&self) -> StoreId;

    /// Which records it writes: the library's own, unless the store is made for others. A wrapper says what the wrapped store
    /// says.
    fn format(&self) -> RecordFormat {
        RecordFormat::Native
    }

    /// The database that it is in, as traces name it. A wrapper says what the wrapped store says.
    fn database(&self) -> Database<'_> {
        Database::new("other")
    }

    /// Opens the connections that the first call would have to open, so that an invocation need not wait for them.
    /// Meant for the init phase of a function; it changes nothing.
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

/// Tells stores of one process apart.
///
/// A store draws one when it is made, and keeps it in its clones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(u64);

impl StoreId {
    /// An id that no other store has.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a store can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest result, in bytes as stored. The engine checks it before it writes.
    pub max_result_bytes: usize,
    /// The largest number of requests that a call handles in one round trip, or side by side. A call may hold more.
    pub batch: usize,
    /// Whether it keeps the [order](ordering) of entities. One that does not refuses requests with an order.
    pub orders: bool,
}

/// Whether a claim may replace one whose lease has ended without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// It may, if the payload is the same, or of another [version](Fingerprint::payload_version).
    Allowed,
    /// It may not: nobody knows whether the operation took effect.
    Refused,
}

/// Whether a caller decodes results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultData {
    /// Records come with the data of their results.
    Include,
    /// Records come without: `result.data` is `None`. A queue acknowledges what is done without its result, which may have
    /// hundreds of kilobytes.
    Omit,
}

impl ResultData {
    /// A copy of the record, with the data of its result or without.
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
    /// Its payload, if payloads are to be compared.
    pub fingerprint: Option<Fingerprint>,
    /// The claim's own token. The same in every repetition of this claim, and in no other.
    pub owner: Owner,
    /// How long the claim stands.
    pub lease: Duration,
    /// How far clocks may differ; a lease is over for others only when this has passed as well.
    pub skew_margin: Duration,
    /// How long the record stays while in progress, at the least. It never ends before the lease and the margin.
    pub retention: Duration,
    /// Whether an abandoned claim may be taken over.
    pub takeover: Takeover,
    /// Whether a refusal's record comes with the data of its result.
    pub result_data: ResultData,
    /// Where the operation stands in the order of its entity, if it has one. A store reads it by [`order()`](Self::order).
    pub order: Option<Order>,
    /// The operation's name, as logs have it: at most [256 bytes](crate::record::MAX_LABEL_BYTES). The record says it.
    pub operation: Arc<str>,
    /// The application's label for this operation: plain text of at most [256 bytes](crate::record::MAX_LABEL_BYTES), which the record
    /// stores.
    pub label: Option<Arc<str>>,
}

impl ClaimRequest {
    /// Returns where the operation stands in the order of its entity. Without the feature `order` that is a constant `None`, so
    /// that the compiler leaves out a store's code for ordered operations.
    pub const fn order(&self) -> Option<&Order> {
        Order::possible(&self.order)
    }
}

/// The answer to a [`ClaimRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The caller may run the operation.
    Granted(Grant),
    /// The caller may not.
    Refused(Refusal),
}

/// What a granted claim says of itself, as the record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// When the holder must have stopped.
    pub lease_until: Timestamp,
    /// How often the record has been granted, this grant included.
    pub attempt: u64,
    /// The status that the claim replaced; `None` if there was no record.
    pub prior_status: Option<Status>,
    /// Whether the mark of an ordered operation's entity was full of operations in doubt, and this claim is the first for which
    /// two of them [merged](ordering). Older operations wait until a newer one completes. A claim that is sent again may say
    /// it of an earlier one.
    pub has_merged_doubt: bool,
}

impl Grant {
    /// Whether an earlier claim on the key ended without an outcome, so that the operation may have taken effect.
    pub fn took_over(&self) -> bool {
        self.prior_status == Some(Status::InProgress)
    }
}

/// Why a claim was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The operation is done: replay the result in its record. A cache may know no more of the record than a replay
    /// needs: status, fingerprint, expiration and result.
    Completed(Box<Record>),
    /// The operation failed for good: replay the failure in its record.
    Failed(Box<Record>),
    /// Another claim stands until `lease_until`, on the key or, of an ordered operation, on its entity. `None` if its record
    /// says no lease, and where the operation is older than one that may have taken effect.
    InProgress {
        /// When the standing claim's lease ends.
        lease_until: Option<Timestamp>,
        /// How often the record has been granted.
        attempt: u64,
    },
    /// A claim ended without an outcome, and the request's [`Takeover`] forbids to replace it.
    Abandoned {
        /// How often the record has been granted.
        attempt: u64,
    },
    /// The key is used with another payload.
    Mismatch(Mismatch),
    /// The operation is in an order, and a newer one of its entity has taken effect.
    Superseded {
        /// The greatest sequence that was completed.
        newest: Sequence,
    },
}

impl Refusal {
    /// The end of the lease in the way, if a claim stands and its record has one.
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
    /// The fingerprint that the claim has on record. A store need not write it again; a wrapper may need it to tell a
    /// misuse of the key.
    pub fingerprint: Option<Fingerprint>,
    /// What becomes of it.
    pub settlement: Settlement,
    /// The order that the claim had. A store reads it by [`order()`](Self::order).
    pub order: Option<Order>,
}

impl SettleRequest {
    /// Returns the order that the claim had: see [`ClaimRequest::order`].
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
        /// How long the record stays, from now on.
        retention: Duration,
    },
    /// Deletes the record, so that the operation may run again. A record whose own claim took over is not deleted: the lease is
    /// lost. A release that arrives late cannot know of that.
    Release,
    /// Releases a claim that took over: the record stays INPROGRESS without an owner, and its lease is over. So the next claim
    /// still learns that an outcome was lost.
    HandBack,
    /// Extends the claim by another `lease` from now. A renewal never lowers the lease or the expiration on record: a
    /// late copy of an older renewal changes nothing. Once the lease and the margin have passed it is refused
    /// ([`Settled::LeaseLost`]).
    Renew {
        /// How long the claim stands.
        lease: Duration,
        /// See [`ClaimRequest::skew_margin`].
        skew_margin: Duration,
        /// See [`ClaimRequest::retention`].
        retention: Duration,
    },
}

/// The status of a record whose operation is decided.
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
    /// Records that the operation took effect.
    pub const fn complete(result: StoredResult, retention: Duration) -> Self {
        Self::Record { outcome: FinalStatus::Completed, result, retention }
    }

    /// Records that the operation failed permanently.
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

/// The answer to a [`SettleRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The claim has ended as asked.
    Done {
        /// The record that was found where this call changed nothing, because the claim had ended as asked before; for a
        /// release it may come without the data of its result. `None` if this call ended it, or nothing was left to release.
        found: Option<Box<Record>>,
    },
    /// The claim stands until then.
    Renewed {
        /// The lease on record, which may be later than the one that was asked for: when the holder must have stopped.
        lease_until: Timestamp,
    },
    /// The record is no longer this owner's to change. Nothing was written.
    LeaseLost {
        /// The record that was found instead, read consistently; `None` if there was none.
        current: Option<Box<Record>>,
    },
}
