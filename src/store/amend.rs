//! Amendments, with which an operator changes records that no claim will change any more, and ends doubt in the order
//! of an entity.
//!
//! ```
//! use lambda_once::{
//!     MemoryStore,
//!     store::{amend::{Amend, AmendRequest, Amendment}, listing::{List, ListRequest, ListedState}},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
//! // The next delivery may run the operations of this page whose worker has died. Their effects were looked up.
//! let store = MemoryStore::new();
//! let lapsed = store.list(&ListRequest::new(ListedState::Lapsed)).await?;
//! for found in &lapsed.records {
//!     let release = AmendRequest::new(found.key, &found.record, Amendment::Release);
//!     println!("{:?}", store.amend(&[release]).await.remove(0)?);
//! }
//! # Ok(()) }
//! ```

use std::{future::ready, sync::Arc, time::Duration};

use super::{Answers, FinalStatus, Store};
use crate::{
    error::Error,
    future::BoxFuture,
    order::{Entity, Mark, Order, Sequence},
    record::{KeyHash, Owner, Record, Status, StoredResult},
};

/// A store whose records an operator can amend, for example after looking up the effect of an operation whose claim
/// lapsed, or to remove personal data. A store that keeps an [order](super::ordering) also implements the methods that
/// concern marks.
///
/// ```
/// use std::time::Duration;
/// use lambda_once::{
///     Failure, Idempotency, MemoryStore, Outcome, Store,
///     store::{ResultData, amend::{Amend, AmendRequest, Amended, Amendment}},
/// };
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
/// let store = MemoryStore::new();
/// let once = Idempotency::new(store.clone());
/// let open = || once.operation("open", "account 7").run(|| async { Ok::<_, Failure>("DE02 1203 0000".to_owned()) });
/// assert!(matches!(open().await?, Outcome::Executed(_)));
///
/// let key = once.key_hash("open", "account 7")?;
/// let record = store.read(&[key], ResultData::Omit).await.remove(0)?.expect("it was recorded");
/// let redact = AmendRequest::new(key, &record, Amendment::Redact);
/// assert_eq!(store.amend(&[redact]).await.remove(0)?, Amended::Changed);
/// assert!(matches!(open().await?, Outcome::ReplayedWithoutResult));
/// # Ok(()) }
/// ```
pub trait Amend: Store {
    /// Amends each record by one conditional write, by the rules in [`rules::amend`](super::rules::amend). Returns one
    /// result per request, in order. The keys of one call are distinct.
    ///
    /// # Errors
    ///
    /// * [`ErrorKind::Request`](crate::ErrorKind::Request), permanent: the amendment does not apply to the status that was read.
    /// * [`ErrorKind::Order`](crate::ErrorKind::Order), permanent: [`Amendment::Settle`] of an ordered operation, without the feature
    ///   `order`.
    /// * [`ErrorKind::Config`](crate::ErrorKind::Config), permanent: the records belong to AWS Powertools.
    /// * [`ErrorKind::Format`](crate::ErrorKind::Format), temporary: a newer version has written the record.
    /// * The errors of a write to the store.
    fn amend<'a>(&'a self, requests: &'a [AmendRequest]) -> BoxFuture<'a, Answers<Amended>>;

    /// Reads the marks of entities consistently. Returns one result per entity, in order, and `None` for one without a
    /// mark. A mark that has [expired](Mark::expiration) may still exist, and counts as absent.
    ///
    /// # Errors
    ///
    /// * [`ErrorKind::Config`](crate::ErrorKind::Config), permanent: the store keeps no order.
    /// * [`ErrorKind::Format`](crate::ErrorKind::Format), temporary: the mark cannot be read, and has not expired. A
    ///   mark beyond the known versions is returned if it can be read.
    /// * The errors of a read from the store.
    fn marks<'a>(&'a self, entities: &'a [Entity]) -> BoxFuture<'a, Answers<Option<Mark>>> {
        Box::pin(ready(entities.iter().map(|_| Err(no_order())).collect()))
    }

    /// Ends the doubt of operations in the order of an entity by one conditional write, by the rules in
    /// [`ordering::resolve`](super::ordering::resolve). Records stay unchanged. Operations that have a lapsed record
    /// are better [settled](Amendment::Settle), which ends their doubt, too.
    ///
    /// # Errors
    ///
    /// * [`ErrorKind::Request`](crate::ErrorKind::Request), permanent: no operation of the mark that was read is in doubt at a
    ///   sequence of the request.
    /// * [`ErrorKind::Order`](crate::ErrorKind::Order), permanent: the feature `order` is not enabled.
    /// * [`ErrorKind::Config`](crate::ErrorKind::Config), permanent: the store keeps no order.
    /// * [`ErrorKind::Format`](crate::ErrorKind::Format), temporary: a newer version has written the mark.
    /// * The errors of a write to the store.
    fn resolve<'a>(&'a self, _request: &'a ResolveRequest) -> BoxFuture<'a, Result<Amended<Mark>, Error>> {
        Box::pin(ready(Err(no_order())))
    }
}

fn no_order() -> Error {
    Error::config("the store keeps no order, and so no marks of entities")
}

macro_rules! forward {
    ($pointer:ident) => {
        #[deny(clippy::missing_trait_methods)]
        impl<S: Amend + ?Sized> Amend for $pointer<S> {
            fn amend<'a>(&'a self, requests: &'a [AmendRequest]) -> BoxFuture<'a, Answers<Amended>> {
                (**self).amend(requests)
            }

            fn marks<'a>(&'a self, entities: &'a [Entity]) -> BoxFuture<'a, Answers<Option<Mark>>> {
                (**self).marks(entities)
            }

            fn resolve<'a>(&'a self, request: &'a ResolveRequest) -> BoxFuture<'a, Result<Amended<Mark>, Error>> {
                (**self).resolve(request)
            }
        }
    };
}

