//! Lists of operations that have no success on record: those in progress, those that nobody runs any more, and failures.

use std::{fmt, sync::Arc, time::Duration};

use super::{Store, rules};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    record::{KeyHash, Record, Status},
};

/// The most records that one page reads.
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
    /// Reads up to [`max_reads`](ListRequest::max_reads) records, and returns those that the request describes, as they are now, in
    /// no particular order. A page may be empty although others follow.
    ///
    /// All pages together contain each record that fits the request from the first page to the last. One that begins or ceases to
    /// fit meanwhile may be missing, and one that is on two pages is possible. Records in a format that cannot be read are left out.
    ///
    /// # Errors
    ///
    /// * [`ErrorKind::Config`], permanent: the records are those of AWS Powertools.
    /// * [`ErrorKind::Request`], permanent: the cursor is not one of this store.
    /// * Those of a read of the store.
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
    /// The name of the operations, as logs show it; `None` for all.
    pub operation: Option<Arc<str>>,
    /// The minimum time since the operation was claimed last. Zero by default.
    pub older_than: Duration,
    /// The maximum clock difference: see [`ListedState::Lapsed`]. One second by default.
    pub skew_margin: Duration,
    /// The most records that this page reads, at least 1 and at most [`MAX_READS`], which is the default.
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

    /// Returns whether a record fits the request at `now`. A record that has expired counts as absent.
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

/// The state of an operation without a success on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListedState {
    /// In progress, whether its claim stands or has lapsed.
    InProgress,
    /// In progress, but its lease and the [margin](ListRequest::skew_margin) have passed without an outcome, or its claim was handed
    /// back. Under [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) only an operator frees such an operation.
    Lapsed,
    /// Failed permanently.
    Failed,
}

/// The place of a page. It is text, so that a tool can print it and take it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(String);

impl Cursor {
    /// Creates a cursor from its text, which only the store that has returned it understands.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the error for a cursor that the store cannot read: of the kind [`Request`](ErrorKind::Request), permanent.
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
    /// The records that fit the request, without the data of their results.
    pub records: Vec<ListedRecord>,
    /// The number of records that were read to find them. A scan also reads those that do not fit.
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
