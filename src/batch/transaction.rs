//! Handlers whose writes are committed together with the outcome of their record.

use std::{fmt, future::Future, sync::Arc};

use serde::Serialize;

use super::{Handler, RecordContext, context::TransactionSlot, handler::Form};
use crate::{
    error::Error,
    idempotency::{
        claim::Claim,
        engine::{Classifier, OpenTransaction, tell_doubt},
        verdict::{Failure, Verdict},
    },
    record::KeyHash,
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

/// Makes a transactional handler of an async function that takes a record's decoded body, optionally its
/// [`RecordContext`], and a transaction of `store`, which must be a clone of the engine's store.
///
/// Each record has a separate transaction, which is committed together with its outcome as soon as the handler has
/// succeeded. See [`Operation::in_transaction`](crate::Operation::in_transaction). A record whose outcome could not be
/// recorded is reported, not acknowledged. Its writes were not committed, or their result is unknown until the next
/// delivery.
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
///     lambda_runtime::run(once.sqs(Key::pointer("/order_id"), in_transaction(&store, book)).validate()?).await
/// }
/// # }
/// ```
pub fn in_transaction<S: Transactional, F>(store: &S, handle: F) -> InTransaction<S, F> {
    InTransaction { store: store.clone(), classifier: None, handle }
}

impl<S: Transactional, F> InTransaction<S, F> {
    /// Sets the verdict on a refused commit. See [`InTransaction::classify`](crate::InTransaction::classify).
    pub fn classify(mut self, verdict: impl Fn(&Error) -> Verdict + Send + Sync + 'static) -> Self {
        self.classifier = Some(Arc::new(verdict));
        self
    }
}

impl<S: Transactional, F: Sync> InTransaction<S, F> {
    /// Calls the handler with a transaction, and puts that into the slot to be committed. After a failure it is
    /// abandoned immediately, because a handler that wraps this one may turn the failure into a success.
    async fn run<R: Send, E: Into<Failure>, Fut>(
        &self,
        slot: Option<TransactionSlot>,
        key: Option<KeyHash>,
        handle: impl FnOnce(S::Transaction) -> Fut + Send,
    ) -> Result<R, Failure>
    where
        Fut: Future<Output = Result<R, E>> + Send,
    {
        let Some(slot) = slot else {
            let message = "the handler of `in_transaction` must be the outermost: wrap the function that it is given";
            return Err(Error::config(message).into());
        };
        let transaction = self.store.open();
        let (store, classifier) = (self.store.clone(), self.classifier.clone());
        slot.put(Box::new(OpenTransaction { store, transaction: transaction.clone(), classifier }));
        let result = handle(transaction).await.map_err(Into::into);
        if result.is_err()
            && let Some(transaction) = slot.take()
            && let Err(error) = transaction.abandon().await
        {
            tell_doubt(key, &error);
            return Err(Failure::unknown(error));
        }
        result
    }
}

impl<S: fmt::Debug, F> fmt::Debug for InTransaction<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTransaction").field("store", &self.store).finish_non_exhaustive()
    }
}

impl<S, F, Fut, T, R, E> Handler<T, (T, S::Transaction)> for InTransaction<S, F>
where
    S: Transactional,
    F: Fn(T, S::Transaction) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: Send,
    R: Serialize + Send + 'static,
    E: Into<Failure>,
{
    type Output = R;

    const FORM: Form = Form::IN_TRANSACTION;

    async fn call(&self, payload: T, context: RecordContext) -> Result<R, Failure> {
        let key = context.claim.as_ref().map(Claim::key);
        self.run(context.transaction, key, |transaction| (self.handle)(payload, transaction)).await
    }

    fn store(&self) -> Option<StoreId> {
        Some(self.store.id())
    }
}

impl<S, F, Fut, T, R, E> Handler<T, (T, RecordContext, S::Transaction)> for InTransaction<S, F>
where
    S: Transactional,
    F: Fn(T, RecordContext, S::Transaction) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: Send,
    R: Serialize + Send + 'static,
    E: Into<Failure>,
{
    type Output = R;

    const FORM: Form = Form::IN_TRANSACTION;

    async fn call(&self, payload: T, context: RecordContext) -> Result<R, Failure> {
        let (slot, key) = (context.transaction.clone(), context.claim.as_ref().map(Claim::key));
        self.run(slot, key, |transaction| (self.handle)(payload, context, transaction)).await
    }

    fn store(&self) -> Option<StoreId> {
        Some(self.store.id())
    }
}
