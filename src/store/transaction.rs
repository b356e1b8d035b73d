//! Stores whose records change together with data of the caller's.

use std::fmt;

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
    /// The claim is no claim to others before the commit: nothing of it is left where the transaction does not commit.
    fn claim_within<'a>(
        &'a self,
        transaction: &'a Self::Transaction,
        request: &'a ClaimRequest,
    ) -> BoxFuture<'a, Result<Claimed, Error>>;

    /// Commits the writes, and with them the outcome of the operation: a
    /// [`Settlement::Complete`](super::Settlement::Complete) under the request's owner. Without a request the writes alone.
    ///
    /// A [`Settlement::Fail`](super::Settlement::Fail) after [`claim_within`](Self::claim_within) is recorded without the
    /// writes.
    ///
    /// # Errors
    ///
    /// [`Ambiguous`](crate::ErrorStatus::Ambiguous) where the outcome of the commit is not known. After any other error, and
    /// after [`Settled::LeaseLost`], the commit had no effect; it may still be that an earlier try of it, which the error does
    /// not tell of, had. The caller finds that out by a release, which a commit under way holds up and a later one does not
    /// survive. Where the key was claimed [within](Self::claim_within), the store finds it out itself.
    fn commit<'a>(
        &'a self,
        transaction: &'a Self::Transaction,
        request: Option<&'a SettleRequest>,
    ) -> BoxFuture<'a, Result<Settled, Error>>;

    /// Ends a transaction without any effect. It is closed to its handles when this is called; the future returns what it
    /// holds in good order, and need not be awaited. Does nothing once [`commit`](Self::commit) was called.
    fn abandon(&self, transaction: &Self::Transaction) -> BoxFuture<'static, ()>;
}
