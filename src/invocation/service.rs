//! Processes one event, from its key to its result.

use std::{
    any::TypeId,
    borrow::Cow,
    fmt,
    marker::PhantomData,
    mem,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use lambda_runtime::LambdaEvent;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tower_service::Service;

use super::{
    HandlerError, InvocationError,
    claim::with_claim,
    settings::{LayerSettings, OPERATION, ReplayHook},
};
use crate::{
    clock::Deadline,
    decoding::decode_text,
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    idempotency::{
        engine::{Candidate, Extras, Subject},
        guard::catch_panic,
        invoked::note_tenant,
        outcome::{Interruption, Outcome},
        probe::Unprobed,
        settings::EngineSettings,
        verdict::Failure,
        window::Window,
    },
    key::delivery::{Body, Delivery, NoMetadata},
    record::KeyHash,
    store::MismatchState,
    telemetry::{EntryPoint, spans},
};

/// The service that [`InvocationLayer`](super::InvocationLayer) makes. It keeps no state between invocations.
///
/// # Errors
///
/// The errors of the inner service and of the library: see the [module](super). If no event can have a key, all fail
/// with [`ErrorKind::Config`]. [`InvocationLayer::validate`](super::InvocationLayer::validate) detects that in init.
pub struct InvocationService<S, T> {
    inner: S,
    settings: Arc<LayerSettings>,
    event: PhantomData<fn() -> T>,
}

impl<S, T> InvocationService<S, T> {
    pub(super) fn new(inner: S, settings: LayerSettings) -> Self {
        Self { inner, settings: Arc::new(settings), event: PhantomData }
    }
}

impl<S: Clone, T> Clone for InvocationService<S, T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: Arc::clone(&self.settings), event: PhantomData }
    }
}

impl<S: fmt::Debug, T> fmt::Debug for InvocationService<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InvocationService").field("inner", &self.inner).field("settings", &self.settings).finish()
    }
}

impl<S, T, R> Service<LambdaEvent<Box<RawValue>>> for InvocationService<S, T>
where
    S: Service<LambdaEvent<T>, Response = R> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: HandlerError + Send + 'static,
    T: DeserializeOwned + Send + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    type Response = R;
    type Error = InvocationError<S::Error>;
    type Future = BoxFuture<'static, Result<R, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(InvocationError::Handler)
    }

    fn call(&mut self, event: LambdaEvent<Box<RawValue>>) -> Self::Future {
        // The clone is not ready, only the service that was polled.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let settings = Arc::clone(&self.settings);
        Box::pin(async move {
            settings.check(Some(TypeId::of::<S>()))?;
            settings.respond::<_, T, _>(inner, event).await
        })
    }
}

impl LayerSettings {
    async fn respond<S, T, R>(
        &self,
        inner: S,
        event: LambdaEvent<Box<RawValue>>,
    ) -> Result<R, InvocationError<S::Error>>
    where
        S: Service<LambdaEvent<T>, Response = R> + Send,
        S::Future: Send,
        S::Error: HandlerError + Send,
        T: DeserializeOwned + Send,
        R: Serialize + DeserializeOwned + Send,
    {
        let engine = &self.engine;
        let tenant = event.context.tenant_id.as_deref();
        engine.check_keys(OPERATION, tenant)?;
        note_tenant(tenant);
        let window = Window::new(engine.clock.now(), Deadline::from(&event.context), &engine.settings);
        window.check_heartbeat(self.heartbeat)?;
        let window = window.with_heartbeat(self.heartbeat, &engine.settings);
        let operation = &*self.operation;
        let span = spans::invocation(operation, &event.context);
        engine.observed(EntryPoint::Invocation, operation, span, self.respond_within(inner, event, window)).await
    }

