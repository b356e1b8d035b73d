//! A function with a handler behind the layer, and its events.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    BoxError, Builder, Idempotency, Key, MemoryStore,
    invocation::{HandlerError, InvocationError, InvocationLayer},
    store::fault::{Call, FaultStore},
};
use lambda_runtime::{Context, LambdaEvent};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tower::{Layer, ServiceExt, util::BoxCloneSyncService};

use crate::support::clock::TokioClock;

/// A time after every lease of an invocation without a deadline, including the margin.
pub(crate) const LAPSE: Duration = Duration::from_secs(32);

/// The function under test, whose handler gets the number of its runs.
pub(crate) struct Function<R = u32, E = BoxError> {
    pub(crate) records: MemoryStore,
    pub(crate) store: FaultStore<MemoryStore>,
    pub(crate) clock: TokioClock,
    /// The engine, which computes the hashes of keys.
    pub(crate) once: Idempotency,
    runs: Arc<AtomicU32>,
    service: BoxCloneSyncService<LambdaEvent<Box<RawValue>>, R, InvocationError<E>>,
}

impl Function {
    /// Creates a function that returns the number of the run.
    pub(crate) fn new() -> Self {
        Self::with(|engine| engine, |layer| layer, numbered)
    }
}

impl<R, E> Function<R, E>
where
    R: Serialize + DeserializeOwned + Send + 'static,
    E: HandlerError + Send + 'static,
{
    pub(crate) fn of<H, F>(handler: H) -> Self
    where
        H: Fn(u32, Value) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        Self::with(|engine| engine, |layer| layer, handler)
    }

    pub(crate) fn with<H, F>(
        engine: impl FnOnce(Builder) -> Builder,
        layer: impl FnOnce(InvocationLayer<Value>) -> InvocationLayer<Value>,
        handler: H,
    ) -> Self
    where
        H: Fn(u32, Value) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        let clock = TokioClock::new();
        let records = MemoryStore::with_clock(clock.clone());
        Self::on(clock, records, engine, layer, handler)
    }

    /// Creates a function on the records of another function.
    pub(crate) fn on<H, F>(
        clock: TokioClock,
        records: MemoryStore,
        engine: impl FnOnce(Builder) -> Builder,
        layer: impl FnOnce(InvocationLayer<Value>) -> InvocationLayer<Value>,
        handler: H,
    ) -> Self
    where
        H: Fn(u32, Value) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        let store = FaultStore::new(records.clone(), 1);
        let builder = Idempotency::builder(store.clone()).clock(clock.clone()).disabled(false);
        let once = engine(builder).build().unwrap();
        let runs = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&runs);
        let inner = tower::service_fn(move |event: LambdaEvent<Value>| {
            handler(counter.fetch_add(1, Ordering::SeqCst) + 1, event.payload)
        });
        let service = layer(InvocationLayer::new(once.clone(), Key::pointer("/id"))).layer(inner);
        Self { records, store, clock, once, runs, service: BoxCloneSyncService::new(service) }
    }

    pub(crate) async fn send(&self, event: LambdaEvent<Value>) -> Result<R, InvocationError<E>> {
        self.send_raw(LambdaEvent::new(to_raw_value(&event.payload).unwrap(), event.context)).await
    }

    /// Invokes it with an event as Lambda sends it.
    pub(crate) async fn send_raw(&self, event: LambdaEvent<Box<RawValue>>) -> Result<R, InvocationError<E>> {
        self.service.clone().oneshot(event).await
    }

    /// Invokes it with this event, without a deadline.
    pub(crate) async fn invoke(&self, event: Value) -> Result<R, InvocationError<E>> {
        self.send(LambdaEvent::new(event, Context::default())).await
    }

    /// Invokes it with the default event, and returns its error, as [`refusal`] does.
    pub(crate) async fn refusal(&self) -> (&'static str, bool) {
        refusal(self.invoke(order()).await)
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Returns the calls of the store.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.store.calls().into_iter().map(|(call, _)| call).collect()
    }
}

/// Returns the default event.
pub(crate) fn order() -> Value {
    json!({"id": "A", "cents": 995})
}

pub(crate) async fn numbered(run: u32, _: Value) -> Result<u32, BoxError> {
    Ok(run)
}

/// Returns Lambda's name of an error that is not the handler's, and whether a retry may succeed.
pub(crate) fn refusal<R, E>(answer: Result<R, InvocationError<E>>) -> (&'static str, bool) {
    match answer {
        Err(InvocationError::Handler(_)) => panic!("the handler's own error"),
        Err(error) => {
            let is_retryable = error.is_retryable().unwrap();
            let name = match error {
                InvocationError::NoResult { outcome, .. } => outcome.as_str(),
                InvocationError::Library(error) => error.kind().as_str(),
                _ => panic!("an error that these tests do not know"),
            };
            (name, is_retryable)
        }
        Ok(_) => panic!("a result"),
    }
}
