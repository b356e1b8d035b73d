//! Handlers that take several records at once.

use std::{fmt, future::Future};

use serde::Serialize;

use super::{
    Handler, RecordContext,
    handler::{Form, Several},
};
use crate::idempotency::verdict::Failure;

/// A handler of several records at once, for bulk writes: an async function of their decoded bodies, or of these and
/// their [`RecordContext`]s. Made by [`bulk`].
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
    /// Takes several records of one order at once too: consecutive records of a shard, a partition or a message group, in their
    /// order.
    ///
    /// The order among them is the handler's then. It has to treat them as if one came after the other, and to stop at the first
    /// that fails: of those behind it in the same order, what it has not done gets an error that is transient. Whatever it says of
    /// them, they are reported with the one that failed, and delivered again; those that it says are done are recorded, and
    /// replayed then.
    ///
    /// As many go together as are claimed: up to 25 at a time (100 on Redis and PostgreSQL), and one under
    /// [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) and [`AfterUnknown::Probe`](crate::AfterUnknown::Probe). A record on its
    /// last delivery ([`max_receive_count`](super::BatchService::max_receive_count)) goes alone: behind one that fails it would end
    /// in the dead-letter queue without having run.
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
    /// #    /// let service = once.kinesis(Key::message_id(), bulk(25, append_all).consecutive());
    /// ```
    #[must_use]
    pub fn consecutive(mut self) -> Self {
        self.several.are_consecutive = true;
        self
    }
}

/// Makes a handler of an async function that takes up to `most` records at once and gives a verdict for each, in their
/// order.
///
/// Every record is an operation as with other handlers: it has its own key, claim, verdict and stored result, and duplicates
/// are not among those that are handed over. A call gets what is claimed and may start, up to `most`; claims are made for 25
/// at a time at the most. Where records have an order there is one of each lane at most, unless it takes
/// [consecutive](Bulk::consecutive) ones. `concurrency` is how many calls run
/// at once. Under [`AfterUnknown::Probe`](crate::AfterUnknown::Probe) a record that took over is probed, and run, alone, after those that
/// go together.
///
/// A panic, and a cut-off at the stop point, leave it unknown for each of them whether it took effect. So does a number of
/// verdicts that is not that of the records.
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

/// Nobody knows which verdict is whose.
pub(super) fn miscounted(verdicts: usize, records: usize) -> Failure {
    Failure::unknown(format!("the handler must give one verdict for each record, and gave {verdicts} for {records}"))
}

/// The verdict of a record that was handed over alone.
fn only<R>(mut verdicts: Vec<Result<R, Failure>>) -> Result<R, Failure> {
    let count = verdicts.len();
    verdicts.pop().filter(|_| count == 1).unwrap_or_else(|| Err(miscounted(count, 1)))
}
