//! Handlers: async functions of a record, and wrappers around them.

use std::future::Future;

use serde::Serialize;

use super::RecordContext;
use crate::{
    error::BoxError,
    idempotency::{probe::Probed, verdict::Failure},
    store::StoreId,
};

/// A handler of one record: an async function of the decoded body, or of the body and its [`RecordContext`].
///
/// `Args` only tells the two forms apart; it is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of records",
    label = "not a handler",
    note = "a handler is a cloneable async fn(T) or async fn(T, RecordContext), whose future is Send",
    note = "it returns a Result<R, E>: R is Serialize + Send; E is a std::error::Error, a Failure, or another Into<Failure>",
    note = "to see what it lacks, wrap it in `lambda_once::batch::handler`, or in `handler_with_context` if it takes a RecordContext"
)]
pub trait Handler<T, Args>: Clone + Send + Sync + 'static {
    /// What it makes of the record. Stored as JSON.
    type Output: Serialize + Send + 'static;

    /// Whether [`probe`](Self::probe) looks at anything.
    const PROBES: bool = false;

    /// Whether [`max_records`](Self::max_records) may be more than one. Where it is `false`, the binary is without the code for
    /// several records at once. A handler that wraps another one has that one's value.
    const TAKES_SEVERAL: bool = true;

    /// Whether [`store`](Self::store) may be a store. Where it is `false`, the binary is without the code for transactions. A
    /// handler that wraps another one has that one's value.
    const IN_TRANSACTION: bool = true;

    /// Handles one record.
    fn call(&self, payload: T, context: RecordContext) -> impl Future<Output = Result<Self::Output, Failure>> + Send;

    /// How many records [`call_all`](Self::call_all) takes at once, if that is to be called: see [`bulk`](super::bulk).
    fn max_records(&self) -> usize {
        1
    }

    /// Whether [`call_all`](Self::call_all) takes several records of one order, which stand in that order: see
    /// [`Bulk::consecutive`](super::Bulk::consecutive). A handler that wraps another one returns what that does.
    fn takes_consecutive(&self) -> bool {
        false
    }

    /// Handles several records: a verdict for each, in their order.
    fn call_all(
        &self,
        records: Vec<(T, RecordContext)>,
    ) -> impl Future<Output = Vec<Result<Self::Output, Failure>>> + Send
    where
        T: Send,
    {
        async {
            let mut verdicts = Vec::with_capacity(records.len());
            for (payload, context) in records {
                verdicts.push(self.call(payload, context).await);
            }
            verdicts
        }
    }

    /// The store in whose transactions it writes, if it does: see [`in_transaction`](super::in_transaction). A handler that
    /// wraps another one returns what that does.
    fn store(&self) -> Option<StoreId> {
        None
    }

    /// Looks whether an earlier run of the record took effect: see [`BatchService::probe`](super::BatchService::probe).
    fn probe(
        &self,
        _payload: &T,
        _context: RecordContext,
    ) -> impl Future<Output = Result<Probed<Self::Output>, BoxError>> + Send + use<Self, T, Args> {
        std::future::ready(Ok(Probed::NotDone))
    }
}

/// The same function, if it is a handler of records; else the compiler says what it lacks.
///
/// A function that is no [`Handler`] gives one message, whatever is wrong with it. Here each bound stands alone.
///
/// ```
/// # #[cfg(feature = "sqs")] {
/// use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::handler};
///
/// async fn book(order: serde_json::Value) -> Result<u64, Failure> {
///     Ok(7)
/// }
///
/// let once = Idempotency::new(MemoryStore::new());
/// let service = once.sqs(Key::pointer("/order_id"), handler(book));
/// # }
/// ```
pub fn handler<F, T, Fut, R, E>(function: F) -> F
where
    F: Fn(T) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: Send,
    R: Serialize + Send + 'static,
    E: Into<Failure>,
{
    function
}

/// As [`handler`], for a function of the body and its [`RecordContext`].
pub fn handler_with_context<F, T, Fut, R, E>(function: F) -> F
where
    F: Fn(T, RecordContext) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: Send,
    R: Serialize + Send + 'static,
    E: Into<Failure>,
{
    function
}

/// A handler with a probe. Made by [`BatchService::probe`](super::BatchService::probe).
#[derive(Clone, Copy, Debug)]
pub struct Probing<H, P> {
    pub(super) handler: H,
    pub(super) probe: P,
}

impl<H, P, Fut, T, Args, E> Handler<T, Args> for Probing<H, P>
where
    H: Handler<T, Args>,
    P: Fn(T, RecordContext) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Probed<H::Output>, E>> + Send,
    T: Clone + Send,
    E: Into<Failure>,
{
    type Output = H::Output;

    const PROBES: bool = true;
    const TAKES_SEVERAL: bool = H::TAKES_SEVERAL;
    const IN_TRANSACTION: bool = H::IN_TRANSACTION;

    fn call(&self, payload: T, context: RecordContext) -> impl Future<Output = Result<Self::Output, Failure>> + Send {
        self.handler.call(payload, context)
    }

    fn max_records(&self) -> usize {
        self.handler.max_records()
    }

    fn takes_consecutive(&self) -> bool {
        self.handler.takes_consecutive()
    }

    fn call_all(
        &self,
        records: Vec<(T, RecordContext)>,
    ) -> impl Future<Output = Vec<Result<Self::Output, Failure>>> + Send {
        self.handler.call_all(records)
    }

    fn store(&self) -> Option<StoreId> {
        self.handler.store()
    }

    fn probe(
        &self,
        payload: &T,
        context: RecordContext,
    ) -> impl Future<Output = Result<Probed<Self::Output>, BoxError>> + Send + use<H, P, Fut, T, Args, E> {
        let (probe, payload) = (self.probe.clone(), payload.clone());
        async move { probe(payload, context).await.map_err(|error| error.into().into_source()) }
    }
}

impl<F, Fut, T, R, E> Handler<T, (T,)> for F
where
    F: Fn(T) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: Send,
    R: Serialize + Send + 'static,
    E: Into<Failure>,
{
    type Output = R;

    const TAKES_SEVERAL: bool = false;
    const IN_TRANSACTION: bool = false;

    async fn call(&self, payload: T, _: RecordContext) -> Result<R, Failure> {
        self(payload).await.map_err(Into::into)
    }
}

impl<F, Fut, T, R, E> Handler<T, (T, RecordContext)> for F
where
    F: Fn(T, RecordContext) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send,
    T: Send,
    R: Serialize + Send + 'static,
    E: Into<Failure>,
{
    type Output = R;

    const TAKES_SEVERAL: bool = false;
    const IN_TRANSACTION: bool = false;

    async fn call(&self, payload: T, context: RecordContext) -> Result<R, Failure> {
        self(payload, context).await.map_err(Into::into)
    }
}
