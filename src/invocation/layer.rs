//! The layer's settings.

use std::sync::Arc;

use tower_layer::Layer;

use super::{InvocationService, Payload};
use crate::{Error, Idempotency, Key};

/// Answers a repeated event with the first one's result. See the [module](super).
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`payload`](Self::payload) | [`Payload::Body`]: the whole event |
#[derive(Clone, Debug)]
#[must_use]
pub struct InvocationLayer {
    settings: Settings,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) engine: Idempotency,
    pub(super) key: Key,
    pub(super) payload: Payload,
}

impl InvocationLayer {
    /// A layer on this engine. `key` selects from the event; `Key::pointer("")` is all of it.
    pub fn new(engine: Idempotency, key: Key) -> Self {
        Self { settings: Settings { engine, key, payload: Payload::default() } }
    }

    /// What tells a repeated operation from a misused key.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.settings.payload = payload;
        self
    }

    /// The same layer, if its key and its payload can be looked up at all. Called in init, it shows a misspelt pointer at
    /// the deployment and not by invocations that fail.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if a selector is malformed, if a combination of keys is empty, or
    /// if a selector is one for messages of a queue, such as [`Key::message_id`].
    pub fn checked(self) -> Result<Self, Error> {
        self.settings.check()?;
        Ok(self)
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), Error> {
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

impl<S> Layer<S> for InvocationLayer {
    type Service = InvocationService<S>;

    fn layer(&self, inner: S) -> InvocationService<S> {
        InvocationService { inner, settings: Arc::new(self.settings.clone()) }
    }
}