    async fn respond_within<S, T, R>(
        &self,
        mut inner: S,
        event: LambdaEvent<Box<RawValue>>,
        window: Window,
    ) -> Result<R, InvocationError<S::Error>>
    where
        S: Service<LambdaEvent<T>, Response = R> + Send,
        S::Future: Send,
        S::Error: HandlerError + Send,
        T: DeserializeOwned + Send,
        R: Serialize + DeserializeOwned + Send,
    {
        let engine = &self.engine;
        let candidate = self.candidate(&event)?;
        let event = LambdaEvent::new(self.decode::<T>(&event.payload)?, event.context);
        let own = Mutex::new(None);
        let work = |claim| async {
            // The call is made inside, because it runs user code.
            match with_claim(claim, async { inner.call(event).await }).await {
                Ok(value) => Ok(value),
                Err(error) => {
                    let failure = failure_of(&error, &engine.settings);
                    *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    Err(failure)
                }
            }
        };
        let outcome = match candidate {
            None => {
                let outcome = engine.run_unprotected(window, None, async { work(None).await }).await;
                engine.tell(self.subject(None), &outcome, 0);
                outcome
            }
            Some(candidate) => {
                let key = candidate.key;
                let ran = engine.run_protected(candidate, window, self.wait_up_to, Unprobed, None, work).await;
                let subject = self.subject(Some(key));
                let (outcome, attempt) = ran.inspect_err(|error| engine.tell_error(subject, error))?;
                let outcome = match &self.before_replay {
                    Some(hook) => changed(outcome, hook).inspect_err(|error| engine.tell_error(subject, error))?,
                    None => outcome,
                };
                engine.tell(subject, &outcome, attempt);
                outcome
            }
        };
        let own = own.into_inner().unwrap_or_else(PoisonError::into_inner);
        result(outcome, own)
    }

    fn subject(&self, key: Option<KeyHash>) -> Subject<'_> {
        Subject::new(EntryPoint::Invocation, &self.operation, key)
    }

    /// Returns the candidate to claim, or `None` if the event runs unprotected. This runs user code, which may panic.
    fn candidate(&self, event: &LambdaEvent<Box<RawValue>>) -> Result<Option<Candidate>, Error> {
        if self.engine.settings.disabled {
            return Ok(None);
        }
        let operation = &*self.operation;
        let found = catch_panic(|| self.select(event));
        match found.unwrap_or_else(|| Err(Error::payload("finding the event's key panicked"))) {
            Ok(candidate) => Ok(Some(candidate)),
            Err(error) if error.kind() == ErrorKind::KeyMissing && self.engine.runs_without_key() => {
                tracing::warn!(target: "lambda_once", operation, "the event has no key and runs unprotected");
                Ok(None)
            }
            Err(error) => {
                self.engine.tell_error(self.subject(None), &error);
                Err(error)
            }
        }
    }

    /// Decodes the handler's event. This precedes the claim, so that an event that does not decode leaves no record.
    fn decode<T: DeserializeOwned>(&self, event: &RawValue) -> Result<T, Error> {
        let decoded = catch_panic(|| {
            decode_text(event.get())
                .map_err(|error| Error::undecodable(error.describe("event", event.get().as_bytes())))
        });
        let decoded = decoded.unwrap_or_else(|| Err(Error::undecodable("decoding the event panicked")));
        decoded.inspect_err(|error| self.engine.tell_error(self.subject(None), error))
    }

    /// Selects from the event as received, because the serialization of `T` may differ between deliveries, as the order
    /// of a `HashSet` does.
    fn select(&self, event: &LambdaEvent<Box<RawValue>>) -> Result<Candidate, Error> {
        let body = Body::new(event.payload.get().as_bytes());
        let delivery = Delivery::new(&body, &NoMetadata);
        let mut buffer = Vec::new();
        let settings = &self.engine.settings;
        let for_now = |error| settings.classifiers.key_error(error, settings.on_panic);
        let key = self.key.select(&delivery, &mut buffer).map_err(for_now)?;
        let tenant = event.context.tenant_id.as_deref().map(str::as_bytes);
        let hasher = self.engine.hasher(OPERATION, tenant);
        let key = hasher.hash(key);
        let fingerprint = self.payload.fingerprint(&body, &delivery, &hasher).map_err(for_now)?;
        let label = self.label.as_ref().and_then(|label| label.label(&delivery));
        Ok(Candidate { key, fingerprint, extras: Extras { sequence: None, label }.boxed() })
    }
}

