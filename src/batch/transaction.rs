//! Handlers whose writes are committed together with the outcome of their record.

use std::{fmt, future::Future, sync::Arc};

use serde::Serialize;

use super::{Handler, RecordContext, context::TransactionSlot};
use crate::{
    error::Error,
    idempotency::{
        engine::{Classifier, OpenTransaction},
        verdict::{Failure, Verdict},
    },
    store::{StoreId, transaction::Transactional},
};

/// A handler with a transaction for each record. Made by [`in_transaction`].
#[derive(Clone)]
#[must_use]
pub struct InTransaction<S, F> {
    store: S,
    classifier: Option<Classifier>,
    handle: F,
}

/// Makes a handler of an async function that writes through a transaction of `store`, which is a clone of the engine's own: of
/// a record's decoded body and the transaction, or of its body, [`RecordContext`] and the transaction.
///
/// Each record has a transaction of its own, which is committed together with its outcome as soon as the handler has
/// succeeded: see [`Operation::in_transaction`](crate::Operation::in_transaction). A record whose outcome could not be
/// recorded is reported, not acknowledged: what is not recorded did not happen, or it is not known whether it did, and the
/// next delivery finds out.
///
/// ```no_run
/// # #[cfg(all(feature = "sqs", feature = "dynamodb"))] mod example {
/// use aws_sdk_dynamodb::types::{AttributeValue, Put};
/// use lambda_once::{DynamoDbStore, Failure, Idempotency, Key, batch::in_transaction, store::dynamodb::Writes};
///
/// #[derive(serde::Deserialize)]
/// struct Order { order_id: String }
///
/// async fn book(order: Order, writes: Writes) -> Result<(), Failure> {
///     let row = Put::builder().table_name("ledger").item("id", AttributeValue::S(order.order_id));
///     writes.put(row.build()?)?;
///     Ok(())
/// }
///
/// async fn run(store: DynamoDbStore) -> Result<(), lambda_runtime::Error> {
///     let once = Idempotency::new(store.clone());
///     lambda_runtime::run(once.sqs(Key::pointer("/order_id"), in_transaction(&store, book)).checked()?).await
/// }
/// # }
/// ```
pub fn in_transaction<S: Transactional, F>(store: &S, handle: F) -> InTransaction<S, F> {
    InTransaction { store: store.clone(), classifier: None, handle }
}

impl<S: Transactional, F> InTransaction<S, F> {
    /// What a commit that was refused says of the operation: see
    /// [`InTransaction::classify`](crate::InTransaction::classify).
    pub fn classify(mut self, verdict: impl Fn(&Error) -> Verdict + Send + Sync + 'static) -> Self {
        self.classifier = Some(Arc::new(verdict));
        self
    }

    fn open(&self, context: &RecordContext) -> Result<S::Transaction, Failure> {
        let transaction = self.store.open();
        let open = OpenTransaction {
            store: self.store.clone(),
            transaction: transaction.clone(),
            classifier: self.classifier.clone(),
        };
        match &context.transaction {
            Some(slot) => slot.put(Box::new(open)),
            None => {
                return Err(Failure::from(Error::config(
                    "a handler that wraps `in_transaction` must return the inner handler's `store`",
                )));
            }
        }
        Ok(transaction)
    }
}

/// Abandons the transaction of a handler that has failed: what wraps the handler may make a success of that.
async fn abandon_failed<R>(result: Result<R, Failure>, slot: Option<TransactionSlot>) -> Result<R, Failure> {
    if result.is_err()
        && let Some(transaction) = slot.and_then(|slot| slot.take())
    {
        transaction.abandon().await;
    }
    result
}

impl<S: fmt::Debug, F> fmt::Debug for InTransaction<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTransaction").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Tells a handler of bodies and transactions from other handlers.
#[derive(Clone, Copy, Debug)]
pub struct BodyAndTransaction;

/// Tells a handler of bodies, contexts and transactions from other handlers.
#[derive(Clone, Copy, Debug)]
pub struct BodyContextAndTransaction;

impl<S, F, Fut, T, R, E> Handler<T, BodyAndTransaction> for InTransaction<S, F>
where
    S: Transactional,
    F: Fn(T, S::Transaction) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: Send,
    R: Serialize + Send + 'static,
    E: Into<Failure>,
{
    type Output = R;

    async fn call(&self, payload: T, context: RecordContext) -> Result<R, Failure> {
        let transaction = self.open(&context)?;
        let result = (self.handle)(payload, transaction).await.map_err(Into::into);
        abandon_failed(result, context.transaction).await
    }

    fn store(&self) -> Option<StoreId> {
        Some(self.store.id())
    }
}

impl<S, F, Fut, T, R, E> Handler<T, BodyContextAndTransaction> for InTransaction<S, F>
where
    S: Transactional,
    F: Fn(T, RecordContext, S::Transaction) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: Send,
    R: Serialize + Send + 'static,
    E: Into<Failure>,
{
    type Output = R;

    async fn call(&self, payload: T, context: RecordContext) -> Result<R, Failure> {
        let (transaction, slot) = (self.open(&context)?, context.transaction.clone());
        let result = (self.handle)(payload, context, transaction).await.map_err(Into::into);
        abandon_failed(result, slot).await
    }

    fn store(&self) -> Option<StoreId> {
        Some(self.store.id())
    }
}
