//! Handlers whose writes are committed together with the outcome of their record.

use std::{fmt, future::Future, sync::Arc};

use serde::Serialize;

use super::{Handler, RecordContext, handler::Form};
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

/// Makes a transactional handler of an async function that takes a record's decoded body, optionally its
/// [`RecordContext`], and a transaction of `store`, which must be a clone of the engine's store.
///
/// Each record has a separate transaction, which is committed together with its outcome as soon as the handler has
/// succeeded. See [`Operation::in_transaction`](crate::Operation::in_transaction). A record whose success could not be
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
    /// Opens the transaction of a run, and puts it into the slot of its context, from which its processor ends it.
    /// Handlers inside this one find no slot there.
    fn open(&self, context: &mut RecordContext) -> Result<S::Transaction, Failure> {
        let Some(slot) = context.transaction.take() else {
            let message = "the handler of `in_transaction` must be the outermost: wrap the function that it is given";
            return Err(Error::config(message).into());
        };
        let transaction = self.store.open();
        let (store, classifier) = (self.store.clone(), self.classifier.clone());
        slot.put(Box::new(OpenTransaction { store, transaction: transaction.clone(), classifier }));
        Ok(transaction)
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

    async fn call(&self, payload: T, mut context: RecordContext) -> Result<R, Failure> {
        let transaction = self.open(&mut context)?;
        (self.handle)(payload, transaction).await.map_err(Into::into)
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

    async fn call(&self, payload: T, mut context: RecordContext) -> Result<R, Failure> {
        let transaction = self.open(&mut context)?;
        (self.handle)(payload, context, transaction).await.map_err(Into::into)
    }

    fn store(&self) -> Option<StoreId> {
        Some(self.store.id())
    }
}