/// Describes the handler's error, which is itself returned, to the engine. It runs within the work, which catches its
/// panics.
fn failure_of<E: HandlerError>(error: &E, settings: &EngineSettings) -> Failure {
    // The text comes from user code, which may panic.
    let text = catch_panic(|| error.to_string()).unwrap_or_else(|| "the error's text is not known".to_owned());
    let verdict =
        error.verdict().or_else(|| settings.classifiers.verdict_of_service(error.as_error(), settings.on_panic));
    Failure::new(verdict.unwrap_or_default(), text)
}

/// Returns the outcome as the hook changes its value, if that is a replay.
fn changed<R: Serialize + DeserializeOwned>(outcome: Outcome<R>, hook: &ReplayHook) -> Result<Outcome<R>, Error> {
    Ok(match outcome {
        Outcome::Replayed(value) => Outcome::Replayed(hook.apply(&value)?),
        Outcome::ReplayedOtherVersion(value) => Outcome::ReplayedOtherVersion(hook.apply(&value)?),
        outcome => outcome,
    })
}

/// Returns the caller's result. `own` is the handler's error, if it returned one.
fn result<R: DeserializeOwned, E>(outcome: Outcome<R>, own: Option<E>) -> Result<R, InvocationError<E>> {
    use ErrorStatus::{Ambiguous, Permanent, Temporary};
    let kind = outcome.kind();
    let (status, message): (_, Cow<'static, str>) = match (outcome, own) {
        (
            Outcome::Executed(value)
            | Outcome::TookOver(value)
            | Outcome::Recovered(value)
            | Outcome::Unrecorded(value)
            | Outcome::Replayed(value)
            | Outcome::ReplayedOtherVersion(value),
            _,
        ) => return Ok(value),
        (Outcome::Failed(_) | Outcome::Superseded { .. }, Some(error)) => return Err(InvocationError::Handler(error)),
        // Unreachable, because only a handler's error makes a failure.
        (Outcome::Failed(failure), None) => (Ambiguous, failure.to_string().into()),
        (Outcome::ReplayedWithoutResult, _) => match unit_value() {
            Some(value) => return Ok(value),
            None => (Permanent, "the operation is done, and its result is not stored; do not repeat it".into()),
        },
        (Outcome::ReplayedFailure(stored), _) => {
            let text = stored.message.as_deref().unwrap_or("its error is not kept");
            (Permanent, format!("the operation failed permanently before: {text}").into())
        }
        (Outcome::InProgress { .. }, _) => (Temporary, "another invocation is running the operation".into()),
        (Outcome::LeaseLost, _) => {
            (Ambiguous, "the handler lost its claim, and another invocation may be running the operation".into())
        }
        (Outcome::Mismatch(mismatch), _) => {
            let is_running = matches!(mismatch.state, MismatchState::InProgress { .. });
            (if is_running { Temporary } else { Permanent }, mismatch.to_string().into())
        }
        (Outcome::Superseded { .. }, None) => (Permanent, "a newer operation has taken effect".into()),
        (Outcome::Abandoned { .. }, _) => {
            (Permanent, "an earlier run ended without an outcome, so the operation may have taken effect".into())
        }
        (Outcome::Interrupted(Interruption::Panicked), _) => (Ambiguous, "the handler panicked".into()),
        (Outcome::Interrupted(Interruption::Cancelled), _) => {
            (Ambiguous, "the handler was cancelled at its deadline, and its effect is unknown".into())
        }
        (Outcome::NotStarted | Outcome::Skipped | Outcome::Ignored, _) => {
            (Temporary, "no time was left to start the handler".into())
        }
    };
    Err(InvocationError::NoResult { outcome: kind, status, message })
}

/// Returns the value of `()` or a unit struct, which need not be stored. Other types with a single value are not
/// written as `null`.
fn unit_value<R: DeserializeOwned>() -> Option<R> {
    if size_of::<R>() == 0 { serde_json::from_str("null").ok() } else { None }
}
