//! Handlers that take several records in one call.

use std::{fmt, future::Future};

use serde::Serialize;

use super::{
    Handler, RecordContext,
    handler::{Form, Several},
};
use crate::idempotency::verdict::Failure;

/// A handler of several records in one call, for bulk writes. It is an async function of their decoded bodies, or of
/// the bodies and their [`RecordContext`]s. Made by [`bulk`].
#[derive(Clone, Copy)]
pub struct Bulk<F> {
    several: Several,
    handle: F,
}

impl<F> fmt::Debug for Bulk<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulk").field("most", &self.several.most).finish_non_exhaustive()
    }
}

impl<F> Bulk<F> {
    /// Also passes consecutive records of one shard, partition or message group to the same call, in their order.
    ///
    /// The handler is then responsible for the order among them. It must treat them as if they came one after the
    /// other, and stop at the first that fails. Each later record of that order that it has not handled gets a
    /// transient error. All records behind the failed one are reported and delivered again, whatever their verdicts.
    /// Those that succeeded are recorded, and replayed on redelivery.
    ///
    /// A call gets as many records as are claimed together: up to 25 (100 on Redis and PostgreSQL), and one under
    /// [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) and [`AfterUnknown::Probe`](crate::AfterUnknown::Probe). A
    /// record on its last delivery ([`max_receive_count`](super::BatchService::max_receive_count)) runs alone, because
    /// behind a record that fails it would end in the dead-letter queue without having run.
    ///
    /// ```
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::bulk};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Reading { sensor: String, celsius: f64 }
    ///
    /// async fn append_all(readings: Vec<Reading>) -> Vec<Result<(), Failure>> {
    ///     // One request to a database for all of them, in which all or none take effect.
    ///     readings.iter().map(|_| Ok(())).collect()
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// # #[cfg(feature = "kinesis")]
    /// let service = once.kinesis(Key::message_id(), bulk(25, append_all).consecutive());
    /// ```
    #[must_use]
    pub fn consecutive(mut self) -> Self {
        self.several.are_consecutive = true;
        self
    }
}

/// Makes a handler of an async function that takes up to `most` records in one call and returns a verdict for each, in
/// their order.
///
/// As with other handlers, every record is an operation with its own key, claim, verdict and stored result, and
/// duplicates are not passed to the function. A call gets the records that are claimed and may start, up to `most`.
/// Claims are made for at most 25 records at a time (100 on Redis and PostgreSQL). If the records are ordered, a call
/// gets at most one of each shard, partition or message group, unless it takes [consecutive](Bulk::consecutive) ones.
/// `concurrency` is the number of calls that run in parallel. Under [`AfterUnknown::Probe`](crate::AfterUnknown::Probe)
/// a record that took over is probed and run alone, after the records that share a call.
///
/// If the function panics or is cancelled at the handler deadline, the outcome of each of its records is unknown. The
/// same applies if the number of verdicts differs from the number of records.
///
/// ```
/// use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::bulk};
///
/// #[derive(serde::Deserialize)]
/// struct Order { order_id: String }
///
/// async fn write_all(orders: Vec<Order>) -> Vec<Result<(), Failure>> {
///     // One request to a database for all of them.
///     orders.iter().map(|_| Ok(())).collect()
/// }
///
/// let once = Idempotency::new(MemoryStore::new());
/// # #[cfg(feature = "sqs")]
/// let service = once.sqs(Key::pointer("/order_id"), bulk(25, write_all)).concurrency(2);
/// ```
#[must_use]
pub fn bulk<F>(most: usize, handle: F) -> Bulk<F> {
    Bulk { several: Several { most: most.max(1), ..Several::ONE }, handle }
}

impl<F, Fut, T, R, E> Handler<T, (Vec<T>,)> for Bulk<F>
where
    F: Fn(Vec<T>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Vec<Result<R, E>>> + Send,
    T: Send,
    R: Serialize + Send + 'static,
    E: Into<Failure>,
{
    type Output = R;

    const FORM: Form = Form::SEVERAL;

    fn several(&self) -> Several {
        self.several
    }

    async fn call(&self, payload: T, context: RecordContext) -> Result<R, Failure> {
        only(self.call_all(vec![(payload, context)]).await)
    }

    async fn call_all(&self, records: Vec<(T, RecordContext)>) -> Vec<Result<R, Failure>> {
        let bodies = records.into_iter().map(|(body, _)| body).collect();
        (self.handle)(bodies).await.into_iter().map(|result| result.map_err(Into::into)).collect()
    }
}

impl<F, Fut, T, R, E> Handler<T, (Vec<T>, Vec<RecordContext>)> for Bulk<F>
where
    F: Fn(Vec<T>, Vec<RecordContext>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Vec<Result<R, E>>> + Send,
    T: Send,
    R: Serialize + Send + 'static,
    E: Into<Failure>,
{
    type Output = R;

    const FORM: Form = Form::SEVERAL;

    fn several(&self) -> Several {
        self.several
    }

    async fn call(&self, payload: T, context: RecordContext) -> Result<R, Failure> {
        only(self.call_all(vec![(payload, context)]).await)
    }

    async fn call_all(&self, records: Vec<(T, RecordContext)>) -> Vec<Result<R, Failure>> {
        let (bodies, contexts) = records.into_iter().unzip();
        (self.handle)(bodies, contexts).await.into_iter().map(|result| result.map_err(Into::into)).collect()
    }
}

/// Returns the error for verdicts that cannot be assigned to the records.
pub(super) fn miscounted(verdicts: usize, records: usize) -> Failure {
    Failure::unknown(format!("the handler must give one verdict for each record, and gave {verdicts} for {records}"))
}

/// Returns the verdict of a record that was passed alone.
fn only<R>(mut verdicts: Vec<Result<R, Failure>>) -> Result<R, Failure> {
    let count = verdicts.len();
    verdicts.pop().filter(|_| count == 1).unwrap_or_else(|| Err(miscounted(count, 1)))
}
