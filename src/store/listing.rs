//! Lists of operations without a recorded success: in progress, lapsed, or failed.
//!
//! ```
//! use lambda_once::{MemoryStore, store::listing::{List, ListRequest, ListedState}};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
//! // For an alarm: operations whose worker has died.
//! let lapsed = MemoryStore::new().list(&ListRequest::new(ListedState::Lapsed)).await?;
//! println!("{} of {} records", lapsed.records.len(), lapsed.read);
//! # Ok(()) }
//! ```

use std::{fmt, sync::Arc, time::Duration};

use super::{Store, rules};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    record::{KeyHash, Record, Status},
};

/// The maximum number of records that one page reads.
pub const MAX_READS: u32 = 1_000;

/// A store whose records an operator can list, for an alarm or before records are [amended](super::amend).
///
/// ```
/// use lambda_once::{
///     Failure, Idempotency, MemoryStore, Outcome,
///     store::listing::{List, ListRequest, ListedState},
/// };
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
/// let store = MemoryStore::new();
/// let once = Idempotency::new(store.clone());
/// let charge = once.operation("charge", "order 7");
/// let declined = charge.run(|| async { Err::<(), _>(Failure::permanent("the card is declined")) }).await?;
/// assert!(matches!(declined, Outcome::Failed(_)));
///
/// let mut request = ListRequest::new(ListedState::Failed);
/// loop {
///     let page = store.list(&request).await?;
///     for found in page.records {
///         println!("{} of {:?} failed at {:?}", found.key, found.record.operation, found.record.settled_at);
///     }
///     let Some(next) = page.next else { break };
///     request.after = Some(next);
/// }
/// # Ok(()) }
/// ```
pub trait List: Store {
    /// Reads up to [`max_reads`](ListRequest::max_reads) records, and returns those that match the request in their
    /// current state, in no particular order. A page may be empty although others follow.
    ///
    /// All pages together contain each record that matches the request throughout the listing. A record that begins or
    /// ceases to match meanwhile may be missing, and a record may appear on two pages. Records in an unreadable format
    /// are left out.
    ///
    /// # Errors
    ///
    /// * [`ErrorKind::Config`], permanent: the records belong to AWS Powertools.
    /// * [`ErrorKind::Request`], permanent: the cursor is not from this store.
    /// * The errors of a read from the store.
    fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>>;
}

macro_rules! forward {
    ($pointer:ident) => {
        impl<S: List + ?Sized> List for $pointer<S> {
            fn list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<Page, Error>> {
                (**self).list(request)
            }
        }
    };
}

forward!(Arc);
forward!(Box);

/// Describes the records to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// The state of the operations.
    pub state: ListedState,
    /// The name of the operations as in logs, or `None` for all.
    pub operation: Option<Arc<str>>,
    /// The minimum time since the last claim of the operation. Zero by default.
    pub older_than: Duration,
    /// The maximum clock difference (see [`ListedState::Lapsed`]). One second by default.
    pub skew_margin: Duration,
    /// The maximum number of records that this page reads, from 1 to [`MAX_READS`], which is the default.
    pub max_reads: u32,
    /// Start of the page: [`Page::next`] of the previous page, or `None` for the first one.
    pub after: Option<Cursor>,
}

impl ListRequest {
    /// Creates a request for the first page of all operations in this state.
    pub const fn new(state: ListedState) -> Self {
        Self {
            state,
            operation: None,
            older_than: Duration::ZERO,
            skew_margin: Duration::from_secs(1),
            max_reads: MAX_READS,
            after: None,
        }
    }

    /// Returns the number of records that the page may read.
    pub fn reads(&self) -> u32 {
        self.max_reads.clamp(1, MAX_READS)
    }

    /// Returns whether a record matches the request at `now`. An expired record counts as absent.
    pub fn includes(&self, record: &Record, now: Timestamp) -> bool {
        let has_lapsed = record.lease_until.is_some_and(|until| rules::has_lapsed(until, self.skew_margin, now));
        let is_in_state = match self.state {
            ListedState::InProgress => record.status == Status::InProgress,
            ListedState::Lapsed => record.status == Status::InProgress && has_lapsed,
            ListedState::Failed => record.status == Status::Failed,
        };
        let is_old = record.claimed_at.is_none_or(|claimed_at| claimed_at <= now.before(self.older_than));
        let is_named = self.operation.is_none() || self.operation == record.operation;
        is_in_state && is_old && is_named && !rules::is_expired(record, now)
    }
}

/// The state of an operation without a recorded success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListedState {
    /// In progress, with a live or a lapsed claim.
    InProgress,
    /// In progress, but its lease and the [margin](ListRequest::skew_margin) have passed without an outcome, or its
    /// claim was handed back. Under [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) only an operator can free
    /// such an operation.
    Lapsed,
    /// Failed permanently.
    Failed,
}

/// The position of a page, as text that a tool can print and read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// Creates a cursor from its text. Only the store that returned it can read it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the error for a cursor that the store cannot read: [`Request`](ErrorKind::Request), permanent.
    pub fn unreadable() -> Error {
        let message = "the cursor is not one of this store: begin with the first page";
        Error::new(ErrorKind::Request, ErrorStatus::Permanent, "list", message)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records that match the request, without the data of their results.
    pub records: Vec<ListedRecord>,
    /// The number of records read to find them. A scan also reads records that do not match.
    pub read: u64,
    /// Start of the next page, or `None` after the last one.
    pub next: Option<Cursor>,
}

/// A record in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRecord {
    /// The operation.
    pub key: KeyHash,
    /// Its record, without the data of its result.
    pub record: Record,
}
