//! Observers, which receive one typed event per operation.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    error::ErrorKind,
    idempotency::{guard::catch_panic, outcome::OutcomeKind},
    record::{Difference, KeyHash},
};

/// The entry point of an operation into the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryPoint {
    /// A call of [`Idempotency::operation`](crate::Idempotency::operation).
    Operation,
    /// A record of a batch.
    Batch,
    /// An HTTP request.
    Http,
    /// A whole invocation.
    Invocation,
}

/// The outcome and measurements of an operation.
///
/// Times are wall-clock times. They are `None` for steps that did not happen: a duplicate has no handler time, and an
/// unclaimed operation no claim time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OperationEvent<'a> {
    /// The operation's entry point.
    pub entry_point: EntryPoint,
    /// The operation's name in logs: the name of the engine, if it has one, and the name of the operation or the
    /// kind of service.
    pub operation: &'a str,
    /// The operation's outcome, or the kind of the error that prevented one.
    pub outcome: Result<OutcomeKind, ErrorKind>,
    /// The known parts in which its payload differs from the stored one, if its outcome is
    /// [`Mismatch`](OutcomeKind::Mismatch).
    pub difference: Difference,
    /// The stored hash of its key. `None` if it ran unprotected, or if it has no key.
    pub key: Option<KeyHash>,
    /// The number of grants of the key so far, including this one. 0 if nothing was granted.
    pub attempt: u64,
    /// Whether the operation took over an earlier claim that had left no outcome. It is set whatever the outcome is.
    pub took_over: bool,
    /// The duration of the calls that claimed it. One call may claim many records of a batch, and counts for each.
    pub claim_time: Option<Duration>,
    /// The run time of its handler. `None` if the handler did not run, panicked or was cancelled.
    pub handler_time: Option<Duration>,
    /// The duration of the calls that recorded its outcome.
    pub settle_time: Option<Duration>,
    /// The time left of its lease when the handler ended.
    pub lease_remaining: Option<Duration>,
    /// The number of store calls for it. A call shared with others counts for each of them. A claim that a
    /// `CachedStore` answers counts as a call, and has a [`claim_time`](Self::claim_time).
    pub store_calls: u32,
}

impl OperationEvent<'_> {
    /// Returns the outcome's name, as in logs: [`OutcomeKind::as_str`] or [`ErrorKind::as_str`].
    pub const fn outcome_name(&self) -> &'static str {
        match self.outcome {
            Ok(outcome) => outcome.as_str(),
            Err(kind) => kind.as_str(),
        }
    }

    /// Returns whether it was recognized as done before, so that its effect was not repeated.
    pub const fn is_duplicate(&self) -> bool {
        match self.outcome {
            Ok(outcome) => outcome.is_replay(),
            Err(_) => false,
        }
    }
}

/// The end of a batch, a request, an invocation or a single operation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndEvent<'a> {
    /// The entry point of the batch, request, invocation or operation.
    pub entry_point: EntryPoint,
    /// The name of the operation in logs.
    pub operation: &'a str,
    /// The number of operations.
    pub operations: usize,
    /// The total number of store calls.
    pub store_calls: u32,
    /// Whether it ended inside another operation that the same observers see, such as an operation in the handler of a
    /// batch.
    pub is_nested: bool,
}

/// An observer of every operation of an engine. Set by [`Builder::observer`](crate::Builder::observer).
///
/// It is called during the invocation, so it should not block. It affects no outcome, even if it panics. A closure
/// `Fn(&OperationEvent<'_>)` implements it.
///
/// ```
/// use lambda_once::{Failure, Idempotency, MemoryStore, telemetry::OperationEvent};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
/// let once = Idempotency::builder(MemoryStore::new())
///     .observer(|event: &OperationEvent<'_>| println!("{} {}", event.operation, event.outcome_name()))
///     .build()?;
/// let _ = once.operation("charge", "order 7").run(|| async { Ok::<_, Failure>(()) }).await?; // prints: charge executed
/// # Ok(()) }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Called when an operation has an outcome.
    fn on_operation(&self, event: &OperationEvent<'_>);

    /// Called at the end of a batch, a request, an invocation or a single operation, after
    /// [`on_operation`](Self::on_operation) for its operations. Not called if its future is dropped before.
    fn on_end(&self, _event: &EndEvent<'_>) {}

    /// Returns an address that is equal for engines that share an observer.
    #[doc(hidden)]
    fn address(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }
}

impl<F: Fn(&OperationEvent<'_>) + Send + Sync + 'static> Observer for F {
    fn on_operation(&self, event: &OperationEvent<'_>) {
        self(event);
    }
}

impl<O: Observer> Observer for Arc<O> {
    fn on_operation(&self, event: &OperationEvent<'_>) {
        (**self).on_operation(event);
    }

    fn on_end(&self, event: &EndEvent<'_>) {
        (**self).on_end(event);
    }

    fn address(&self) -> usize {
        (**self).address()
    }
}

/// The observers of an engine, in the order in which they are called.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: impl Observer) {
        self.0.push(Arc::new(observer));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether all of the others are among these.
    pub(crate) fn include(&self, others: &Self) -> bool {
        let address = |observer: &Arc<dyn Observer>| observer.address();
        others.0.iter().map(address).all(|other| self.0.iter().map(address).any(|own| own == other))
    }

    pub(crate) fn operation(&self, event: &OperationEvent<'_>) {
        self.each(|observer| observer.on_operation(event));
    }

    pub(crate) fn end(&self, event: &EndEvent<'_>) {
        self.each(|observer| observer.on_end(event));
    }

    /// Calls each observer. If one panics, the panic is logged.
    fn each(&self, tell: impl Fn(&dyn Observer)) {
        for observer in &self.0 {
            if catch_panic(|| tell(&**observer)).is_none() {
                tracing::error!(target: "lambda_once", "an observer of operations panicked");
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}
