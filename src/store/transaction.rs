//! Stores whose records change together with the caller's own data.

use std::{fmt, future::ready};

use super::{ClaimRequest, Claimed, SettleRequest, Settled, Store};
use crate::{error::Error, future::BoxFuture};

/// A store that can record an outcome and apply writes of the handler's in one transaction: both, or neither.
///
/// For handlers whose whole effect lies in the database that holds the records. See
/// [`Operation::in_transaction`](crate::Operation::in_transaction).
pub trait Transactional: Store + Clone {
    /// What a handler is given for its writes. Its clones are the same transaction.
    type Transaction: Clone + fmt::Debug + Send + Sync + 'static;

    /// A transaction that has not begun: nothing is sent, and no connection is taken, before its first use. So none is open
    /// while a handler waits for other services first.
    fn open(&self) -> Self::Transaction;

    /// Claims a key within the transaction, for an operation that has no claim of its own. A store that cannot do that before
    /// the commit grants it, and lets [`commit`](Self::commit) decide.
    ///
    /// Others do not see the claim before the commit; without a commit no trace of it remains.
    fn claim_within<'a>(
        &'a self,
        transaction: &'a Self::Transaction,
        request: &'a ClaimRequest,
    ) -> BoxFuture<'a, Result<Claimed, Error>>;

    /// Commits the writes, and with them the outcome of the operation: a
    /// [completion](super::Settlement::complete) under the request's owner. Without a request the writes alone.
    ///
    /// A [permanent failure](super::Settlement::fail) after [`claim_within`](Self::claim_within) is recorded without the
    /// writes.
    ///
    /// # Errors
    ///
    /// [`Ambiguous`](crate::ErrorStatus::Ambiguous) if it is not known whether the transaction was committed. Any other error
    /// says that it was not; but an earlier attempt, which the error does not mention, may still have taken effect. The caller
    /// finds out by a release: it waits for a commit in progress, and makes a later one fail. If the key was claimed
    /// [within](Self::claim_within) the transaction, the store finds out itself.
    ///
    /// [`ErrorKind::Transaction`](crate::ErrorKind::Transaction) if a condition or a constraint refused the handler's writes. With
    /// [`Ambiguous`](crate::ErrorStatus::Ambiguous): the handler has ended the transaction itself, or may have, which a release would
    /// not show; the claim is kept.
    fn commit<'a>(
        &'a self,
        transaction: &'a Self::Transaction,
        request: Option<&'a SettleRequest>,
    ) -> BoxFuture<'a, Result<Settled, Error>>;

    /// Checks, after a [`commit`](Self::commit) that was not awaited to its end and before the claim is released, that the handler has
    /// not ended the transaction itself, which the release would not show. A store whose handlers cannot do that has nothing to check:
    /// so does the default.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Transaction`](crate::ErrorKind::Transaction) and [`Ambiguous`](crate::ErrorStatus::Ambiguous) if the handler has
    /// ended the transaction itself, or if that is not known: the claim is kept.
    fn check_unanswered<'a>(
        &'a self,
        transaction: &'a Self::Transaction,
        request: &'a SettleRequest,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let _ = (transaction, request);
        Box::pin(ready(Ok(())))
    }

    /// Ends a transaction without any effect. Its handles are closed when this is called; the future hands its connection back
    /// cleanly, and need not be awaited. Does nothing once [`commit`](Self::commit) was called.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Transaction`](crate::ErrorKind::Transaction) and [`Ambiguous`](crate::ErrorStatus::Ambiguous) unless the
    /// transaction is known to have no effect: the handler has ended it itself, or the database did not say whether it has.
    fn abandon(&self, transaction: &Self::Transaction) -> BoxFuture<'static, Result<(), Error>>;
}
