//! What can handle a record.

use std::future::Future;

use serde::Serialize;

use super::RecordContext;
use crate::Failure;

/// A handler of one record: an async function of the decoded body, or of the body and its [`RecordContext`].
///
/// `Args` only tells the two forms apart; it is inferred.
pub trait Handler<T, Args>: Clone + Send + Sync + 'static {
    /// What it makes of the record. Stored as JSON.
    type Output: Serialize + Send;

    /// Handles one record.
    fn call(&self, payload: T, context: RecordContext) -> impl Future<Output = Result<Self::Output, Failure>> + Send;
}

impl<F, Fut, T, R, E> Handler<T, (T,)> for F
where
    F: Fn(T) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: Send,
    R: Serialize + Send,
    E: Into<Failure>,
{
    type Output = R;

    async fn call(&self, payload: T, _: RecordContext) -> Result<R, Failure> {
        self(payload).await.map_err(Into::into)
    }
}

impl<F, Fut, T, R, E> Handler<T, (T, RecordContext)> for F
where
    F: Fn(T, RecordContext) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: Send,
    R: Serialize + Send,
    E: Into<Failure>,
{
    type Output = R;

    async fn call(&self, payload: T, context: RecordContext) -> Result<R, Failure> {
        self(payload, context).await.map_err(Into::into)
    }
}
