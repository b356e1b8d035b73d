//! The layer over a handler of whole events.

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
/// | [`heartbeat`](Self::heartbeat) | as the engine's, without a known deadline |
/// | [`with_settings`](Self::with_settings) | as the engine's |
/// | [`before_replay`](Self::before_replay) | none |
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
    /// A layer on this engine. `key` selects from the event; `Key::pointer("")` is all of it.
    #[track_caller]
    pub fn new(engine: Idempotency, key: Key) -> Self {
        Self { settings: LayerSettings::new(&engine.engine, key), event: PhantomData }
    }

    /// What tells a repeated operation from a misused key.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.settings.payload = payload;
        self
    }

    /// Sets what the records in the store are labelled with, so that people find them. By default they have no label. It stands
    /// there as **plain text**: see [`Operation::label`](crate::Operation::label). An event from which nothing can be selected has
    /// no label, and is handled as others are.
    pub fn label(mut self, label: Key) -> Self {
        self.settings.label = Some(label);
        self
    }

    /// How long to wait for the result of an event that is being handled elsewhere, instead of failing at once. The time
    /// counts from the beginning of the invocation, and waiting ends before the stop point.
    pub fn wait_up_to(mut self, time: Duration) -> Self {
        self.settings.wait_up_to = time;
        self
    }

    /// Sets how long a handler may run where the deadline is not known, as under `cargo lambda watch` and in tests. Its lease is
    /// [renewed](crate::Builder::heartbeat) meanwhile. An invocation whose deadline is known, as each in Lambda, is
    /// refused with it ([`ErrorKind::Config`](crate::ErrorKind::Config)): its lease lasts until then. The engine's own setting has no
    /// effect there.
    ///
    /// With `None` no lease is renewed: where the deadline is not known, a handler is cancelled shortly before its first lease ends.
    pub fn heartbeat(mut self, max_duration: impl Into<Option<Duration>>) -> Self {
        self.settings.heartbeat = Heartbeat::of(max_duration.into());
        self
    }

    /// Changes a stored result, as JSON, before a repeated event gets it: to mark it as replayed, or to renew what has expired in it.
    /// It is not called for the first result, nor for one that is not kept.
    ///
    /// ```
    /// # use lambda_once::{Idempotency, Key, MemoryStore, invocation::InvocationLayer};
    /// # let once = Idempotency::new(MemoryStore::new());
    /// let layer = InvocationLayer::<serde_json::Value>::new(once, Key::pointer("/order_id"))
    ///     .before_replay(|result| result["replayed"] = true.into());
    /// ```
    ///
    /// If it panics, or makes of the result what the handler does not return, the invocation fails with
    /// [`StoredResult`](crate::ErrorKind::StoredResult).
    pub fn before_replay(mut self, change: impl Fn(&mut serde_json::Value) + Send + Sync + 'static) -> Self {
        self.settings.before_replay = Some(ReplayHook::new(change));
        self
    }

    /// Settings of this layer where they differ from the engine's: its retention, say. Later ones replace earlier ones.
    pub fn with_settings(mut self, settings: OperationSettings) -> Self {
        self.settings.engine = self.settings.engine.with(settings);
        self
    }

    /// The same layer, if its key and its payload can be looked up at all. Called in init, it shows a misspelt pointer at
    /// the deployment and not by invocations that fail.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if [settings](Self::with_settings) contradict each other, if a selector is malformed, if a combination of keys is empty, if a
    /// selector is one for messages of a queue, such as [`Key::message_id`], if a [`heartbeat`](Self::heartbeat) is set in Lambda, where
    /// it would fail each invocation, if the engine's policy is
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe), as there is no probe here, if the longest duration of the
    /// [`heartbeat`](Self::heartbeat) is zero, or if another layer is alive on the same [unnamed engine](Idempotency#names).
    pub fn validate(self) -> Result<Self, Error> {
        self.settings.check()?;
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
