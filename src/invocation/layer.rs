//! The layer and its settings.

use std::{borrow::Cow, fmt, marker::PhantomData, time::Duration};

use tower_layer::Layer;

use super::service::InvocationService;
use crate::{
    error::Error,
    idempotency::{handle::Idempotency, names::Registration},
    key::{payload::Payload, selector::Key},
};

/// Answers a repeated event with the first one's result. See the [module](super).
///
/// It takes the event as it arrived, and gives the inner service what that takes: `T`, which is inferred.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`payload`](Self::payload) | [`Payload::Body`]: the whole event |
/// | [`wait_up_to`](Self::wait_up_to) | not at all |
#[must_use]
pub struct InvocationLayer<T> {
    settings: Settings,
    event: PhantomData<fn() -> T>,
}

impl<T> Clone for InvocationLayer<T> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), event: PhantomData }
    }
}

impl<T> fmt::Debug for InvocationLayer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InvocationLayer").field("settings", &self.settings).finish()
    }
}

/// What its operations are called.
pub(super) const OPERATION: &str = "invocation";

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) engine: Idempotency,
    registration: Registration,
    /// What the operations are called in logs.
    pub(super) operation: Cow<'static, str>,
    pub(super) key: Key,
    pub(super) payload: Payload,
    pub(super) patience: Duration,
}

impl<T> InvocationLayer<T> {
    /// A layer on this engine. `key` selects from the event; `Key::pointer("")` is all of it.
    pub fn new(engine: Idempotency, key: Key) -> Self {
        let settings = Settings {
            registration: engine.register(OPERATION),
            operation: engine.log_name(OPERATION),
            engine,
            key,
            payload: Payload::default(),
            patience: Duration::ZERO,
        };
        Self { settings, event: PhantomData }
    }

    /// What tells a repeated operation from a misused key.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.settings.payload = payload;
        self
    }

    /// How long to wait for the result of an event that is being handled elsewhere, instead of failing at once. The time
    /// counts from the beginning of the invocation, and waiting ends before the stop point.
    pub fn wait_up_to(mut self, time: Duration) -> Self {
        self.settings.patience = time;
        self
    }

    /// The same layer, if its key and its payload can be looked up at all. Called in init, it shows a misspelt pointer at
    /// the deployment and not by invocations that fail.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a selector is malformed, if a combination of keys is empty, if a
    /// selector is one for messages of a queue, such as [`Key::message_id`], if the engine's policy is
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe), as there is no probe here, or if another layer is alive on the same
    /// [unnamed engine](Idempotency#names).
    pub fn checked(self) -> Result<Self, Error> {
        self.settings.check()?;
        Ok(self)
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.registration.check()?;
        self.engine.check_probe(false)?;
        self.key.check()?;
        self.payload.check()?;
        let part = if let Payload::Part(part) = &self.payload { Some(part) } else { None };
        // They would find nothing in any event, and under `MissingKey::RunUnprotected` protect nothing.
        match [Some(&self.key), part].into_iter().flatten().find(|key| key.is_for_messages()) {
            Some(key) => {
                Err(Error::config(format!("an event is not a message of a queue, so {key:?} selects nothing")))
            }
            None => Ok(()),
        }
    }
}

impl<S, T> Layer<S> for InvocationLayer<T> {
    type Service = InvocationService<S, T>;

    fn layer(&self, inner: S) -> InvocationService<S, T> {
        InvocationService::new(inner, self.settings.clone())
    }
}
