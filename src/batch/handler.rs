//! Handlers of one record, and wrappers around them.

use std::future::Future;

use serde::Serialize;

use super::RecordContext;
use crate::{
    error::BoxError,
    idempotency::{probe::ProbeResult, verdict::Failure},
    store::StoreId,
};

/// A handler of one record: an async function of the decoded body, or of the body and its [`RecordContext`].
///
/// `Args` only distinguishes the forms, and is inferred.
///
/// # Wrappers
///
/// A custom type can implement it around another handler whose [`call`](Self::call) it makes. It gets one record at a
/// time, whatever the inner handler takes, and no transaction. So wrap the function that is passed to
/// [`bulk`](super::bulk) or [`in_transaction`](super::in_transaction), not the handler that these return. The handler
/// of `in_transaction` refuses to run inside another.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of records",
    label = "not a handler",
    note = "a handler is a cloneable async fn(T) or async fn(T, RecordContext), whose future is Send",
    note = "it returns a Result<R, E>: R is Serialize + Send; E is a std::error::Error, a Failure, or another Into<Failure>",
    note = "to see the missing bound, wrap it in `lambda_once::batch::handler`, or in `handler_with_context` if it takes a RecordContext"
)]
pub trait Handler<T, Args>: Clone + Send + Sync + 'static {
    /// The handler's result, stored as JSON.
    type Output: Serialize + Send + 'static;

    /// The form of the handler. The type cannot be named outside the crate, so custom handlers keep the default.
    #[doc(hidden)]
    const FORM: Form = Form::ONE;

    /// Handles one record.
    fn call(&self, payload: T, context: RecordContext) -> impl Future<Output = Result<Self::Output, Failure>> + Send;

    /// Returns the number of records that [`call_all`](Self::call_all) takes. Called only if the form has
    /// `takes_several`.
    #[doc(hidden)]
    fn several(&self) -> Several {
        Several::ONE
    }

    /// Handles several records and returns a verdict for each, in their order. Called only if the form has
    /// `takes_several`.
    #[doc(hidden)]
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

    /// Returns the store in whose transactions it writes. Called only if the form has `in_transaction`.
    #[doc(hidden)]
    fn store(&self) -> Option<StoreId> {
        None
    }

    /// Checks whether an earlier run of the record took effect. Called only if the form has `probes`.
    #[doc(hidden)]
    fn probe(
        &self,
        _payload: &T,
        _context: RecordContext,
    ) -> impl Future<Output = Result<ProbeResult<Self::Output>, BoxError>> + Send + use<Self, T, Args> {
        std::future::ready(Ok(ProbeResult::NotDone))
    }
}

/// The form of a handler. It is a constant, so that a function's binary has no code for the other forms.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Whether it takes several records in one call, up to `Several::most`.
    pub(super) takes_several: bool,
    /// Whether it writes in transactions of its store.
    pub(super) in_transaction: bool,
    /// Whether it has a probe.
    pub(super) probes: bool,
}

impl Form {
    pub(super) const ONE: Self = Self { takes_several: false, in_transaction: false, probes: false };
    pub(super) const SEVERAL: Self = Self { takes_several: true, ..Self::ONE };
    pub(super) const IN_TRANSACTION: Self = Self { in_transaction: true, ..Self::ONE };
}

/// The number of records in one call of a bulk handler.
#[derive(Clone, Copy, Debug)]
pub struct Several {
    pub(super) most: usize,
    /// Whether they may share an order, in that order: see [`Bulk::consecutive`](super::Bulk::consecutive).
    pub(super) are_consecutive: bool,
}

impl Several {
    pub(super) const ONE: Self = Self { most: 1, are_consecutive: false };
}

/// Returns the same function, and makes the compiler report each bound that it misses as a handler of records.
///
/// A function that is not a [`Handler`] gets one error message, whatever the cause. Here each bound is checked
/// separately.
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

/// Equivalent of [`handler`] for a function of the body and its [`RecordContext`].
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
    Fut: Future<Output = Result<ProbeResult<H::Output>, E>> + Send,
    T: Clone + Send,
    E: Into<Failure>,
{
    type Output = H::Output;

    const FORM: Form = Form { probes: true, ..H::FORM };

    fn call(&self, payload: T, context: RecordContext) -> impl Future<Output = Result<Self::Output, Failure>> + Send {
        self.handler.call(payload, context)
    }

    fn several(&self) -> Several {
        self.handler.several()
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
    ) -> impl Future<Output = Result<ProbeResult<Self::Output>, BoxError>> + Send + use<H, P, Fut, T, Args, E> {
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

    async fn call(&self, payload: T, context: RecordContext) -> Result<R, Failure> {
        self(payload, context).await.map_err(Into::into)
    }
}
