//! Observers: what happened to each operation, as one typed event.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    error::ErrorKind,
    idempotency::{guard::catch_panic, outcome::OutcomeKind},
    record::{Difference, KeyHash},
};

/// How an operation came to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryPoint {
    /// By [`Idempotency::operation`](crate::Idempotency::operation).
    Operation,
    /// As a record of a batch.
    Batch,
    /// As an HTTP request.
    Http,
    /// As a whole invocation.
    Invocation,
}

/// What happened to an operation.
///
/// Times are wall-clock times. What did not happen has none: a duplicate has no handler's time, and an operation that was not
/// claimed no claim's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OperationEvent<'a> {
    /// How it came.
    pub entry_point: EntryPoint,
    /// Its name in logs: that of the engine, if it has one, and that of the operation or the kind of service.
    pub operation: &'a str,
    /// Its outcome, or the kind of the error that kept it from being decided.
    pub outcome: Result<OutcomeKind, ErrorKind>,
    /// The parts in which its payload differs from that on record, if its outcome is
    /// [`Mismatch`](OutcomeKind::Mismatch) and they are known.
    pub difference: Difference,
    /// The hash of its key, as the store has it; `None` if it ran unprotected, or if it has none.
    pub key: Option<KeyHash>,
    /// How often the key has been granted, this grant included; 0 if nothing was granted.
    pub attempt: u64,
    /// Whether its claim took over another one that had ended without an outcome, however it ended itself.
    pub took_over: bool,
    /// How long the calls that claimed it took. One call may claim many records of a batch: each has its time.
    pub claim_time: Option<Duration>,
    /// How long its handler ran; `None` also if that panicked or was cancelled.
    pub handler_time: Option<Duration>,
    /// How long the calls that recorded its outcome took.
    pub settle_time: Option<Duration>,
    /// How much of its lease was left when the handler ended.
    pub lease_remaining: Option<Duration>,
    /// How many calls to the store were made for it. A call that it shares with others counts for each of them.
    pub store_calls: u32,
}

impl OperationEvent<'_> {
    /// The outcome's name, as in logs: [`OutcomeKind::as_str`] or [`ErrorKind::as_str`].
    pub const fn outcome_name(&self) -> &'static str {
        match self.outcome {
            Ok(outcome) => outcome.as_str(),
            Err(kind) => kind.as_str(),
        }
    }

    /// Whether it was recognized as done before, so that its effect was not repeated.
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
    /// What has ended.
    pub entry_point: EntryPoint,
    /// Its name in logs.
    pub operation: &'a str,
    /// How many operations it had.
    pub operations: usize,
    /// How many calls to the store were made for all of them together.
    pub store_calls: u32,
    /// `true` inside another operation that the same observers see, such as an operation in the handler of a batch.
    pub is_nested: bool,
}

/// Is told of every operation of an engine: [`Builder::observer`](crate::Builder::observer).
///
/// It is called in the invocation, so it should not block. It changes nothing, even if it panics. A closure
/// `Fn(&OperationEvent<'_>)` is one.
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
    /// An operation has its outcome.
    fn on_operation(&self, event: &OperationEvent<'_>);

    /// A batch, a request, an invocation or a single operation is over, after its operations have been told. Not called if its
    /// future is dropped before.
    fn on_end(&self, _event: &EndEvent<'_>) {}

    /// Returns what two engines that share an observer have in common.
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

    /// Whatever they do, it changes nothing.
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