forward!(Arc);
forward!(Box);

/// A request to amend a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmendRequest {
    /// The operation.
    pub key: KeyHash,
    /// The record that was read. A record that has changed since is left unchanged.
    pub read: AsRead,
    /// The maximum clock difference. A claim has lapsed when its lease and this margin have passed. One second by default.
    pub skew_margin: Duration,
    /// The change to make.
    pub amendment: Amendment,
}

impl AmendRequest {
    /// Creates a request to amend the record that was read, with a margin of one second.
    pub fn new(key: KeyHash, record: &Record, amendment: Amendment) -> Self {
        Self { key, read: AsRead::of(record), skew_margin: Duration::from_secs(1), amendment }
    }

    /// Returns the order of a [`Settle`](Amendment::Settle), which comes from the record that was read, if it has a
    /// sequence. The mark of the entity is written together with the record, and is kept for the retention of the
    /// outcome.
    pub fn order(&self) -> Option<Order> {
        match (&self.amendment, self.read.sequence) {
            (Amendment::Settle { retention, .. }, Some(sequence)) => {
                Order::possible(&Some(Order { sequence, retention: *retention })).copied()
            }
            _ => None,
        }
    }
}

/// Identifies one state of a record. Every write that changes the state changes one of these fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsRead {
    /// The status.
    pub status: Status,
    /// The token of the last claim, if any.
    pub owner: Option<Owner>,
    /// The number of grants.
    pub attempt: u64,
    /// Whether the operation was superseded.
    pub superseded: bool,
    /// The sequence of an ordered operation.
    pub sequence: Option<Sequence>,
}

impl AsRead {
    /// Returns the identity of this record's state.
    pub const fn of(record: &Record) -> Self {
        Self {
            status: record.status,
            owner: record.owner,
            attempt: record.attempt,
            superseded: record.result.superseded,
            sequence: record.sequence,
        }
    }
}

/// A change that an operator makes to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amendment {
    /// Deletes the record and with it the protection. The next delivery runs the operation. Applies to FAILED records,
    /// lapsed INPROGRESS records and INPROGRESS records without a lease. A lapsed ordered operation remains in
    /// [doubt](super::ordering), because it may have taken effect. To end the doubt, settle the operation. If nothing
    /// of it took effect, settle it as failed and forget that record to let it run again.
    Forget {
        /// Whether a COMPLETED record is deleted too, so that its operation may take effect again.
        completed: bool,
    },
    /// Records the outcome of an operation whose claim has lapsed, after its effect was looked up. The holder of the
    /// claim can no longer settle it. For an ordered operation, the [mark](crate::order::Mark) of its entity is written
    /// in the same step, as by the holder's settle. A completion supersedes older operations, either outcome ends the
    /// doubt of the operation, and the claim no longer holds the entity.
    Settle {
        /// The outcome.
        outcome: FinalStatus,
        /// The result to replay, or the error, as the engine would store it.
        result: StoredResult,
        /// The retention of the record, from now on.
        retention: Duration,
    },
    /// Allows the next claim to take over a lapsed INPROGRESS record, under every policy including
    /// [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse). That grant reports that it [took
    /// over](super::Grant::took_over). The holder may still settle before that grant. An ordered operation remains in
    /// doubt.
    Release,
    /// Removes the result and the label of a COMPLETED or FAILED record. The operation remains decided, and a replay
    /// has no result.
    Redact,
}

/// A request to end doubt in the order of an entity, after an operator has looked up the effects of the operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveRequest {
    /// The entity.
    pub entity: Entity,
    /// The mark that was read. A mark that has changed since is left unchanged.
    pub read: Mark,
    /// The maximum clock difference. A claim that holds the entity has lapsed when its lease and this margin have
    /// passed.
    pub skew_margin: Duration,
    /// The minimum time for which the mark is kept from now on: the retention of the entity's outcomes.
    pub retention: Duration,
    /// The statement about the operations.
    pub resolution: Resolution,
}

/// A statement about operations in doubt. Those are the [entries](Mark::doubt) of a mark, and the operation of its
/// [holder](Mark::holder) once the lease has ended without a settle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// No run of the operations in doubt at these sequences took effect, and none can any more. Their doubt ends, so
    /// that older operations run. The operations themselves may run, too.
    NoEffect {
        /// The sequences. The sequence of several operations which have [merged](crate::order::Doubt::key) represents
        /// all of them.
        sequences: Vec<Sequence>,
    },
    /// The operation in doubt at this sequence took effect. All operations up to this sequence are superseded from now
    /// on, and their doubt ends.
    TookEffect {
        /// The sequence.
        sequence: Sequence,
    },
}

/// The result of an [`AmendRequest`], or of a [`ResolveRequest`], which concerns a mark instead of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amended<T = Record> {
    /// The record was amended, by this request or by an earlier copy of it whose response was lost.
    Changed,
    /// There is no record, or it has expired. A [`Forget`](Amendment::Forget) that is sent again after a lost response
    /// also finds no record.
    Gone,
    /// The record has changed since it was read, or its claim has not lapsed. Nothing was written.
    Unchanged {
        /// The current record.
        current: Box<T>,
    },
}
