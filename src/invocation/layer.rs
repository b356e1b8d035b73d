//! The `tower` layer for handlers of whole events.

use std::{fmt, marker::PhantomData, time::Duration};

use tower_layer::Layer;

use super::{
    service::InvocationService,
    settings::{LayerSettings, OPERATION, ReplayHook},
};
use crate::{
    error::Error,
    idempotency::{handle::Idempotency, operation_settings::OperationSettings, policy::Heartbeat},
    key::{payload::Payload, selector::Key},
};

/// A layer that returns the first result to repeated events. See the [module](super).
///
/// It takes the event as received, and passes it to the inner service as the type `T`, which is inferred.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`payload`](Self::payload) | [`Payload::Body`] (the whole event) |
/// | [`wait_up_to`](Self::wait_up_to) | no wait |
/// | [`heartbeat`](Self::heartbeat) | as the engine's, without a known deadline |
/// | [`with_settings`](Self::with_settings) | as the engine's |
/// | [`before_replay`](Self::before_replay), [`label`](Self::label) | none |
#[must_use]
pub struct InvocationLayer<T> {
    settings: LayerSettings,
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

impl<T> InvocationLayer<T> {
    /// Creates a layer on this engine. `key` selects from the event, and `Key::pointer("")` selects all of it.
    #[track_caller]
    pub fn new(engine: Idempotency, key: Key) -> Self {
        Self { settings: LayerSettings::new::<T>(&engine.engine, key), event: PhantomData }
    }

    /// Sets the payload that distinguishes a repeated operation from a misused key.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.settings.payload = payload;
        self
    }

    /// Sets the selector of the label with which people find the records in the store. By default they have no label. A
    /// label is stored as **plain text**: see [`Operation::label`](crate::Operation::label). An event from which
    /// nothing can be selected has no label, and is otherwise processed normally.
    pub fn label(mut self, label: Key) -> Self {
        self.settings.label = Some(label);
        self
    }

    /// Sets the time to wait for the result of an event that is being handled elsewhere, instead of failing
    /// immediately. It counts from the beginning of the invocation, and the wait ends before the handler deadline.
    pub fn wait_up_to(mut self, time: Duration) -> Self {
        self.settings.wait_up_to = time;
        self
    }

    /// Sets the maximum duration of a handler if the deadline is unknown, as under `cargo lambda watch` and in tests.
    /// Its lease is [renewed](crate::Builder::heartbeat) during that time. An invocation with a known deadline, as in
    /// Lambda, fails with this setting ([`ErrorKind::Config`](crate::ErrorKind::Config)), because its lease lasts until
    /// the deadline. The engine's setting has no effect there.
    ///
    /// With `None` no lease is renewed, and a handler without a known deadline is cancelled shortly before its first
    /// lease ends.
    pub fn heartbeat(mut self, max_duration: impl Into<Option<Duration>>) -> Self {
        self.settings.heartbeat = Heartbeat::of(max_duration.into());
        self
    }

    /// Sets a function that changes a stored result, as JSON, before a repeated event gets it, for example to mark it
    /// as replayed or to renew expired parts. It is not called for the first result or for one that is not stored.
    ///
    /// ```
    /// # use lambda_once::{Idempotency, Key, MemoryStore, invocation::InvocationLayer};
    /// # let once = Idempotency::new(MemoryStore::new());
    /// let layer = InvocationLayer::<serde_json::Value>::new(once, Key::pointer("/order_id"))
    ///     .before_replay(|result| result["replayed"] = true.into());
    /// ```
    ///
    /// If it panics, or its result does not decode as the handler's type, the invocation fails with
    /// [`StoredResult`](crate::ErrorKind::StoredResult).
    pub fn before_replay(mut self, change: impl Fn(&mut serde_json::Value) + Send + Sync + 'static) -> Self {
        self.settings.before_replay = Some(ReplayHook::new(change));
        self
    }

    /// Overrides settings of the engine for this layer, such as its retention. Later calls replace earlier ones.
    pub fn with_settings(mut self, settings: OperationSettings) -> Self {
        self.settings.engine = self.settings.engine.with(settings);
        self
    }

    /// Checks that the layer's settings, key and payload selectors are valid, and returns the layer. Call it in init,
    /// so that a misspelt pointer fails the deployment rather than the invocations.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if any of the following hold:
    ///
    /// * [Settings](Self::with_settings) contradict each other.
    /// * A selector is malformed or for messages of a queue, such as [`Key::message_id`], or a combination of keys is
    ///   empty.
    /// * A [`heartbeat`](Self::heartbeat) is set in Lambda, which would fail each invocation, or its maximum duration
    ///   is zero.
    /// * The engine's policy is [`AfterUnknown::Probe`](crate::AfterUnknown::Probe), which this layer does not support.
    /// * Another layer exists on the same [unnamed engine](Idempotency#names).
    pub fn validate(self) -> Result<Self, Error> {
        self.settings.check(None)?;
        self.settings.engine.check_keys(OPERATION, None)?;
        Ok(self)
    }
}

impl<S, T> Layer<S> for InvocationLayer<T> {
    type Service = InvocationService<S, T>;

    fn layer(&self, inner: S) -> InvocationService<S, T> {
        InvocationService::new(inner, self.settings.clone())
    }
}
