//! One event, from its key to its result.

use std::{
    any::TypeId,
    fmt, mem,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use lambda_runtime::LambdaEvent;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tower_service::Service;

use super::{
    HandlerError, InvocationError,
    claim::under,
    layer::{OPERATION, Settings},
};
use crate::{
    Deadline, Error, ErrorKind, ErrorStatus, Failure, Interruption, Outcome,
    idempotency::{Unprobed, engine::Candidate, guard::contain, window::Window},
    key::{Body, Delivery, Envelope, canonical},
    store::BoxFuture,
    telemetry,
};

/// The service that [`InvocationLayer`](super::InvocationLayer) makes. It keeps nothing between invocations.
///
/// # Errors
///
/// The inner service's own, and those of the library: see the [module](super). With
/// [`ErrorKind::Config`] it refuses every event whose key could not be looked up in any;
/// [`InvocationLayer::checked`](super::InvocationLayer::checked) finds that in init.
#[derive(Clone)]
pub struct InvocationService<S> {
    pub(super) inner: S,
    pub(super) settings: Arc<Settings>,
}

impl<S> InvocationService<S> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, without the layer.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: fmt::Debug> fmt::Debug for InvocationService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InvocationService").field("inner", &self.inner).field("settings", &self.settings).finish()
    }
}

impl<S, T, R> Service<LambdaEvent<T>> for InvocationService<S>
where
    S: Service<LambdaEvent<T>, Response = R> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: HandlerError + Send + 'static,
    T: Serialize + Send + 'static,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    type Response = R;
    type Error = InvocationError<S::Error>;
    type Future = BoxFuture<'static, Result<R, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(InvocationError::Handler)
    }

    fn call(&mut self, event: LambdaEvent<T>) -> Self::Future {
        // The clone is not ready; the service that was polled is.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let settings = Arc::clone(&self.settings);
        Box::pin(async move { settings.answer(inner, event).await })
    }
}

impl Settings {
    async fn answer<S, T, R>(&self, mut inner: S, event: LambdaEvent<T>) -> Result<R, InvocationError<S::Error>>
    where
        S: Service<LambdaEvent<T>, Response = R> + Send,
        S::Future: Send,
        S::Error: HandlerError + Send,
        T: Serialize + Send + 'static,
        R: Serialize + DeserializeOwned + Send,
    {
        self.check()?;
        let engine = &self.engine;
        let window = Window::new(engine.clock.now(), Deadline::from(&event.context), &engine.settings);
        let candidate = self.candidate(&event)?;
        let own = Mutex::new(None);
        let work = |claim| async {
            // The call is made inside too: it runs code of the user's.
            match under(claim, async { inner.call(event).await }).await {
                Ok(value) => Ok(value),
                Err(error) => {
                    let failure = failure_of(&error);
                    *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    Err(failure)
                }
            }
        };
        let operation = &*self.operation;
        let outcome = match candidate {
            None => {
                let outcome = engine.run_unprotected(window, async { work(None).await }).await;
                telemetry::unprotected(&outcome, operation);
                outcome
            }
            Some(candidate) => {
                let key = candidate.key;
                let ran = engine.run_protected(candidate, window, self.patience, Unprobed, work).await;
                let (outcome, attempt) = ran.inspect_err(|error| telemetry::error(error, operation, key))?;
                telemetry::outcome(&outcome, operation, key, attempt);
                outcome
            }
        };
        let own = own.into_inner().unwrap_or_else(PoisonError::into_inner);
        result(outcome, own)
    }

    /// What to claim; `None` if the event runs unprotected. Code of the user's runs here, and may panic.
    fn candidate<T: Serialize + 'static>(&self, event: &LambdaEvent<T>) -> Result<Option<Candidate>, Error> {
        if self.engine.settings.disabled {
            return Ok(None);
        }
        let operation = &*self.operation;
        let found = contain(|| self.select(event));
        match found.unwrap_or_else(|| Err(Error::payload("writing the event as JSON, or finding its key, panicked"))) {
            Ok(candidate) => Ok(Some(candidate)),
            Err(error) if error.kind() == ErrorKind::KeyMissing && self.engine.runs_without_key() => {
                tracing::warn!(target: "lambda_once", operation, "the event has no key and runs unprotected");
                Ok(None)
            }
            Err(error) => {
                telemetry::unclaimed(&error, operation);
                Err(error)
            }
        }
    }

    fn select<T: Serialize + 'static>(&self, event: &LambdaEvent<T>) -> Result<Candidate, Error> {
        let json = serde_json::to_vec(&event.payload)
            .map_err(|source| Error::payload("the event cannot be written as JSON").with_source(source))?;
        let body = Body::new(&json);
        let delivery = Delivery::new(&body, &Bare);
        let mut buffer = Vec::new();
        let key = self.key.select(&delivery, &mut buffer)?;
        // What has not been decoded has lost nothing.
        let is_raw = TypeId::of::<T>() == TypeId::of::<Box<RawValue>>();
        if !is_raw && canonical::may_have_lost_digits(key) {
            let message = "a number of the key is a float with an exponent or more than 15 digits, so some may be lost";
            return Err(Error::payload(message));
        }
        let tenant = event.context.tenant_id.as_deref().map(str::as_bytes);
        let key = self.engine.scope(OPERATION, tenant).hash(key);
        Ok(Candidate { key, fingerprint: self.payload.fingerprint(&body, &delivery)? })
    }
}

