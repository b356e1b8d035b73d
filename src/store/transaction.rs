//! Stores that can commit records together with the caller's own data.
//!
//! ```no_run
//! use aws_sdk_dynamodb::types::{AttributeValue, Put};
//! use lambda_once::{DynamoDbStore, Failure, Idempotency, store::dynamodb::Writes};
//!
//! # async fn book(once: Idempotency, store: DynamoDbStore) -> Result<(), lambda_once::Error> {
//! // The item of the ledger and the outcome are committed together.
//! let booking = once.operation("book", "order 7").in_transaction(&store).run(|writes: Writes| async move {
//!     let item = Put::builder().table_name("ledger").item("id", AttributeValue::S("7".to_owned()));
//!     writes.put(item.build()?)?;
//!     Ok::<_, Failure>(())
//! });
//! let outcome = booking.await?;
//! # Ok(()) }
//! ```

use std::{fmt, future::ready};

use super::{ClaimRequest, Claimed, SettleRequest, Settled, Store};
use crate::{error::Error, future::BoxFuture};

/// A store that can record an outcome and apply the handler's writes in one transaction, either both or neither.
///
/// For handlers whose whole effect is in the database that contains the records. See
/// [`Operation::in_transaction`](crate::Operation::in_transaction).
pub trait Transactional: Store + Clone {
    /// The handle for the handler's writes. Its clones are the same transaction.
    type Transaction: Clone + fmt::Debug + Send + Sync + 'static;

    /// Creates a transaction without beginning it. Nothing is sent, and no connection is taken, before its first use.
    /// So none is open while a handler waits for other services first.
    fn open(&self) -> Self::Transaction;

    /// Claims a key within the transaction, for an operation without a separate claim. A store that cannot do that
    /// before the commit grants the claim, as the first attempt on a key without a record, and lets
    /// [`commit`](Self::commit) decide.
    ///
    /// The claim is invisible to others before the commit, and leaves no trace without one.
    fn claim_within<'a>(
        &'a self,
        transaction: &'a Self::Transaction,
        request: &'a ClaimRequest,
    ) -> BoxFuture<'a, Result<Claimed, Error>>;

    /// Commits the writes and with them the outcome of the operation: a [completion](super::Settlement::complete) under
    /// the request's owner. Without a request, commits only the writes.
    ///
    /// A [permanent failure](super::Settlement::fail) after [`claim_within`](Self::claim_within) is recorded without the
    /// writes.
    ///
    /// `commit` is called at most once for each transaction.
    ///
    /// The result is [`Settled::LeaseLost`], and nothing is written, if the record no longer allows the settle, if a claim
    /// that was left to the commit would be refused, or if the [mark](super::ordering::may_commit) of an ordered
    /// operation does not allow it. If the record shows that the outcome was recorded before, the writes are not
    /// applied again ([`Settled::Done`] with the record).
    ///
    /// # Errors
    ///
    /// [`Ambiguous`](crate::ErrorStatus::Ambiguous) if it is unknown whether the transaction was committed. Any other
    /// error means that it was not. However, an earlier attempt, which the error does not mention, may still have taken
    /// effect. The caller finds out by a release, which waits for a commit in progress and makes a later one fail. If
    /// the key was claimed [within](Self::claim_within) the transaction, the store finds out itself.
    ///
    /// [`ErrorKind::Transaction`](crate::ErrorKind::Transaction) if a condition or a constraint rejected the handler's
    /// writes. If it is also [`Ambiguous`](crate::ErrorStatus::Ambiguous), the handler has ended the transaction
    /// itself, or may have, which a release would not show. The claim is then kept.
    fn commit<'a>(
        &'a self,
        transaction: &'a Self::Transaction,
        request: Option<&'a SettleRequest>,
    ) -> BoxFuture<'a, Result<Settled, Error>>;

    /// Checks, after a [`commit`](Self::commit) that was not awaited to completion and before the claim is released,
    /// that the handler has not ended the transaction itself, which the release would not show. The default does
    /// nothing, for stores whose handlers cannot end a transaction.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Transaction`](crate::ErrorKind::Transaction) and [`Ambiguous`](crate::ErrorStatus::Ambiguous) if
    /// the handler has ended the transaction itself, or if that is unknown. The claim is then kept.
    fn check_unanswered<'a>(&'a self, transaction: &'a Self::Transaction) -> BoxFuture<'a, Result<(), Error>> {
        let _ = transaction;
        Box::pin(ready(Ok(())))
    }

    /// Ends a transaction without any effect. Its handles are closed when this is called. The future returns its
    /// connection in a clean state, and need not be awaited. Does nothing once [`commit`](Self::commit) was called.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Transaction`](crate::ErrorKind::Transaction) and [`Ambiguous`](crate::ErrorStatus::Ambiguous)
    /// unless the transaction is known to have no effect, that is, if the handler has ended it itself or the database
    /// did not report whether it has.
    fn abandon(&self, transaction: &Self::Transaction) -> BoxFuture<'static, Result<(), Error>>;
}