/// An event has no outside.
struct Bare;

impl Envelope for Bare {
    fn message_id(&self) -> Option<&str> {
        None
    }

    fn id_scope(&self) -> Option<&str> {
        None
    }

    fn source(&self) -> Option<&str> {
        None
    }

    fn attribute(&self, _: &str) -> Option<&str> {
        None
    }

    fn header(&self, _: &str) -> Option<&str> {
        None
    }
}

/// The engine's view of the handler's error, which itself is handed on.
fn failure_of<E: HandlerError>(error: &E) -> Failure {
    // The text is the user's, and printing it may panic.
    let text = contain(|| error.to_string()).unwrap_or_else(|| "the error's text is not known".to_owned());
    Failure::new(error.verdict(), text)
}

/// What the caller gets; `own` is the handler's error, if it returned one.
fn result<R: DeserializeOwned, E>(outcome: Outcome<R>, own: Option<E>) -> Result<R, InvocationError<E>> {
    let error = match outcome {
        Outcome::Executed(value)
        | Outcome::TookOver(value)
        | Outcome::Recovered(value)
        | Outcome::Unrecorded(value)
        | Outcome::Replayed(value) => {
            return Ok(value);
        }
        Outcome::Failed(failure) => match own {
            Some(error) => return Err(InvocationError::Handler(error)),
            // It is always there: only a handler's error makes a failure.
            None => Error::new(ErrorKind::Panicked, ErrorStatus::Ambiguous, "invoke", failure.to_string()),
        },
        Outcome::ReplayedWithoutResult => match the_only_value() {
            Some(value) => return Ok(value),
            None => {
                let message = "the operation was done before; its result is not kept";
                Error::new(ErrorKind::ResultNotKept, ErrorStatus::Permanent, "invoke", message)
            }
        },
        Outcome::ReplayedFailure(stored) => {
            let said = stored.message.as_deref().unwrap_or("its error is not kept");
            let message = format!("the operation failed for good before: {said}");
            Error::new(ErrorKind::FailedBefore, ErrorStatus::Permanent, "invoke", message)
        }
        Outcome::InProgress { .. } => {
            let message = "another invocation is running the operation";
            Error::new(ErrorKind::InProgress, ErrorStatus::Temporary, "invoke", message)
        }
        Outcome::LeaseLost => {
            let message = "the handler outlived its lease, and another invocation is running the operation";
            Error::new(ErrorKind::InProgress, ErrorStatus::Ambiguous, "invoke", message)
        }
        Outcome::Mismatch => {
            let message = "the key was used with another payload";
            Error::new(ErrorKind::Mismatch, ErrorStatus::Permanent, "invoke", message)
        }
        Outcome::Abandoned { .. } => {
            let message = "an earlier run ended without an outcome, so the operation may have taken effect";
            Error::new(ErrorKind::Abandoned, ErrorStatus::Permanent, "invoke", message)
        }
        Outcome::Interrupted(Interruption::Panicked) => {
            Error::new(ErrorKind::Panicked, ErrorStatus::Ambiguous, "invoke", "the handler panicked")
        }
        Outcome::Interrupted(Interruption::CutOff) => {
            let message = "the handler was cut off shortly before the invocation's deadline";
            Error::new(ErrorKind::OutOfTime, ErrorStatus::Ambiguous, "invoke", message)
        }
        Outcome::NotStarted | Outcome::Skipped => {
            let message = "no time was left to start the handler";
            Error::new(ErrorKind::OutOfTime, ErrorStatus::Temporary, "invoke", message)
        }
    };
    Err(error.into())
}

/// Of `()` or a unit struct: nothing is lost when it is not kept. Other types with one value are not written as `null`.
fn the_only_value<R: DeserializeOwned>() -> Option<R> {
    if size_of::<R>() == 0 { serde_json::from_str("null").ok() } else { None }
}
